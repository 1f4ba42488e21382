package diff

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// NewCommand makes the command theseus flags diff.
func NewCommand(a *app.App) *cobra.Command {
	var from []string
	command := &cobra.Command{
		Use:   "diff A B",
		Short: "Show what changes on every node between two states: values, restarts, how many at once",
		Long: "Each of A and B is a flag set, a file of Kubernetes objects that override the cluster's, a " +
			"snapshot, or \"cluster\"\n" +
			"for the cluster itself. The cluster is that of --from, or of the current kubeconfig; " +
			"two snapshots need none.\n" +
			"Exit code 3 means that B has settings without effect or with invalid values.\n\n" + flagsource.Help,
		Args: usage.Exactly(2, "two states: flag sets, files of objects, snapshots, or the word cluster"),
		RunE: func(command *cobra.Command, args []string) error {
			return run(command.Context(), a, args[0], args[1], from)
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, flagsource.FromHelp)
	return command
}

// state is one side of a comparison.
type state struct {
	fleet    *setting.Fleet
	set      *flagset.Set
	values   *setting.Evaluated
	bound    []setting.Bound
	findings []finding.Finding
}

func run(ctx context.Context, a *app.App, one, two string, from []string) error {
	var base *setting.Fleet
	cluster := func() (*setting.Fleet, error) {
		if base == nil {
			snapshot, err := survey.See(ctx, a, from)
			if err != nil {
				return nil, err
			}
			base = setting.Read(snapshot, nil)
		}
		return base, nil
	}
	now := time.Now().Unix()
	before, err := stateOf(ctx, a, one, cluster, now, nil)
	if err != nil {
		return err
	}
	after, err := stateOf(ctx, a, two, cluster, now, before)
	if err != nil {
		return err
	}
	told := difference{Difference: setting.Diff(before.fleet, after.fleet), Flags: changedFlags(before, after)}
	told.Findings = append(append([]finding.Finding{}, after.findings...), setting.LintEdit(told.Difference)...)
	told.Findings = append(told.Findings, rollout.NotRolledOut(before.fleet, told.Changes)...)
	if err := printDifference(a, told); err != nil {
		return err
	}
	if finding.NewResult(told.Findings, nil).Blocks() {
		return exit.Quiet(exit.Blocked)
	}
	return nil
}

// difference is the result of diff.
type difference struct {
	Flags []flagChange `json:"flags"`
	setting.Difference
	Findings []finding.Finding `json:"findings"`
}

// flagChange is a flag whose value changes on some nodes.
type flagChange struct {
	Flag  string   `json:"flag"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Nodes []string `json:"nodes"`
}

// stateOf makes the state that an argument names. Flags that the other state has evaluated are not evaluated again.
func stateOf(ctx context.Context, a *app.App, text string, cluster func() (*setting.Fleet, error), now int64,
	other *state) (*state, error) {
	if text == "cluster" {
		fleet, err := cluster()
		return &state{fleet: fleet}, err
	}
	manifest, isManifest, err := flagsource.Objects(text)
	if err != nil {
		return nil, err
	}
	if isManifest {
		if whole(manifest) {
			snapshot, err := survey.See(ctx, a, []string{text})
			if err != nil {
				return nil, err
			}
			return &state{fleet: setting.Read(snapshot, nil)}, nil
		}
	}
	base, err := cluster()
	if err != nil {
		return nil, err
	}
	if isManifest {
		return &state{fleet: base.After(manifest)}, nil
	}
	set, err := flagsource.Load(ctx, a, text)
	if err != nil {
		return nil, err
	}
	s := &state{set: set}
	s.bound, s.findings = base.Catalogue().Bind(set)
	var known *setting.Evaluated
	if other != nil && other.set != nil {
		known = other.values.Without(flagset.Changed(other.set, set))
	}
	s.values = base.Evaluate(set, set.Keys(), now, known)
	var more []finding.Finding
	s.fleet, more = base.With(s.bound, s.values)
	s.findings = append(s.findings, more...)
	return s, nil
}

// whole reports whether objects are a cluster of their own: they include nodes, or are a snapshot.
func whole(objects []unstructured.Unstructured) bool {
	for _, o := range objects {
		if o.GetKind() == "Node" || o.GetKind() == "Snapshot" {
			return true
		}
	}
	return false
}

// changedFlags compares two flag sets node by node; none if a side is not a flag set.
func changedFlags(before, after *state) []flagChange {
	changes := []flagChange{}
	if before.set == nil || after.set == nil {
		return changes
	}
	nodes := after.fleet.Nodes()
	for _, key := range flagset.Changed(before.set, after.set) {
		one, two := before.values.Of(key), after.values.Of(key)
		at := map[[2]string]int{}
		for n, node := range nodes {
			pair := [2]string{flagsource.Shown(one, n), flagsource.Shown(two, n)}
			if pair[0] == pair[1] {
				continue
			}
			i, ok := at[pair]
			if !ok {
				i = len(changes)
				at[pair] = i
				changes = append(changes, flagChange{Flag: key, From: pair[0], To: pair[1]})
			}
			changes[i].Nodes = append(changes[i].Nodes, node)
		}
	}
	return changes
}

func printDifference(a *app.App, d difference) error {
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, d)
	}
	for _, c := range d.Flags {
		fmt.Fprintf(a.Out, "flag %s: %s -> %s on %d of %d nodes (%s)\n",
			c.Flag, c.From, c.To, len(c.Nodes), d.Nodes, usage.Few(c.Nodes))
	}
	for _, c := range d.Changes {
		fmt.Fprintf(a.Out, "%s: %s -> %s on %d of %d nodes (%s)\n  by %s: %s, %s\n",
			c.Knob, flagsource.OrNone(c.From), flagsource.OrNone(c.To), len(c.Nodes), d.Nodes, usage.Few(c.Nodes),
			c.Why, c.Effect, atOnce(c.Trigger, c.AtOnce))
		if c.Refuses != "" {
			fmt.Fprintf(a.Out, "  refuses: %s\n", c.Refuses)
		}
	}
	for _, p := range d.Processes {
		fmt.Fprintf(a.Out, "%s: %s on %s, %s\n", p.Name, p.Effect, cluster.Count(p.Nodes, "node"),
			atOnce(p.Trigger, p.AtOnce))
	}
	for _, list := range []struct {
		title string
		nodes []string
	}{{"joined", d.Joined}, {"left", d.Left}} {
		if len(list.nodes) > 0 {
			fmt.Fprintf(a.Out, "nodes that %s: %s\n", list.title, usage.Few(list.nodes))
		}
	}
	if len(d.Flags)+len(d.Changes)+len(d.Idle) == 0 {
		fmt.Fprintf(a.Out, "no node changes, of %d\n", d.Nodes)
	}
	return survey.PrintFindings(a, d.Findings)
}

func atOnce(trigger setting.Trigger, n int) string {
	if trigger == setting.ByHand || n == 0 {
		return "at its next restart"
	}
	if n == 1 {
		return "one at a time"
	}
	return fmt.Sprintf("%d at once", n)
}
