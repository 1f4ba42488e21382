package kind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// resolved says by which algorithm flags were resolved.
func (o Options) resolved() Flags {
	all := o.Flags
	all.Algorithm = cmp.Or(all.Algorithm, flagset.Algorithm)
	return all
}

// Begin is a plan without its steps: what every plan says of itself.
func Begin(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, options Options, strategy, reason string) *Plan {
	return &Plan{
		APIVersion: v1alpha1.APIVersion, Kind: Document,
		Name: options.Name, Theseus: options.Version, MadeAt: metav1.NewTime(options.Now.UTC().Truncate(time.Second)),
		Flags: options.resolved(), Cluster: describe(snapshot), Change: change, Strategy: strategy,
		Reason: reason, Window: options.Window,
	}
}

func describe(snapshot *cluster.Snapshot) Cluster {
	c := Cluster{UID: snapshot.UID, Kubernetes: snapshot.Kubernetes, APIServers: snapshot.APIServers,
		Fingerprint: Fingerprint(snapshot), TakenAt: snapshot.TakenAt}
	for i := range snapshot.Nodes {
		c.Nodes = append(c.Nodes, snapshot.Nodes[i].Name)
	}
	return c
}

// CountedWaves divides the nodes as the change counts them, or refuses to.
func CountedWaves(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec) ([]joint.Wave, error) {
	if n := change.MaxParallel; n < 0 || n > step.MostAtOnce {
		return nil, Refuse(fmt.Sprintf("give a number from 1 to %d, or leave it out", step.MostAtOnce),
			"--max-parallel %d is out of bounds", n)
	}
	label := change.DomainLabel
	if label != "" && !slices.ContainsFunc(snapshot.Nodes,
		func(node corev1.Node) bool { return node.Labels[label] != "" }) {
		return nil, Refuse("kubectl get nodes --show-labels; leave it out for "+joint.DomainLabel(""),
			"--domain-label %s: no node has this label", label)
	}
	waves, err := joint.Waves(snapshot, change.Waves, label)
	if err != nil {
		return nil, Refuse("end --waves with 0, which means all nodes that remain", "%v", err)
	}
	return waves, nil
}

// WavesOf is how plans write waves.
func WavesOf(waves []joint.Wave) []Wave {
	all := make([]Wave, 0, len(waves))
	for _, w := range waves {
		all = append(all, Wave(w))
	}
	return all
}

// WorkloadsOf is how plans write workloads.
func WorkloadsOf(workloads []joint.Workload) []Workload {
	all := make([]Workload, 0, len(workloads))
	for _, w := range workloads {
		all = append(all, Workload{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, Pods: w.Pods,
			Treatment: w.Treatment, Budget: w.Budget, Note: w.Note})
	}
	return all
}

// Stays is what comes where the network keeps all that checks look at; nil where the change asks for more than that.
func Stays(r *Request, source *cni.Installation) (*cni.Installation, error) {
	if r.Change.To != "" || r.Change.Strategy != "" {
		return nil, nil
	}
	same := *source
	return &same, nil
}

// Named is a network with its version and ranges, for people.
func Named(network cni.Installation) string {
	return strings.TrimSpace(network.Title()+" "+network.Version) + " (" + strings.Join(network.PodCIDRs, ", ") + ")"
}
