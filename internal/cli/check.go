package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/network/drivers"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/report"
)

func (a *app) checkCommand() *cobra.Command {
	var from, only, skip []string
	var list bool
	var change changeFlags
	command := &cobra.Command{
		Use:   "check",
		Short: "Find what a change would break, before it is made",
		Long: "Runs the checks on the cluster, or on --from files. A check that lacks its evidence says so and\n" +
			"never passes. -o text, json, sarif, junit, html (with the BGP graph before and after the change), or svg:\n" +
			"the graph alone.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			if list && a.output == "json" {
				return preflight.ListJSON(a.Out, preflight.All())
			}
			if list {
				return a.printed(func(w io.Writer) error { return preflight.List(w, preflight.All()) })
			}
			spec, err := change.resolve(command)
			if err != nil {
				return err
			}
			skipped, err := reasons("skip", skip)
			if err != nil {
				return err
			}
			options := checkOptions(spec)
			options.Only, options.Skip = only, skipped
			return a.check(command.Context(), from, spec, options)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&from, "from", nil, "snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input")
	flags.StringSliceVar(&only, "only", nil, "run these checks alone: ids or topics")
	flags.StringArrayVar(&skip, "skip", nil, "ID=REASON: leave a check out, and record why (repeatable)")
	flags.BoolVar(&list, "list", false, "list the checks")
	change.register(command)
	change.registerWhatIf(command)
	return takes(command, "json", "sarif", "junit", "html", "svg")
}

func (a *app) check(ctx context.Context, from []string, change v1alpha1.ChangeSpec, options preflight.Options) error {
	pass, result, refused, err := a.preflight(ctx, from, change, options)
	if err != nil {
		return err
	}
	if err := plan.UnderWay(pass.Snapshot); err != nil && len(options.Only) == 0 {
		return fail(exitFailed, hintOf(err)+"; to run checks all the same, name them: --only", "%w", err)
	}
	for _, found := range drivers.All().Detect(pass.Snapshot) {
		network := finding.Network{Name: found.CNI, Version: found.Version, Problems: found.Problems}
		if found.HasAgent() {
			network.Agent = found.Agent.String()
		}
		result.Networks = append(result.Networks, network)
	}
	for _, entry := range options.Unused(result) {
		fmt.Fprintf(a.Err, "note: accepted and not found any more: %s %s (%s)\n", entry.ID, entry.Subject, entry.Reason)
	}
	switch a.output {
	case "svg":
		err = a.drawGraph(pass)
	case "html":
		err = a.printPage(pass, result)
	default:
		err = a.printFindings(result, options.Choose(preflight.All()))
	}
	if err != nil {
		return err
	}
	switch {
	case result.Blocks() && refused != nil:
		return fail(exitBlocked, hintOf(refused), "%w", refused)
	case result.Blocks():
		return quietExit(exitBlocked)
	}
	return refused
}

// preflight gathers the evidence for checks, and runs them on it. refused says why the network to come could not be
// among the evidence.
func (a *app) preflight(ctx context.Context, from []string, change v1alpha1.ChangeSpec, options preflight.Options) (pass *check.Pass, result finding.Result, refused, err error) {
	if err := options.Validate(preflight.All()); err != nil {
		return nil, result, nil, fail(exitUsage, "theseus check --list", "%w", err)
	}
	snapshot, err := a.see(ctx, from)
	if err != nil {
		return nil, result, nil, err
	}
	objects, err := readManifest(change.Manifest)
	if err != nil {
		return nil, result, nil, err
	}
	if err := plan.Possible(snapshot, change, drivers.All(), objects); err != nil {
		return nil, result, nil, err
	}
	chosen, why := plan.Chosen(snapshot, change, drivers.All(), objects)
	if pass, refused = passOf(snapshot, chosen, objects); refused != nil && why != nil {
		refused = why // without a range for pods no network comes, and this is why they need one
	}
	if pass.WhatIf, err = whatif.Apply(snapshot, change); err != nil {
		return nil, result, nil, fail(exitUsage, "theseus check --help", "%w", err)
	}
	if len(from) == 0 {
		pass.Served = served(ctx, change.AgentImage)
	}
	return pass, preflight.Run(preflight.All(), pass, options), refused, nil
}

