package execute

import (
	"context"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// mirrorSummary prints the gates' requests at the end of a run, and which names were left alone because others changed
// them.
func mirrorSummary(ctx context.Context, a *app.App, r *run.Run, outcome engine.Outcome) error {
	records, err := journal.NewCluster(r.Client.Dynamic, r.Plan.Name).Records(ctx)
	if err != nil {
		fmt.Fprintf(a.Err, "warning: no summary: %v\n", err)
		return nil
	}
	left := dns.LeftAlone(records)
	for _, text := range left {
		fmt.Fprintf(a.Err, "note: left alone because someone else changed it: %s\n", text)
	}
	board := view.NewNameBoard(r.Plan)
	for _, record := range records {
		board.Take(record, nil)
	}
	if a.Output != "json" {
		fmt.Fprintf(a.Out, "%s: the gates sent %s requests, %d failed; theseus mirror status shows where the names "+
			"are\n", r.Plan.Name, cluster.Thousands(board.Asked), board.Lost)
	}
	if len(left) > 0 && outcome.End != engine.EndDone {
		return exit.Fail(exit.NeedsPerson, "check the names that were left alone",
			"%s: %s", outcome.End, exit.Cause(outcome.Cause))
	}
	return nil
}

// Summary prints the report's summary at the end of a run.
func Summary(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) error {
	dir, err := statedir.Of(p.Name)
	if err != nil {
		return err
	}
	input, err := run.ReportInput(ctx, client, p, dir, func(text string) { fmt.Fprintln(a.Err, "warning: "+text) })
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\n%s\n`theseus report -o report.html` shows every path\n", report.Text(report.Build(input)))
	return nil
}
