package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// LossError says that clients lost requests, or that denied requests were answered.
type LossError struct {
	Failed, Leaked uint64
}

func (e *LossError) Error() string {
	return fmt.Sprintf("%s failed and %s got through", spec.Count(e.Failed, "request"),
		spec.Count(e.Leaked, "denied one"))
}

// Prefixes of the names of the clients' kinds of requests.
const (
	deniedPrefix = "denied" // policy denies them
	hostPrefix   = "host-"  // they come from a node's own network
)

// Demo moves a cluster to another network with Theseus while clients use it.
func Demo(ctx context.Context, r *Rig) error {
	return r.underTraffic(ctx, cmp.Or(r.Network, "flannel"), func() error {
		r.Say("Theseus: check, plan, apply")
		start := time.Now()
		err := r.Migrate(ctx)
		r.took = time.Since(start)
		return err
	})
}

// underTraffic changes a cluster on a network while clients use it, writes the report, and prints the clients' results.
// Losses are a *LossError.
func (r *Rig) underTraffic(ctx context.Context, network string, change func() error) error {
	r.Say("a cluster of %s on %s", spec.Count(r.Nodes, "node"), network)
	if err := r.Up(ctx, network); err != nil {
		return err
	}
	if err := r.Load(ctx, r.Images); err != nil {
		return err
	}
	r.Say("an application, and clients of all its servers, including denied ones")
	if err := r.Traffic(ctx); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	cost, err := r.Steady(ctx)
	if err != nil {
		return err
	}
	if err := r.Report(ctx, cost); err != nil {
		return err
	}
	if err := r.lastLine(ctx); err != nil {
		return err
	}
	return Loss(cost)
}

// lastLine sums up the report in one line.
func (r *Rig) lastLine(ctx context.Context) error {
	text, err := r.run(ctx, nil, nil, r.Theseus, "report", "--traffic", r.traffic(), "-o", "json")
	if err != nil {
		return err
	}
	line, err := inOneLine([]byte(text))
	if err != nil {
		return err
	}
	if r.took > 0 {
		line += fmt.Sprintf(", in %s", r.took.Round(time.Second))
	}
	_, err = fmt.Fprintf(r.Out, "\n%s\n", line)
	return err
}

// inOneLine sums up a report in one line.
func inOneLine(report []byte) (string, error) {
	var model struct {
		Totals struct {
			Pods, Evicted, Restarts, Requests, Failed, Leaked int
			ProbeGapMillis                                    float64
		}
	}
	if err := json.Unmarshal(report, &model); err != nil {
		return "", fmt.Errorf("read the report: %w", err)
	}
	t := model.Totals
	return fmt.Sprintf("%s, %d recreated, %s, %s of %d, %s answered, longest gap on a path %.0f ms",
		spec.Count(t.Pods, "pod"), t.Evicted, spec.Count(t.Restarts, "restart"), spec.Count(t.Failed, "failed request"),
		t.Requests, spec.Count(t.Leaked, "denied one"), t.ProbeGapMillis), nil
}

// traffic is the file with the clients' results.
func (r *Rig) traffic() string { return filepath.Join(r.Dir, "traffic.json") }

