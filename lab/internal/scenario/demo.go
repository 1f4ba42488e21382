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

	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// LossError says that clients lost requests, or that a denied path let some through.
type LossError struct {
	Failed, Leaked uint64
}

func (e *LossError) Error() string {
	return fmt.Sprintf("%s failed and %s got through", spec.Count(e.Failed, "request"), spec.Count(e.Leaked, "denied one"))
}

// What the names of the clients' kinds of requests begin with.
const (
	deniedPrefix = "denied" // policy denies them
	hostPrefix   = "host-"  // they come from a node's own network
)

// Demo moves a cluster to Calico with Theseus while clients use it.
func Demo(ctx context.Context, r *Rig) error {
	return r.underTraffic(ctx, cmp.Or(r.Network, "flannel"), func() error {
		r.Say("Theseus: look, plan, apply")
		return r.Migrate(ctx)
	})
}

// underTraffic changes a cluster on a network while clients use it, writes the report, and tells what they saw. Losses
// are a *LossError.
func (r *Rig) underTraffic(ctx context.Context, network string, change func() error) error {
	r.Say("a cluster of %s on %s", spec.Count(r.Nodes, "node"), network)
	if err := r.Up(ctx, network); err != nil {
		return err
	}
	r.Say("an application on it, and clients that use all of it, denied ones among them")
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

// lastLine says in one line what the report says.
func (r *Rig) lastLine(ctx context.Context) error {
	text, err := r.run(ctx, nil, nil, r.Theseus, "report", "--traffic", r.traffic(), "-o", "json")
	if err != nil {
		return err
	}
	line, err := inOneLine([]byte(text))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.Out, "\n%s\n", line)
	return err
}

// inOneLine sums up a report.
func inOneLine(report []byte) (string, error) {
	var model struct {
		Totals struct {
			Pods, Evicted, Restarts, Requests, Failed int
			ProbeGapMillis                            float64
		}
	}
	if err := json.Unmarshal(report, &model); err != nil {
		return "", fmt.Errorf("read the report: %w", err)
	}
	t := model.Totals
	return fmt.Sprintf("%s, %d made anew, %s, %s of %d, longest gap on a path %.0f ms", spec.Count(t.Pods, "pod"), t.Evicted,
		spec.Count(t.Restarts, "restart"), spec.Count(t.Failed, "failed request"), t.Requests, t.ProbeGapMillis), nil
}

// traffic is the file of what the clients counted.
func (r *Rig) traffic() string { return filepath.Join(r.Dir, "traffic.json") }

// Traffic deploys the workload and waits until its clients run. A failure before anything was changed says
// that the story would tell nothing.
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
		return fmt.Errorf("%s failed before anything was changed", spec.Count(before.Failed(), "request"))
	}
	return nil
}

// Migrate plans and applies the change to Calico.
func (r *Rig) Migrate(ctx context.Context) error {
	// One probe that a busy machine loses is to stand in the report, and not to turn the story around.
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
	_, err = r.Run(ctx, append([]string{"plan", "-o", plan}, change...)...)
	return plan, err
}

// looked are the flags for what was found by a look at the nodes, where the API does not tell enough: of a bridge it knows nothing, and of
// Weave Net not what comes through.
func (r *Rig) looked(ctx context.Context) ([]string, error) {
	if r.Network != "bridge" && r.Network != "weave" {
		return nil, nil
	}
	snapshot := filepath.Join(r.Dir, "snapshot.json")
	_, err := r.Run(ctx, "snapshot", "--nodes", "--agent-image", AgentImage, "-o", snapshot)
	return []string{"--from", snapshot}, err
}

// ChangeFlags write the manifest of Calico, and return the flags that ask for the change to it.
func (r *Rig) ChangeFlags(ctx context.Context) ([]string, error) {
	file, err := r.ManifestFile(ctx, "calico")
	if err != nil {
		return nil, err
	}
	lab, err := r.spec(ctx)
	if err != nil {
		return nil, err
	}
	// Three nodes share this machine's cores with their probes: half as many leave the rest its time.
	flags := []string{"--to", "calico", "--manifest", file, "--agent-image", AgentImage, "--probe-interval", "20ms"}
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

// spec tells the addresses of the running lab.
func (r *Rig) spec(ctx context.Context) (spec.Lab, error) {
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

// traffic is what clients of one kind saw, as theseus report takes it.
type traffic struct {
	Name             string  `json:"name"`
	Requests         uint64  `json:"requests"`
	Failed           uint64  `json:"failed"`
	LongestGapMillis float64 `json:"longestGapMillis"`
	Leaked           uint64  `json:"leaked"`
}

// keep writes what clients saw, for the report.
func (r *Rig) keep(kinds []traffic) error {
	data, err := json.Marshal(kinds)
	if err != nil {
		return err
	}
	return os.WriteFile(r.traffic(), data, 0o644)
}

// Report writes the report with what the clients saw, and prints that.
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
	r.Say("what the clients saw")
	return cost.Print(r.Out)
}

// Loss is the error of a cost that is not nothing.
func Loss(cost tally.Summary) error {
	failed, leaked := losses(cost)
	if failed == 0 && leaked == 0 {
		return nil
	}
	return &LossError{Failed: failed, Leaked: leaked}
}

// losses are the requests that failed, and the denied ones that got through.
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

// denied is how many requests were sent that policy denies.
func denied(cost tally.Summary) (sent uint64) {
	for kind, count := range cost.Kinds {
		if strings.HasPrefix(kind, deniedPrefix) {
			sent += count.Sent
		}
	}
	return sent
}
