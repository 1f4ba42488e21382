package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/mirrored"
	"github.com/theseus-cni/theseus/internal/step"
)

// status is the result of mirror status.
type status struct {
	Name   string                 `json:"name"`
	Phase  engine.Phase           `json:"phase"`
	Step   string                 `json:"step,omitempty"`
	Title  string                 `json:"title,omitempty"`
	Number int                    `json:"number,omitempty"`
	Steps  int                    `json:"steps"`
	Cause  string                 `json:"cause,omitempty"`
	Names  []mirrored.Whereabouts `json:"names"`
	// Frozen names the frozen namespaces.
	Frozen []string `json:"frozen"`
	// Differ are the objects that differ on the mirror, and what copy would do to them.
	Differ []string `json:"differ"`
	InStep int      `json:"inStep"`
	// Torn is true if the copies were removed, so that nothing is compared. Unclear says why the comparison failed.
	Torn    bool   `json:"torn,omitempty"`
	Unclear string `json:"unclear,omitempty"`
}

// NewCommand makes the command theseus mirror status.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	return pair.Command(m, "status", "Show the phase, where the names point, and what differs now",
		"Reads the journal in the original, the zones and both clusters, and shows how far the "+
			"migration is, where every name\n"+
			"points according to its zone, whether deploys are stopped, and the differences between "+
			"mirror and original. It changes\n"+
			"nothing.",
		func(ctx context.Context, client *kube.Client, access mirror.Access, p *plan.Plan) error {
			return run(ctx, m, client, access, p)
		})
}

func run(ctx context.Context, m *clusters.Clusters, client *kube.Client, access mirror.Access, p *plan.Plan) error {
	_, state, err := migrations.Standing(ctx, client, p.Name)
	if err != nil {
		return err
	}
	pair, err := pair.Reach(ctx, m.App, access, p)
	if err != nil {
		return err
	}
	s := status{Name: p.Name, Phase: state.Phase, Step: state.Step, Steps: len(p.Steps), Cause: state.Cause,
		Frozen: []string{}, Differ: []string{}}
	if i := slices.IndexFunc(p.Steps, func(one step.Step) bool { return one.ID == state.Step }); i >= 0 {
		s.Number, s.Title = i+1, p.Steps[i].Title
	}
	if s.Names, err = pair.Places(ctx); err != nil {
		return err
	}
	current, err := (&replica.Freezer{Cluster: pair.Original, Note: m.Note}).Current(ctx)
	if err != nil {
		return err
	}
	if current != nil {
		s.Frozen = current.Namespaces
	}
	s.Torn = state.Phase == engine.PhaseDone && !p.Mirror.Keep
	if !s.Torn {
		if err := differ(ctx, pair, &s); err != nil {
			return err
		}
	}
	if m.Output == "json" {
		return terminal.WriteJSON(m.Out, s)
	}
	return show(m, &s)
}

// differ compares both clusters.
func differ(ctx context.Context, p *mirrored.World, s *status) error {
	copier, err := replica.NewCopier(p.Plan.Mirror.Copy, func(string) {})
	if err != nil {
		return err
	}
	copier.Original, copier.Mirror, copier.Planned = p.Original, p.Mirror, true
	pass, err := copier.Look(ctx)
	if err != nil {
		s.Unclear = err.Error()
		return nil
	}
	s.InStep = pass.Delta.InStep
	for _, one := range slices.Concat(append(slices.Clone(pass.Delta.Waves), pass.Delta.Deletes)...) {
		s.Differ = append(s.Differ, string(one.Verb)+" "+one.Key.String())
	}
	return nil
}

func show(m *clusters.Clusters, s *status) error {
	fmt.Fprintf(m.Out, "%s: %s", s.Name, s.Phase)
	if s.Number > 0 && s.Phase != engine.PhaseDone && s.Phase != engine.PhaseRolledBack {
		fmt.Fprintf(m.Out, ", step %d of %d: %s", s.Number, s.Steps, s.Title)
	}
	fmt.Fprintln(m.Out)
	if s.Cause != "" {
		fmt.Fprintf(m.Out, "cause: %s\n", s.Cause)
	}
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	counts := map[string]int{}
	for _, found := range s.Names {
		counts[found.At]++
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", found.At, found.Name, strings.Join(found.Records, ", "),
			strings.Join(found.Services, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "%s at the original, %d at the mirror",
		cluster.Count(counts["original"], "name"), counts["mirror"])
	for _, at := range []string{"both", "elsewhere"} {
		if counts[at] > 0 {
			fmt.Fprintf(m.Out, ", %d %s", counts[at], at)
		}
	}
	deploys := "deploys are not stopped"
	if len(s.Frozen) > 0 {
		deploys = "deploys are stopped in " + strings.Join(s.Frozen, ", ")
	}
	fmt.Fprintf(m.Out, "; %s\n", deploys)
	switch {
	case s.Torn:
		fmt.Fprintln(m.Out, "the copies on the mirror were removed")
		return nil
	case s.Unclear != "":
		fmt.Fprintf(m.Out, "the clusters could not be compared: %s\n", s.Unclear)
		return nil
	}
	const most = 10
	for _, text := range s.Differ[:min(len(s.Differ), most)] {
		fmt.Fprintf(m.Out, "differs: %s\n", text)
	}
	fmt.Fprintf(m.Out, "%d objects differ, %d are in step\n", len(s.Differ), s.InStep)
	return nil
}
