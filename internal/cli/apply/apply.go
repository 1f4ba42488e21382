package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/benching"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/notify"
	"github.com/theseus-cni/theseus/internal/run/window"
)

// NewCommand makes the command theseus apply.
func NewCommand(a *app.App) *cobra.Command {
	var how options
	var signers planfile.Signers
	var access mirror.Access
	command := &cobra.Command{
		Use:   "apply PLAN",
		Short: "Carry out a plan step by step, and roll back when a gate fails",
		Long: "Carries out a plan step by step. Theseus writes every action to the journal in the " +
			"cluster before it starts\n" +
			"the action. A gate on measured connectivity follows every change; when a gate " +
			"fails, Theseus rolls back.\n" +
			"You can interrupt it at any moment: once to stop after the current action, twice to stop at once.\n" +
			"`theseus resume` continues, here or on another machine.\n\n" +
			"With --in-cluster, the controller in the cluster carries the plan out (chart charts/theseus). " +
			"Theseus makes the same\n" +
			"checks, writes the plan to the cluster, approves it in your name if you may " +
			"approve, and shows the run as\n" +
			"`theseus watch` does. This machine can be switched off meanwhile. An interrupt ends the " +
			"watching, not the run.\n" +
			"Where only signed approvals count, add --sign KEY (theseus approve --help).\n\n" +
			"With --window, the controller begins steps only in windows of time, and only if a step " +
			"fits into what is left of\n" +
			"one. Between windows the migration pauses between two steps, and continues by itself. A " +
			"rollback needs no window.\n" +
			"The annotation " + v1alpha1.AnnotationFreeze + " of the namespace " + v1alpha1.Namespace +
			" pauses all migrations in the same way.",
		Args: usage.Exactly(1, "one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := signers.Validate(); err != nil {
				return err
			}
			return apply(command.Context(), a, args[0], &signers, access, how)
		},
	}
	command.Flags().BoolVar(&how.yes, "yes", false, "do not ask (required when the input is not a terminal)")
	command.Flags().BoolVar(&how.dry, "dry-run", false,
		"check everything, print what would be done, and change nothing")
	command.Flags().BoolVar(&how.inCluster, "in-cluster", false, "let the controller in the cluster carry it out")
	how.outward.Register(command, notify.Gets)
	how.around.Register(command)
	how.writes.Register(command)
	command.Flags().StringArrayVar(&how.window, "window", nil,
		"with --in-cluster: begin steps only then, such as 'Tue,Thu 22:00-05:00 Europe/Berlin' (repeatable)")
	planfile.RegisterSign(command, &how.key, "with --in-cluster: ")
	signers.Register(command)
	pair.RegisterAccess(command, &access)
	return usage.Takes(command, "json")
}

// options say how a plan is applied.
type options struct {
	yes, dry, inCluster bool
	window              []string
	key                 string
	outward             execute.Outward
	writes              execute.Writes
	around              benching.Around
}

// windows reads the flags --window.
func (o options) windows() ([]v1alpha1.Window, error) {
	if len(o.window) > 0 && !o.inCluster {
		return nil, exit.Fail(exit.Usage, "add --in-cluster: the controller begins when a window opens",
			"--window is given without --in-cluster, and this machine does not wait for windows")
	}
	var all []v1alpha1.Window
	for _, text := range o.window {
		one, err := window.Parse(text)
		if err != nil {
			return nil, exit.Fail(exit.Usage, "for example --window 'Tue,Thu 22:00-05:00 Europe/Berlin'; days are "+
				"Mon to Sun, a range is Mon-Fri", "%w", err)
		}
		all = append(all, one)
	}
	if _, err := window.Of(all); err != nil {
		return nil, exit.Fail(exit.Usage, "give fewer windows", "%w", err)
	}
	return all, nil
}

// tells refuses metrics and notifications of a run that this machine does not carry out.
func (o options) tells() error {
	if o.inCluster && o.outward.Given() {
		return exit.Fail(exit.Usage, "set it in the controller: the values metrics.enabled and notify.secretName of "+
			"its chart", "--metrics and --notify are for a run on this machine, and --in-cluster is given")
	}
	if o.inCluster && o.around.Given() {
		return exit.Fail(exit.Usage, "run theseus bench network before and after the change, and compare the tables",
			"--bench is for a run on this machine, and --in-cluster is given")
	}
	return cmp.Or(o.writes.Check(o.inCluster), o.outward.Check())
}

