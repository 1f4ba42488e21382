package benching

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/agents"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/benched"
)

// Choose reads the nodes and chooses those of the benchmark: the named ones, or two that are fit for load. It refuses
// bounds that are not for so many nodes.
func Choose(ctx context.Context, a *app.App, client *kube.Client, named []string,
	bounds bench.Bounds) ([]corev1.Node, error) {
	var nodes *corev1.NodeList
	if err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		nodes, err = client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	if why := bounds.TooManyRules(len(nodes.Items)); why != "" {
		return nil, exit.Fail(exit.Usage, "name fewer rules or fewer --runs, or measure on a smaller cluster",
			"%s", why)
	}
	chosen, err := benched.Choose(nodes.Items, named)
	if err != nil {
		code := exit.Failed // the state of the cluster is not a mistake in the command
		if len(named) > 0 {
			code = exit.Usage
		}
		return nil, exit.Fail(code, exit.HintOf(err), "%w", err)
	}
	return chosen, nil
}

// Cost prints what a benchmark costs. who puts the load on the network.
func Cost(to io.Writer, who string, b *benched.Bench) {
	fmt.Fprintf(to, "%s puts load on the network of the cluster %s:\n", who, b.Client.Config.Host)
	fmt.Fprintf(to, "  pods     %d, and a Service, in %s, on %s; each run has a client of its own\n",
		b.Pods(), v1alpha1.Namespace, strings.Join(Names(b.Nodes), " and "))
	for _, line := range b.Cost().Text(b.Bounds, manifest.BenchProcessors, manifest.BenchMemory) {
		fmt.Fprintln(to, "  "+line)
	}
	if len(b.Nodes) == 1 {
		fmt.Fprintln(to, "There is one node: no path between two nodes is measured.")
	}
}

// count has a benchmark read the counters of the network's own programs, and count the addresses that are left. If the
// cluster cannot be read for that, a note says so, and the benchmark is made without.
func count(ctx context.Context, a *app.App, b *benched.Bench) {
	snapshot, err := survey.See(ctx, a, nil)
	if err != nil {
		b.Note(fmt.Sprintf("the network's own counters and the addresses that are left are not read: %v", err))
		return
	}
	b.Readings = survey.Readings(snapshot)
	b.Addresses = func(ctx context.Context) ([]cluster.Addresses, error) {
		snapshot, err := survey.See(ctx, a, nil)
		if err != nil {
			return nil, err
		}
		if ok, why := snapshot.Has("pods"); !ok {
			return nil, fmt.Errorf("pods: %s", why)
		}
		return cni.AddressesOf(snapshot, drivers.All().Detect(snapshot)), nil
	}
}

// Names are the names of nodes.
func Names(nodes []corev1.Node) []string {
	var all []string
	for i := range nodes {
		all = append(all, nodes[i].Name)
	}
	return all
}

// Measure runs a benchmark under the lock, outside of any migration. The result may be there along with an error.
func Measure(ctx context.Context, a *app.App, b *benched.Bench) (result *bench.Result, err error) {
	count(ctx, a, b)
	err = agents.With(ctx, a, b.Client, "bench", agents.Benchmarking, func(ctx context.Context,
		actor *kube.Actor) (err error) {
		b.Actor = actor
		result, err = b.Run(ctx)
		return err
	})
	if result != nil {
		result.Theseus = a.Version
	}
	return result, err
}

// Verdict is the error of a benchmark that ended with a result, or none; err is that of the measurements, or of the
// removal after them.
func Verdict(result *bench.Result, err error) error {
	hint := "what was measured before is above; lower --rate or --throughput, or look at the node first"
	switch {
	case result == nil || !result.Harmed:
		return err
	case err != nil: // what was made could not be removed
		return exit.Fail(exit.Stopped, cmp.Or(exit.HintOf(err), hint),
			"the load was stopped: %s; %w", result.Stopped, err)
	}
	return exit.Fail(exit.Stopped, hint, "the load was stopped: %s", result.Stopped)
}
