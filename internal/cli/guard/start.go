package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	guardplan "github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/report"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/notify"
	measured "github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step"
)

// newStart makes the command theseus guard start.
func newStart(a *app.App) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "start",
		Short: "Begin to measure changes that others make, for hours or days",
		Long: "Installs agents and probe pods, proves that they measure, measures a baseline, and ends. The " +
			"agents measure on, until\n" +
			"`theseus guard stop`. No process of Theseus needs to run meanwhile, and every machine with " +
			"access to the cluster can\n" +
			"continue: the journal is in the cluster. The probes' counts are kept by the agents, and " +
			"a restart of a prober is\n" +
			"reported as a time that was not measured.",
		Example: "  theseus guard start\n  theseus guard mark 'node pool b'\n  theseus guard status\n" +
			"  theseus guard stop -o report.html",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			guarded := kind.Guard{Others: true, Quiet: step.Duration(o.quiet), AtMost: step.Duration(o.atMost),
				LossyBefore: o.lossyBefore, SamplePolicies: o.pairs}
			if err := o.times(); err != nil {
				return err
			}
			spec, err := o.measuring(command)
			if err != nil {
				return err
			}
			return o.guard(command.Context(), a, spec, guarded)
		},
	}
	o.register(command, "begin", "the changes", "theseus guard stop",
		"at the baseline from this machine, and by theseus guard stop from the machine that runs it")
	return usage.Takes(command, "json")
}

// chosen is a command about one guard: the named one, or the latest that has not ended, or else the latest.
func chosen(a *app.App, command *cobra.Command,
	do func(ctx context.Context, client *kube.Client, p *plan.Plan, state engine.State) error) *cobra.Command {
	name := ""
	command.Flags().StringVar(&name, "guard", "", "name of the guard, as in theseus guard status (default: the latest)")
	run := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if run != nil {
			if err := run(command, args); err != nil {
				return err
			}
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		var p *plan.Plan
		var state engine.State
		var notes []string
		if err := a.Patiently(command.Context(), app.Begin, func(ctx context.Context) (err error) {
			p, state, notes, err = find(ctx, client, name)
			return err
		}); err != nil {
			return err
		}
		for _, text := range notes {
			fmt.Fprintln(a.Err, "note: "+text)
		}
		return do(command.Context(), client, p, state)
	}
	return command
}

// find reads a guard's plan and state. notes says which newer plans cannot be read: they may be those of guards, too.
func find(ctx context.Context, client *kube.Client, name string) (found *plan.Plan, state engine.State,
	notes []string, err error) {
	names := []string{name}
	if name == "" {
		all, err := journal.List(ctx, client.Dynamic)
		if err != nil {
			return nil, state, nil, err
		}
		names = names[:0]
		for _, migration := range all {
			names = append(names, migration.Name)
		}
	}
	for _, one := range names {
		p, _, err := journal.Load(ctx, client.Dynamic, one)
		if err != nil {
			if name != "" || errors.Is(err, engine.ErrUnavailable) ||
				errors.Is(err, engine.ErrRefused) || ctx.Err() != nil {
				return nil, state, nil, err
			}
			notes = append(notes, fmt.Sprintf("%s is passed over: %v", one, err))
			continue
		}
		if p.Guarded == nil {
			continue
		}
		_, now, err := migrations.Standing(ctx, client, one)
		if err != nil {
			return nil, state, nil, err
		}
		if found == nil || !now.Over() {
			found, state = p, now
		}
		if !now.Over() {
			break
		}
	}
	switch {
	case found != nil:
		return found, state, notes, nil
	case name != "":
		return nil, state, nil, exit.Fail(exit.Failed, "`theseus status "+name+"` shows it",
			"%s is no guard: it is a migration", name)
	}
	return nil, state, nil, exit.Fail(exit.Failed, "`theseus guard start` begins one; check the kubeconfig's context",
		"%s", strings.Join(append([]string{"this cluster has no guard"}, notes...), "; "))
}

// looking is this person's look at a guard.
func looking(a *app.App, client *kube.Client, p *plan.Plan) (*run.Looking, error) {
	dir, err := statedir.Make(p.Name)
	return &run.Looking{Client: client, Plan: p, Dir: dir, Say: func(text string) { fmt.Fprintln(a.Err, text) }}, err
}

// maxMark bounds a mark, in bytes.
const maxMark = 200

