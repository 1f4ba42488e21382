package report

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// NewCommand makes the command theseus report.
func NewCommand(a *app.App) *cobra.Command {
	var traffic []string
	command := migrations.Command(a, "report", "Show what a migration cost: losses, gaps and restarts",
		"Makes the report of a migration from its journal in the cluster and the gathered evidence:\n"+
			"-o report.html writes one page that works offline, -o report.json the same data for programs; without\n"+
			"-o, it prints a summary.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return a.Patiently(ctx, app.Glance, func(ctx context.Context) error {
				p, _, err := journal.Load(ctx, client.Dynamic, name)
				if err != nil {
					return err
				}
				return Show(ctx, a, client, p, traffic)
			})
		})
	command.Flags().StringSliceVar(&traffic, "traffic", nil,
		"JSON files with results of your own clients (see docs/report.md)")
	return command
}

// Show prints the report of a plan's run, or writes it to the file that -o names. traffic are files with results of
// clients.
func Show(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, traffic []string) error {
	return ShowWith(ctx, a, client, p, traffic, nil)
}

// ShowWith is Show with what other machines measured.
func ShowWith(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, traffic []string,
	elsewhere []report.Elsewhere) error {
	dir, err := statedir.Of(p.Name)
	if err != nil {
		return err
	}
	input, err := run.ReportInput(ctx, client, p, dir, func(text string) { fmt.Fprintln(a.Err, "warning: "+text) })
	if err != nil {
		return err
	}
	var end time.Time
	if state, err := engine.Replay(input.Records); err == nil { // else the report says so
		end = state.End()
	}
	holder, err := migrations.Holder(ctx, a, client, end)
	if err != nil {
		return err
	}
	if holder != nil {
		input.Held = holder.Error()
	}
	for _, file := range traffic {
		var seen []report.Traffic
		if err := infile.ReadJSON(file, document.MaxInput, &seen); err != nil {
			return exit.Fail(exit.Usage, "see docs/report.md for the format",
				"%s is not a list of clients' results: %w", file, err)
		}
		input.Traffic = append(input.Traffic, seen...)
	}
	input.Elsewhere = elsewhere
	model := report.Build(input)
	var data []byte
	switch {
	case a.Output == "" || a.Output == "text":
		_, err := fmt.Fprint(a.Out, report.Text(model))
		return err
	case a.Output == "json" || a.Output == "-" || strings.HasSuffix(a.Output, ".json"):
		data, err = report.JSON(model)
	case strings.HasSuffix(a.Output, ".html"):
		data, err = report.HTML(model)
	default:
		return exit.Fail(exit.Usage, "name a file that ends in .html or .json",
			"a report cannot be written to %q", a.Output)
	}
	if err != nil {
		return err
	}
	if a.Output == "json" || a.Output == "-" {
		_, err = a.Out.Write(data)
		return err
	}
	if err := outfile.Write(a.Output, printable.Text(data)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s\nthe report is %s\n", strings.SplitN(report.Text(model), "\n", 2)[0], a.Output)
	return nil
}