// checkOptions are what a change says of findings.
func checkOptions(change v1alpha1.ChangeSpec) preflight.Options {
	return preflight.Options{Accept: change.Accept, Accepted: change.Accepted, Now: time.Now()}
}

// mustNotBlock prints findings that block, and fails then.
func (a *app) mustNotBlock(result finding.Result, hint string) error {
	if !result.Blocks() {
		return nil
	}
	if err := preflight.Text(a.Err, result, preflight.Style{}); err != nil {
		return err
	}
	return fail(exitBlocked, hint, "findings block this change: %d", result.Summary.Block)
}

func (a *app) printFindings(result finding.Result, checks []check.Check) error {
	switch a.output {
	case "", "text":
		style := preflight.Style{Color: isTerminal(a.Out) && os.Getenv("NO_COLOR") == ""}
		return a.printed(func(w io.Writer) error { return preflight.Text(w, result, style) })
	case "json":
		return preflight.JSON(a.Out, result)
	case "sarif":
		return preflight.SARIF(a.Out, result, checks, a.version)
	case "junit":
		return preflight.JUnit(a.Out, result, checks)
	}
	return fmt.Errorf("no form %q", a.output) // refused before
}

// graphOf is the BGP graph by family, before the change and after; why says why there is none.
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
			return nil, "the BGPPeers make millions of peerings"
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, "no node has an address"
	}
	return rows, ""
}

// drawGraph draws the BGP graph.
func (a *app) drawGraph(pass *check.Pass) error {
	rows, why := graphOf(pass)
	if why != "" {
		return fail(exitFailed, "it takes Calico's Nodes, BGPPeers and BGPConfigurations: theseus check --help", "there is no BGP graph to draw: %s", why)
	}
	return draw.SVG(a.Out, rows)
}

// printPage writes the findings and the graph, where there is one, as a page.
func (a *app) printPage(pass *check.Pass, result finding.Result) error {
	rows, _ := graphOf(pass)
	page, err := report.Findings(result, rows)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(page)
	return err
}

func (a *app) explainCommand() *cobra.Command {
	return takes(&cobra.Command{
		Use:   "explain ID",
		Short: "Say what a check looks at, and how to fix what it finds",
		Args:  exactly(1, "the id of a check"),
		RunE: func(_ *cobra.Command, args []string) error {
			hint := "theseus check --list"
			for _, c := range preflight.All() {
				if c.ID == args[0] && a.output == "json" {
					return preflight.ListJSON(a.Out, []check.Check{c})
				}
				if c.ID == args[0] {
					return a.print(preflight.Page(c))
				}
				if strings.HasPrefix(c.ID, args[0]) || strings.EqualFold(c.ID, args[0]) {
					hint += ", such as " + c.ID
					break
				}
			}
			return fail(exitUsage, hint, "there is no check %q", args[0])
		},
	}, "json")
}

// reasons reads ID=REASON flags.
func reasons(flag string, given []string) (map[string]string, error) {
	all := map[string]string{}
	for _, one := range given {
		id, reason, ok := strings.Cut(one, "=")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fail(exitUsage, fmt.Sprintf("write --%s %s='why'", flag, id), "--%s %s gives no reason", flag, one)
		}
		all[id] = reason
	}
	return all, nil
}

// fileOf is the file that a stream leads to, if it is one.
func fileOf(w io.Writer) (*os.File, bool) {
	if over, ok := w.(interface{ Unwrap() io.Writer }); ok {
		w = over.Unwrap()
	}
	file, ok := w.(*os.File)
	return file, ok
}

func isTerminal(w io.Writer) bool {
	file, ok := fileOf(w)
	return ok && term.IsTerminal(int(file.Fd()))
}
