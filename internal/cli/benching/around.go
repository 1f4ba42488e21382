package benching

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/benched"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// Around measures the network under load before and after a change that this machine carries out.
type Around struct {
	each   time.Duration // of each measurement; 0 measures nothing
	before *benched.Bench
}

// Register adds the flag.
func (o *Around) Register(command *cobra.Command) {
	o.register(command, "measure the network under load before and after the change, as theseus bench network does, "+
		"on two nodes, and compare the results in the report; the value is the duration of each measurement. The "+
		"cost is printed first")
}

// RegisterAgain adds the flag of a command that continues a change.
func (o *Around) RegisterAgain(command *cobra.Command) {
	o.register(command, "measure the network under load after the change too, if this machine measured it before with "+
		"--bench; the load is the same, whatever the value. The cost is printed first")
}

func (o *Around) register(command *cobra.Command, help string) {
	const name = "bench"
	command.Flags().DurationVar(&o.each, name, 0, help)
	command.Flags().Lookup(name).NoOptDefVal = bench.Defaults().Duration.String()
}

// Given reports whether the flag is given.
func (o *Around) Given() bool { return o.each != 0 }

// Announce chooses the nodes and prints what the load costs, before a person agrees to the change.
func (o *Around) Announce(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) (err error) {
	if !o.Given() {
		return nil
	}
	bounds := bench.Defaults()
	if bounds.Duration = o.each; bounds.Validate() != nil {
		return exit.Fail(exit.Usage, "--bench alone takes "+bench.Defaults().Duration.String(), "--bench=%s: %s",
			o.each, exit.OneLine(bounds.Validate().Error()))
	}
	if !p.OnNodes() || p.Change.AgentImage == "" {
		return exit.Fail(exit.Usage, "leave --bench out", "--bench measures the network of the nodes that the plan "+
			"changes, and this plan changes none")
	}
	if o.before, err = on(ctx, a, client, p, bounds, nil); err == nil {
		Cost(a.Err, "--bench, before and after the change,", o.before)
	}
	return err
}

// on is a benchmark within bounds, on the named nodes, or on two that are fit for load.
func on(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, bounds bench.Bounds,
	nodes []string) (b *benched.Bench, err error) {
	b = &benched.Bench{Client: client, Image: p.Change.AgentImage, Bounds: bounds,
		Note: func(text string) { fmt.Fprintln(a.Err, text) }}
	b.Nodes, err = Choose(ctx, a, client, nodes, bounds)
	return b, err
}

// Run measures, makes the change, and measures again if the change ended well, or with an error of which made is true;
// nil for none. If the network cannot be measured before, the change is not made. What goes wrong after it is a
// warning: the change has its own result.
func (o *Around) Run(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, change func() error,
	made func(error) bool) error {
	if !o.Given() {
		return change()
	}
	fmt.Fprintln(a.Err, "putting load on the network, before the change")
	if _, err := measure(ctx, a, p, o.before, run.LoadBefore); err != nil {
		return exit.Fail(exit.Code(io.Discard, err), "find out why, or leave --bench out; nothing was changed",
			"the load before the change: %w", err)
	}
	end := change()
	if end != nil && (made == nil || !made(end)) {
		return end
	}
	return after(ctx, a, client, p, end, false)
}

// Resumable demands that a change that is resumed with --bench was measured before it began, on this machine.
func (o *Around) Resumable(name string) error {
	if !o.Given() {
		return nil
	}
	dir, err := statedir.Of(name)
	if err != nil {
		return err
	}
	kept, err := run.KeptLoad(dir)
	if err == nil && kept.Before == nil {
		err = exit.Fail(exit.Usage, "leave --bench out",
			"this machine has not measured the network under load before %s began", name)
	}
	return err
}

// Again measures after a change that was resumed and has ended, on the nodes that were measured before it.
func (o *Around) Again(ctx context.Context, a *app.App, client *kube.Client, name string) error {
	if !o.Given() {
		return nil
	}
	var p *plan.Plan
	if err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		p, _, err = journal.Load(ctx, client.Dynamic, name)
		return err
	}); err != nil {
		return err
	}
	return after(ctx, a, client, p, nil, true)
}

// after measures after a change, which ended with end. It prints what that costs if this process has not said it yet.
func after(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, end error,
	cost bool) error {
	text, err := compare(ctx, a, client, p, cost)
	if err != nil {
		fmt.Fprintf(a.Err, "warning: the load after the change: %v\n", err)
		return end
	}
	fmt.Fprintln(a.Err, text)
	return end
}

// compare measures after a change, with the bounds of the load before it, and says how that differs.
func compare(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, cost bool) (string,
	error) {
	dir, err := statedir.Of(p.Name)
	if err != nil {
		return "", err
	}
	kept, err := run.KeptLoad(dir)
	if err != nil {
		return "", err
	}
	if kept.Before == nil {
		return "", fmt.Errorf("the load before the change is not in %s any more", dir)
	}
	nodes := []string{kept.Before.Client}
	if kept.Before.Other != "" {
		nodes = append(nodes, kept.Before.Other)
	}
	if err := kept.Before.Bounds.Validate(); err != nil {
		return "", err
	}
	b, err := on(ctx, a, client, p, kept.Before.Bounds, nodes)
	if err != nil {
		return "", err
	}
	if cost {
		Cost(a.Err, "--bench, after the change,", b)
	}
	fmt.Fprintln(a.Err, "putting load on the network, after the change")
	if kept.After, err = measure(ctx, a, p, b, run.LoadAfter); err != nil {
		return "", err
	}
	return report.LoadText(kept), nil
}

// measure measures, and keeps the result for the report. A load that was stopped is an error; its results are kept.
func measure(ctx context.Context, a *app.App, p *plan.Plan, b *benched.Bench, file string) (*bench.Result, error) {
	dir, err := statedir.Make(p.Name)
	if err != nil {
		return nil, err
	}
	result, err := Measure(ctx, a, b)
	if result != nil {
		if kept := run.KeepLoad(dir, file, result); kept != nil {
			return nil, kept
		}
	}
	return result, Verdict(result, err)
}