// newMark makes the command theseus guard mark.
func newMark(a *app.App) *cobra.Command {
	text := ""
	command := &cobra.Command{
		Use:   "mark TEXT",
		Short: "Put a line on the timeline of a guard, such as the step of your change that begins",
		Long: "Writes a line with your name and the time into the journal, and keeps in the cluster what " +
			"happened there until now.\n" +
			"While a process runs the guard (theseus guard -- COMMAND, or theseus guard stop), no mark can be set.",
		Example: "  theseus guard mark 'node pool b'",
		Args:    usage.Exactly(1, "one text, in quotes"),
		RunE: func(_ *cobra.Command, args []string) error {
			text = strings.TrimSpace(printable.Line(args[0]))
			if text == "" || len(text) > maxMark {
				return exit.Fail(exit.Usage, "theseus guard mark 'node pool b'",
					"a mark has from 1 to %d bytes", maxMark)
			}
			return nil
		},
	}
	return chosen(a, usage.Takes(command), func(ctx context.Context, client *kube.Client,
		p *plan.Plan, state engine.State) error {
		if state.Over() {
			return migrations.Over(p.Name, state)
		}
		l, err := looking(a, client, p)
		if err != nil {
			return err
		}
		if err := approval.SameCluster(ctx, a, client, p); err != nil {
			return err
		}
		if err := l.Mark(ctx, text); err != nil {
			var held *journal.HeldError
			if errors.As(err, &held) {
				return exit.Fail(exit.Failed,
					"set it before or after: the report shows what happens in the cluster by itself",
					"no mark can be set while a process runs %s: %w", p.Name, held)
			}
			return err
		}
		fmt.Fprintf(a.Out, "%s: marked %s UTC: %s\n", p.Name, time.Now().UTC().Format(time.DateTime), text)
		return nil
	})
}

// newReport makes the command theseus guard report.
func newReport(a *app.App) *cobra.Command {
	var with []string
	var elsewhere []measured.Elsewhere
	command := &cobra.Command{
		Use:   "report",
		Short: "Show what was lost until now, with what happened in the cluster",
		Long: "Makes the report of a guard, also while it measures: -o report.html writes one " +
			"page that works offline, -o\n" +
			"report.json the same data for programs; without -o, it prints a summary.\n" +
			"--with takes in what `theseus probe run -o json` measured on another machine meanwhile, such as the " +
			"way from outside\n" +
			"to a node port. What was lost there counts as a loss in the report.",
		Example: "  theseus guard report --with outside.json -o report.html",
		Args:    usage.None,
		RunE: func(*cobra.Command, []string) (err error) {
			elsewhere, err = report.ReadElsewhere(a.In, with)
			return err
		},
	}
	command.Flags().StringArrayVar(&with, "with", nil,
		"FILE of theseus probe run -o json from another machine (repeatable)")
	return chosen(a, command, func(ctx context.Context, client *kube.Client, p *plan.Plan, state engine.State) error {
		if state.Measures() {
			l, err := looking(a, client, p)
			if err != nil {
				return err
			}
			if _, err := l.Look(ctx); err != nil {
				return err
			}
		}
		return a.Patiently(ctx, app.Glance, func(ctx context.Context) error {
			return report.ShowWith(ctx, a, client, p, nil, elsewhere)
		})
	})
}

// newStop makes the command theseus guard stop.
func newStop(a *app.App) *cobra.Command {
	approvals, outward := &approval.Flags{}, &execute.Outward{}
	command := &cobra.Command{
		Use:   "stop",
		Short: "Give the verdict of a guard that was started, and remove everything",
		Long: "Run it when the changes have ended. It watches until no probe was lost for as long as " +
			"`theseus guard start --quiet`\n" +
			"said, gives the verdict, writes the report, and removes everything that was installed. " +
			"The exit codes are those of\n" +
			"theseus guard: a loss is proven (7), not proven (8). Any machine can do it. One that did " +
			"not start the guard must\n" +
			"know its plan: --plan FILE, or --expect HASH, which `theseus guard start` prints.",
		Example: "  theseus guard stop -o report.html",
		Args:    usage.None,
		RunE: func(*cobra.Command, []string) error {
			if err := written(a.Output); err != nil {
				return err
			}
			if err := outward.Check(); err != nil {
				return err
			}
			return approvals.Validate()
		},
	}
	approvals.Register(command)
	outward.Register(command, notify.GuardGets)
	return chosen(a, command, func(ctx context.Context, client *kube.Client, p *plan.Plan, _ engine.State) error {
		var records []engine.Record
		if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
			records, err = journal.NewCluster(client.Dynamic, p.Name).Records(ctx)
			return err
		}); err != nil {
			return err
		}
		if err := mayStop(p, records); err != nil {
			return err
		}
		next := execute.New(a, client, mirror.Access{}, p, false)
		next.Ended = true
		var err error
		if next.Head, err = approval.Approve(ctx, a, client, p, records, approvals); err != nil {
			return err
		}
		return reported(ctx, a, client, p, execute.Run(ctx, a, next, outward))
	})
}

// mayStop refuses to stop what does not measure, or what a command ends.
func mayStop(p *plan.Plan, records []engine.Record) error {
	state, err := engine.Admit(p, records)
	if err != nil {
		return err
	}
	begun := state.Find(guardplan.StepProbes)
	switch {
	case state.Over():
		return migrations.Over(p.Name, state)
	case !p.Guarded.Others:
		return exit.Fail(exit.Failed, "`theseus resume "+p.Name+
			"` continues it if no process runs it, `theseus rollback` removes what was installed",
			"%s ends with its command (%s), and not with stop", p.Name, p.To())
	case state.Undoing:
		return exit.Fail(exit.Failed, "`theseus resume "+p.Name+"` finishes the removal",
			"%s was ended without a verdict: what it installed is being removed", p.Name)
	case begun == nil || !begun.Done:
		return exit.Fail(exit.Failed, "`theseus resume "+p.Name+
			"` goes on until it measures, `theseus rollback` removes what was installed",
			"%s does not measure yet: the baseline was not taken", p.Name)
	}
	return nil
}