// Traffic deploys the workload and waits until its clients run. A failure before the change means
// that the story would prove nothing.
func (r *Rig) Traffic(ctx context.Context) error {
	if err := r.Deploy(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	before, err := r.Steady(ctx)
	if err != nil {
		return err
	}
	if before.Failed() > 0 {
		before.Print(r.Out) //nolint:errcheck // for the reader only
		return fmt.Errorf("%s failed before the change", spec.Count(before.Failed(), "request"))
	}
	return nil
}

// Migrate plans and applies the change.
func (r *Rig) Migrate(ctx context.Context) error {
	// A probe lost by a busy machine should be in the report, but not cause a rollback.
	r.Flags = append(r.Flags, "--max-lost", "20")
	plan, err := r.Plan(ctx)
	if err != nil {
		return err
	}
	_, err = r.Run(ctx, "apply", plan, "--yes")
	return err
}

// Plan checks, plans, and returns the plan's file.
func (r *Rig) Plan(ctx context.Context) (string, error) {
	change, err := r.ChangeFlags(ctx)
	if err != nil {
		return "", err
	}
	looked, err := r.looked(ctx)
	if err != nil {
		return "", err
	}
	change = append(change, looked...)
	if _, err := r.Run(ctx, append([]string{"check"}, change...)...); err != nil {
		return "", err
	}
	plan := filepath.Join(r.Dir, "plan.yaml")
	if r.Window != "" {
		change = append(change, "--window", r.Window)
	}
	_, err = r.Run(ctx, append([]string{"plan", "-o", plan}, change...)...)
	return plan, err
}

// looked are the flags for a snapshot of the nodes, if the API does not have enough facts: it has none about a bridge,
// and not the addresses of Weave Net.
func (r *Rig) looked(ctx context.Context) ([]string, error) {
	if r.Network != "bridge" && r.Network != "weave" {
		return nil, nil
	}
	snapshot := filepath.Join(r.Dir, "snapshot.json")
	_, err := r.Run(ctx, "snapshot", "--nodes", "--agent-image", AgentImage, "-o", snapshot)
	return []string{"--from", snapshot}, err
}

// ChangeFlags writes the manifest of the target, and returns the flags of the change to it.
func (r *Rig) ChangeFlags(ctx context.Context) ([]string, error) {
	to, values := cmp.Or(r.To, "calico"), []string(nil)
	if to == network.Cilium {
		values = SocketLB
	}
	file, err := r.ManifestFile(ctx, to, values...)
	if err != nil {
		return nil, err
	}
	lab, err := r.Spec(ctx)
	if err != nil {
		return nil, err
	}
	// Three nodes and their probers share this machine's cores: half the probe rate leaves time for the rest.
	image := []string{"--agent-image", AgentImage}
	if r.Registry != "" {
		image = []string{"--image-registry", r.Registry}
	}
	flags := append(image, "--to", to, "--manifest", file, "--probe-interval", "20ms")
	if r.Strategy != "adopt" { // adopted pods keep their addresses
		flags = append(flags, "--pod-cidr", lab.NewPodCIDR().String())
	}
	if r.Strategy != "" {
		flags = append(flags, "--strategy", r.Strategy)
	}
	return append(flags, r.Flags...), nil
}

// AgentImage is the name under which the lab's nodes hold the agent.
const AgentImage = "localhost:1/theseus-agent:dev"

// Spec is the spec of the running lab, for its addresses.
func (r *Rig) Spec(ctx context.Context) (spec.Lab, error) {
	text, err := r.run(ctx, nil, nil, r.Lab, "status", "-o", "json")
	if err != nil {
		return spec.Lab{}, err
	}
	var labs []struct {
		Name  string `json:"name"`
		Index int    `json:"index"`
	}
	if err := json.Unmarshal([]byte(text), &labs); err != nil {
		return spec.Lab{}, err
	}
	for _, lab := range labs {
		if lab.Name == r.Name {
			return spec.Lab{Name: lab.Name, Index: lab.Index}, nil
		}
	}
	return spec.Lab{}, fmt.Errorf("lab %s is not up", r.Name)
}

// traffic has the results of clients of one kind, in the format of theseus report.
type traffic struct {
	Name             string  `json:"name"`
	Requests         uint64  `json:"requests"`
	Failed           uint64  `json:"failed"`
	LongestGapMillis float64 `json:"longestGapMillis"`
	Leaked           uint64  `json:"leaked"`
}

// keep writes the clients' results, for the report.
func (r *Rig) keep(kinds []traffic) error {
	data, err := json.Marshal(kinds)
	if err != nil {
		return err
	}
	return os.WriteFile(r.traffic(), data, 0o644)
}

// Report writes the report with the clients' results, and prints the results.
func (r *Rig) Report(ctx context.Context, cost tally.Summary) error {
	var kinds []traffic
	for kind, count := range cost.Kinds {
		one := traffic{Name: kind, Requests: count.Sent, Failed: count.Failed, LongestGapMillis: count.LongestGap}
		if strings.HasPrefix(kind, deniedPrefix) {
			one.Failed, one.Leaked = 0, count.Failed
		}
		kinds = append(kinds, one)
	}
	slices.SortFunc(kinds, func(a, b traffic) int { return strings.Compare(a.Name, b.Name) })
	if err := r.keep(kinds); err != nil {
		return err
	}
	if _, err := r.Run(ctx, "report", "--traffic", r.traffic(), "-o", filepath.Join(r.Dir, "report.html")); err != nil {
		return err
	}
	r.Say("results of the clients")
	return cost.Print(r.Out)
}

// Loss is a *LossError if a cost has losses or leaks, else nil.
func Loss(cost tally.Summary) error {
	failed, leaked := losses(cost)
	if failed == 0 && leaked == 0 {
		return nil
	}
	return &LossError{Failed: failed, Leaked: leaked}
}

// losses are the failed requests, and the denied ones that were answered.
func losses(cost tally.Summary) (failed, leaked uint64) {
	for kind, count := range cost.Kinds {
		if strings.HasPrefix(kind, deniedPrefix) {
			leaked += count.Failed
		} else {
			failed += count.Failed
		}
	}
	return failed, leaked
}

// denied is how many requests were sent on denied paths.
func denied(cost tally.Summary) (sent uint64) {
	for kind, count := range cost.Kinds {
		if strings.HasPrefix(kind, deniedPrefix) {
			sent += count.Sent
		}
	}
	return sent
}
