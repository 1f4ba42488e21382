package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// newStatus makes the command theseus guard status.
func newStatus(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what a guard has measured until now: losses, marks, and what happened in the cluster",
		Long: "Shows since when a guard measures, how many probes were sent and lost, the longest gap, and " +
			"by time: gaps, marks, and\n" +
			"what happened in the cluster. If no process runs the guard, this look is kept in the " +
			"cluster: Kubernetes forgets its\n" +
			"Events after an hour, so look now and then. Of a guard that has ended, it shows what is kept.",
		Args: usage.None,
	}
	return chosen(a, usage.Takes(command, "json"), func(ctx context.Context, client *kube.Client,
		p *plan.Plan, state engine.State) error {
		return status(ctx, a, client, p, state)
	})
}

func status(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, state engine.State) error {
	l, err := looking(a, client, p)
	if err != nil {
		return err
	}
	var m report.Model
	var seen run.Seen
	var holder *journal.HeldError
	if err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		if m, seen, err = l.Report(ctx); err == nil {
			holder, err = migrations.Holder(ctx, a, client, state.End())
		}
		return err
	}); err != nil {
		return err
	}
	return show(a, p, engine.Judge(p.Steps, state, holder != nil), m, seen)
}

// lines is how many lines of the timeline are shown: the latest.
const lines = 20

// show prints the state of a guard.
func show(a *app.App, p *plan.Plan, stand engine.Standing, m report.Model, seen run.Seen) error {
	if a.Output == "json" {
		return json.NewEncoder(a.Out).Encode(map[string]any{"name": p.Name, "plan": p.Hash, "state": stand.Word,
			"since": m.Run.Begin, "evidence": seen, "moments": m.Moments, "newPods": m.NewPods, "samples": m.Samples,
			"missing": m.Verdict.Missing,
			"notes":   m.Verdict.Notes, "next": stand.Ways})
	}
	fmt.Fprintf(a.Out, "%s: %s -> %s, %s\n", p.Name, p.From(), p.To(), stand.Word)
	if !m.Run.Begin.IsZero() {
		fmt.Fprintf(a.Out, "since:  %s UTC (%s)\n", m.Run.Begin.UTC().Format(time.DateTime),
			step.Duration(m.Run.End.Sub(m.Run.Begin)).About())
	}
	fmt.Fprintf(a.Out, "probes: %s\n", seen)
	if text := m.NewPods.Text(); text != "" {
		fmt.Fprintln(a.Out, "new pods: "+text)
	}
	if text := m.Samples.Text(); text != "" {
		fmt.Fprintln(a.Out, "samples: "+text)
	}
	for i, one := range m.Moments[max(0, len(m.Moments)-lines):] {
		if n := len(m.Moments) - lines; i == 0 && n > 0 {
			fmt.Fprintf(a.Out, "%d earlier lines of the timeline are in `theseus guard report -o report.html`\n", n)
		}
		fmt.Fprintf(a.Out, "  %s  %s\n", m.When(one), one)
	}
	for _, text := range m.Verdict.Notes {
		fmt.Fprintln(a.Out, "note: "+text)
	}
	if stand.Ways != "" {
		fmt.Fprintln(a.Out, "next: "+stand.Ways)
	}
	return nil
}
