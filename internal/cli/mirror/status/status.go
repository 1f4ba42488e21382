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

// status is what mirror status says.
type status struct {
	Name   string                 `json:"name"`
	Phase  engine.Phase           `json:"phase"`
	Step   string                 `json:"step,omitempty"`
	Title  string                 `json:"title,omitempty"`
	Number int                    `json:"number,omitempty"`
	Steps  int                    `json:"steps"`
	Cause  string                 `json:"cause,omitempty"`
	Names  []mirrored.Whereabouts `json:"names"`
	// Frozen names the namespaces that are.
	Frozen []string `json:"frozen"`
	// Differ are the objects that are not on the mirror as they should be, and what copy would do to them.
	Differ []string `json:"differ"`
	InStep int      `json:"inStep"`
	// Torn says that the copies were taken down, so nothing is compared. Unclear says why it is not known what differs.
	Torn    bool   `json:"torn,omitempty"`
	Unclear string `json:"unclear,omitempty"`
}

// NewCommand makes the command theseus mirror status.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	return pair.Command(m, "status", "Which phase, which names are where, and what differs now",
		"Reads the journal in the original, the zones and both clusters, and says how far the migration is, where every name\n"+
			"points by the zone itself, whether deploys are stopped, and what on the mirror is not as on the original. Nothing is\n"+
			"changed.",
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
	s := status{Name: p.Name, Phase: state.Phase, Step: state.Step, Steps: len(p.Steps), Cause: state.Cause, Frozen: []string{}, Differ: []string{}}
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

// differ looks at both clusters.
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
		fmt.Fprintf(m.Out, "because: %s\n", s.Cause)
	}
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	counts := map[string]int{}
	for _, found := range s.Names {
		counts[found.At]++
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", found.At, found.Name, strings.Join(found.Records, ", "), strings.Join(found.Services, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "%s at the original, %d at the mirror", cluster.Count(counts["original"], "name"), counts["mirror"])
	for _, at := range []string{"both", "elsewhere"} {
		if counts[at] > 0 {
			fmt.Fprintf(m.Out, ", %d %s", counts[at], at)
		}
	}
	deploys := "deploys go on"
	if len(s.Frozen) > 0 {
		deploys = "deploys are stopped in " + strings.Join(s.Frozen, ", ")
	}
	fmt.Fprintf(m.Out, "; %s\n", deploys)
	switch {
	case s.Torn:
		fmt.Fprintln(m.Out, "what was copied to the mirror was taken down")
		return nil
	case s.Unclear != "":
		fmt.Fprintf(m.Out, "what differs is not known: %s\n", s.Unclear)
		return nil
	}
	const most = 10
	for _, text := range s.Differ[:min(len(s.Differ), most)] {
		fmt.Fprintf(m.Out, "differs: %s\n", text)
	}
	fmt.Fprintf(m.Out, "%d objects differ, %d are in step\n", len(s.Differ), s.InStep)
	return nil
}
