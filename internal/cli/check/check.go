package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/changeflags"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// NewCommand makes the command theseus check.
func NewCommand(a *app.App) *cobra.Command {
	var from, only, skip []string
	var list, load bool
	var change changeflags.Flags
	command := &cobra.Command{
		Use:   "check",
		Short: "Find what a change would break, before you make it",
		Long: "Runs the checks on the cluster, or on --from files. A check without its evidence " +
			"reports \"not checked\", and\n" +
			"never passes. -o text, json, sarif, junit, html (with the BGP graph before and " +
			"after the change), or svg:\n" +
			"only the graph.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if list && a.Output == "json" {
				return preflight.ListJSON(a.Out, preflight.All())
			}
			if list {
				return a.Printed(func(w io.Writer) error { return preflight.List(w, preflight.All()) })
			}
			spec, err := change.Resolve(command)
			if err != nil {
				return err
			}
			skipped, err := changeflags.Reasons("skip", skip)
			if err != nil {
				return err
			}
			options := survey.Options(spec)
			options.Only, options.Skip = only, skipped
			switch {
			case load && len(only) > 0:
				return exit.Fail(exit.Usage, "theseus check --load, or --only with IDs such as load/drops",
					"--load and --only cannot be combined: --load selects the checks load/* and ipam/exhaustion")
			case load && len(from) == 0 && spec.AgentImage == "":
				return exit.Fail(exit.Usage,
					"theseus check --load --agent-image IMAGE, or --from a snapshot with --nodes",
					"--load installs Theseus' agent on every node, and no agent image is set")
			case load:
				options.Only = []string{"load", "ipam/exhaustion"}
			}
			return answer(command.Context(), a, from, spec, options, load)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&from, "from", nil,
		"snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input")
	flags.StringSliceVar(&only, "only", nil, "run only these checks: IDs or topics")
	flags.StringArrayVar(&skip, "skip", nil, "ID=REASON: leave a check out, and record why (repeatable)")
	flags.BoolVar(&list, "list", false, "list the checks")
	flags.BoolVar(&load, "load", false,
		"run only the checks of load and of free addresses: would a busier network break? On a running cluster, "+
			"Theseus' agent is installed, reads every node's counters, and is removed")
	change.Register(command)
	change.RegisterWhatIf(command)
	return usage.Takes(command, "json", "sarif", "junit", "html", "svg")
}

func answer(ctx context.Context, a *app.App, from []string, change v1alpha1.ChangeSpec,
	options preflight.Options, load bool) error {
	var checked propose.Checked
	var err error
	if load && len(from) == 0 {
		checked, err = survey.CheckNodes(ctx, a, change, options)
	} else {
		checked, err = survey.Check(ctx, a, from, change, options)
	}
	if err != nil {
		return err
	}
	pass, refused := checked.Pass, checked.Refused
	result, err := withPlan(ctx, a, from, checked, options)
	if err != nil {
		return err
	}
	if err := plan.UnderWay(pass.Snapshot); err != nil && len(options.Only) == 0 {
		return exit.Fail(exit.Failed, exit.HintOf(err)+"; to run some checks anyway, name them with --only", "%w", err)
	}
	for _, found := range drivers.All().Detect(pass.Snapshot) {
		network := finding.Network{Name: cmp.Or(found.As, found.CNI), Version: found.Version, Problems: found.Problems}
		if found.HasAgent() {
			network.Agent = found.Agent.String()
		}
		result.Networks = append(result.Networks, network)
	}
	if load {
		result.Addresses = cni.AddressesOf(pass.Snapshot, pass.Found)
	}
	for _, entry := range options.Unused(result) {
		fmt.Fprintf(a.Err, "note: accepted, but not found any more: %s %s (%s)\n",
			entry.ID, entry.Subject, entry.Reason)
	}
	switch a.Output {
	case "svg":
		err = drawGraph(a, pass)
	case "html":
		err = printPage(a, pass, result)
	default:
		err = printFindings(a, result, options.Choose(preflight.All()))
	}
	if err != nil {
		return err
	}
	switch {
	case result.Blocks() && refused != nil:
		return exit.Fail(exit.Blocked, exit.HintOf(refused), "%w", refused)
	case result.Blocks():
		return exit.Quiet(exit.Blocked)
	}
	return refused
}

// withPlan makes a plan for the checks that need one, and adds what they find. Without a plan they say why.
func withPlan(ctx context.Context, a *app.App, from []string, checked propose.Checked,
	options preflight.Options) (finding.Result, error) {
	pass := checked.Pass
	needed := slices.ContainsFunc(options.Choose(preflight.All()), func(c check.Check) bool {
		return slices.Contains(c.Needs, "plan")
	})
	if !needed || pass.Change.Flag != "" { // the plan of a rollout needs its source
		return checked.Result, nil
	}
	p, err := plan.Make(pass.Snapshot, pass.Change, drivers.All(), nil,
		plan.Options{Version: a.Version, Now: time.Now(), Manifest: pass.Manifest})
	if err != nil {
		pass.NoPlan = err.Error()
	} else if err := survey.AddPlan(ctx, a, from, pass, p.Steps); err != nil {
		return checked.Result, err
	}
	result, _ := preflight.Planned(checked.Result, pass, options)
	return result, nil
}

func printFindings(a *app.App, result finding.Result, checks []check.Check) error {
	switch a.Output {
	case "", "text":
		style := preflight.Style{Color: terminal.Is(a.Out) && os.Getenv("NO_COLOR") == ""}
		return a.Printed(func(w io.Writer) error {
			if len(result.Addresses) > 0 {
				if err := cluster.WriteAddresses(w, result.Addresses); err != nil {
					return err
				}
				fmt.Fprintln(w)
			}
			return preflight.Text(w, result, style)
		})
	case "json":
		return preflight.JSON(a.Out, result)
	case "sarif":
		return preflight.SARIF(a.Out, result, checks, a.Version)
	case "junit":
		return preflight.JUnit(a.Out, result, checks)
	}
	return fmt.Errorf("no form %q", a.Output) // KnownOutput has refused others
}

// graphOf is the BGP graph by address family, before and after the change; why says why there is none.
func graphOf(pass *check.Pass) (rows []draw.Row, why string) {
	if !pass.Snapshot.UsesCalico() {
		return nil, "Calico is not in the input"
	}
	before := bgp.FromSnapshot(pass.Snapshot)
	for _, six := range []bool{false, true} {
		if !before.Speaks(six) {
			continue
		}
		row := draw.Row{Family: "IPv4", BeforeTitle: "today", Before: bgp.Build(before, six)}
		if six {
			row.Family = "IPv6"
		}
		large := row.Before == nil
		if pass.WhatIf != nil {
			row.After, row.AfterTitle = bgp.Build(bgp.FromSnapshot(pass.WhatIf.After), six), "after the change"
			large = large || row.After == nil
		}
		if large {
			return nil, "the BGPPeers would make millions of sessions"
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, "no node has an address"
	}
	return rows, ""
}

// drawGraph draws the BGP graph.
func drawGraph(a *app.App, pass *check.Pass) error {
	rows, why := graphOf(pass)
	if why != "" {
		return exit.Fail(exit.Failed, "the graph needs Nodes, BGPPeers and BGPConfigurations of Calico in the input: "+
			"theseus check --help", "there is no BGP graph to draw: %s", why)
	}
	return draw.SVG(a.Out, rows)
}

// printPage writes the findings, and the graph if there is one, as a page.
func printPage(a *app.App, pass *check.Pass, result finding.Result) error {
	rows, _ := graphOf(pass)
	page, err := report.Findings(result, rows)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(page)
	return err
}