func apply(ctx context.Context, a *app.App, file string, signers *planfile.Signers,
	access mirror.Access, how options) error {
	windows, err := how.windows()
	if err != nil {
		return err
	}
	if err := cmp.Or(how.tells(), planfile.MaySign(how.key, how.inCluster)); err != nil {
		return err
	}
	p, data, err := planfile.ReadData(file)
	if err != nil {
		return err
	}
	who, err := signers.Check(file, data)
	if err != nil {
		return err
	}
	if err := plan.Verify(p); err != nil {
		return exit.Fail(exit.Failed, "make a new plan with `theseus plan`", "the plan is invalid: %w", err)
	}
	if _, ok := a.Terminal(); !how.yes && !how.dry && !ok {
		return exit.Fail(exit.Usage, "read the plan, then add --yes",
			"apply asks before it changes a cluster, and the input is not a terminal")
	}
	if err := how.runs(p); err != nil {
		return err
	}
	signature, err := planfile.SignHash(a, p, how.key) // before anything is written
	if err != nil {
		return err
	}
	if p.Cluster.UID == "" && p.OnNodes() {
		return exit.Fail(exit.Failed, "make the plan from the live cluster, or from a file of theseus snapshot",
			"the plan does not name its cluster: its input had no Namespace kube-system")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if how.inCluster { // the controller waits while the cluster is frozen
		err = incluster.Available(ctx, a, client)
	} else {
		err = incluster.NotFrozen(ctx, a, client)
	}
	if err != nil {
		return err
	}
	if err := admit(ctx, a, client, access, p); err != nil {
		return err
	}
	if how.dry {
		return planfile.Write(a, p, "")
	}
	if _, err := statedir.Make(p.Name); err != nil {
		return err
	}
	if len(who) > 0 {
		fmt.Fprintf(a.Err, "%s (hash %s) is signed by %s\n", p.Name, p.Hash, strings.Join(who, ", "))
	}
	if err := how.around.Announce(ctx, a, client, p); err != nil {
		return err
	}
	if err := confirm(ctx, a, p, how.yes); err != nil {
		return err
	}
	return how.around.Run(ctx, a, client, p, func() error {
		if err := execute.Ready(ctx, a, client, p); err != nil {
			return err
		}
		if how.inCluster {
			return handOver(ctx, a, client, p, windows, signature)
		}
		return execute.Run(ctx, a, how.writes.Of(execute.New(a, client, access, p, true)), &how.outward)
	}, nil)
}

// runs refuses a plan that cannot run on this machine or in the cluster, as requested.
func (o options) runs(p *plan.Plan) error {
	if o.inCluster {
		return admission.InCluster(p)
	}
	if err := run.HooksRun(p); err != nil {
		return err
	}
	return run.SignalsRun(p, v1alpha1.DesireRun, nil)
}

// admit refuses a plan that may not begin, and prints the findings that block it.
func admit(ctx context.Context, a *app.App, client *kube.Client, access mirror.Access, p *plan.Plan) error {
	request := admission.Request{Client: client, Plan: p, Version: a.Version, Waiting: a.Waiting,
		Say: a.Tell}
	check := admission.Check
	if p.Mirror != nil {
		if err := admitMirror(ctx, a, request, access); err != nil {
			return err
		}
		if !p.OnNodes() {
			check = admission.CheckRights
		}
	}
	err := check(ctx, request)
	if refusal, ok := errors.AsType[*admission.Refusal](err); ok && refusal.Result.Blocks() {
		return survey.MustNotBlock(a, refusal.Result, refusal.Hint())
	}
	return err
}

// confirm asks once, on a terminal, after saying what is about to happen.
func confirm(ctx context.Context, a *app.App, p *plan.Plan, yes bool) error {
	if yes {
		return nil
	}
	what := p.Size()
	if p.Mirror != nil {
		what = cluster.Count(len(p.Mirror.Names.Moves), "name")
		if p.OnNodes() {
			what += ", " + p.Size()
		}
	}
	fmt.Fprintf(a.Err, "%s: %s -> %s by %s\n%s, %s, %s.\n",
		p.Name, p.From(), p.To(), p.Strategy, what, cluster.Count(len(p.Steps), "step"),
		view.About(time.Duration(p.Estimate)))
	return a.Typed(ctx, p.To())
}
