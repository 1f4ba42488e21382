package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	guardplan "github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/benching"
	"github.com/theseus-cni/theseus/internal/cli/changeflags"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/planning"
	"github.com/theseus-cni/theseus/internal/cli/report"
	"github.com/theseus-cni/theseus/internal/cli/slo"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/notify"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// options are the flags of the command.
type options struct {
	change                  changeflags.Flags
	baseline, quiet, atMost time.Duration
	onLoss                  string
	lossyBefore, dry        bool
	pairs                   int
	outward                 execute.Outward
	around                  benching.Around
}

// NewCommand makes the command theseus guard.
func NewCommand(a *app.App) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "guard [FLAGS] -- COMMAND [ARG...]",
		Short: "Run a command that changes the network, or let others change it, and prove what it cost",
		Long: "Measures the network before, during and after a command of yours, such as helm upgrade, " +
			"kubectl apply or kubeadm\n" +
			"upgrade. Theseus does not need to know the network. It installs agents and probe pods, " +
			"proves that they measure,\n" +
			"measures a baseline, runs the command once on this machine, watches until no probe was " +
			"lost for --quiet, gives the\n" +
			"verdict, and removes everything that it installed. It does not know whether work " +
			"that the command began goes on:\n" +
			"let the command wait, or set a longer --quiet. It also makes new pods before, during and after the " +
			"change: one that\n" +
			"gets no network is a loss. The " +
			"command line is stored in the cluster: give secrets to the command by files or by the environment. For " +
			"changes that\n" +
			"take days, or that others make, use theseus guard start.\n\n" +
			"Ctrl-C ends the command (SIGINT; a second one kills it), and the verdict follows. Ctrl-C " +
			"before or after the command\n" +
			"ends the measuring; once the watching has begun, the verdict still follows. Then " +
			"everything that was installed\n" +
			"is removed. Ctrl-C during the removal stops it, and theseus resume finishes it.\n\n" +
			"Of several results, the exit code is that of the first of these: a loss is proven, or a " +
			"signal of --slo failed (7),\n" +
			"Theseus could not finish (6; 5 if another process stopped it), interrupted (130), " +
			"the command failed (1), not\n" +
			"proven (8). If the baseline loses probes, probes do not run, or a signal does not hold " +
			"before the change, nothing is\n" +
			"proven (8), and the command is not run.",
		Example: "  theseus guard -- helm upgrade cilium cilium/cilium --version 1.18.0 -n kube-system\n" +
			"  theseus guard --slo 'http://prometheus:9090 sum(rate(errors[1m])) < 0.01' -- " +
			"kubectl apply -f network.yaml\n" +
			"  theseus guard --on-loss 'helm rollback cilium -n kube-system' -- helm upgrade " +
			"cilium ./chart -n kube-system",
		Args: func(command *cobra.Command, args []string) error {
			if command.ArgsLenAtDash() != 0 || len(args) == 0 {
				return exit.Fail(exit.Usage, "write the command after --: theseus guard -- kubectl apply -f "+
					"network.yaml; theseus guard start measures what others change", "there is no command to guard")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			spec, guarded, err := o.read(command, args)
			if err != nil {
				return err
			}
			if err := written(a.Output); err != nil {
				return err
			}
			return o.guard(command.Context(), a, spec, guarded)
		},
	}
	o.register(command, "run the command", "the command", "the command",
		"from the baseline to the verdict, from this machine")
	flags := command.Flags()
	flags.StringVar(&o.onLoss, "on-loss", "", "COMMAND to run once, at once, when a loss is proven, split at blanks "+
		"outside of quotes and run without a shell; kill: end the guarded command; empty: say so and go on")
	o.around.Register(command)
	command.AddCommand(newStart(a), newStatus(a), newMark(a), newReport(a), newStop(a))
	return command
}

// register adds the flags of both forms of a guard. begin says what the baseline permits, before names what it comes
// before, after what the watching follows, and asked when the user's signals are asked.
func (o *options) register(command *cobra.Command, begin, before, after, asked string) {
	flags := command.Flags()
	o.change.RegisterMeasuring(command)
	flags.Int64Var(&o.change.Spec.MaxLost, "max-lost", 0, "lost probes to tolerate, over all paths; a gap "+
		"longer than 1 s or an answer on a denied path is always a loss")
	flags.DurationVar(&o.baseline, "baseline", guardplan.DefaultBaseline,
		"how long the network is measured before "+before)
	flags.DurationVar(&o.quiet, "quiet", guardplan.DefaultQuiet,
		"watch until no probe was lost for this long after "+after)
	flags.DurationVar(&o.atMost, "watch-at-most", guardplan.DefaultAtMost,
		"how long the network is watched after "+after+" at most")
	flags.BoolVar(&o.lossyBefore, "baseline-loss-ok", false, begin+" although the baseline lost probes, and "+
		"compare later losses with it: exit code 7 if the loss rate rose, 0 if a doubled rate would have been "+
		"detected, otherwise 8")
	flags.IntVar(&o.pairs, "sample-policies", 0, fmt.Sprintf("how many connections between pods of yours to sample at "+
		"most, to see that what policies allow stays open and what they deny stays closed: 0 to %d", step.MostPairs))
	o.change.RegisterSignals(command, asked)
	o.outward.Register(command, notify.GuardGets)
	flags.BoolVar(&o.dry, "dry-run", false, "print what would be installed and measured, and change nothing")
}

// times refuses durations that make no sense, and what cannot be told to others.
func (o *options) times() error {
	if o.baseline < time.Second || o.quiet < time.Second {
		return exit.Fail(exit.Usage, "give 1s or more", "--baseline and --quiet cannot be below one second")
	}
	if o.atMost < o.quiet {
		return exit.Fail(exit.Usage, "raise --watch-at-most, or lower --quiet",
			"--watch-at-most %s is shorter than --quiet %s", o.atMost, o.quiet)
	}
	if o.pairs < 0 || o.pairs > step.MostPairs {
		return exit.Fail(exit.Usage, fmt.Sprintf("give 0 to %d", step.MostPairs),
			"--sample-policies %d is no number of connections that can be sampled", o.pairs)
	}
	return o.outward.Check()
}

// measuring reads the flags about what is measured.
func (o *options) measuring(command *cobra.Command) (spec v1alpha1.ChangeSpec, err error) {
	if spec, err = o.change.Resolve(command); err != nil {
		return spec, err
	}
	spec.BakeSeconds = int((o.baseline + time.Second - 1) / time.Second)
	if spec.AgentImage == "" {
		return spec, exit.Fail(exit.Usage, "name one that the nodes can pull: --agent-image IMAGE",
			"no image of the agent is named, and this build of theseus is no release, which would know its own")
	}
	return spec, nil
}

// read checks the flags and the command.
func (o *options) read(command *cobra.Command, args []string) (spec v1alpha1.ChangeSpec,
	guarded kind.Guard, err error) {
	if err := o.times(); err != nil {
		return spec, guarded, err
	}
	guarded = kind.Guard{Command: args, Quiet: step.Duration(o.quiet), AtMost: step.Duration(o.atMost),
		LossyBefore: o.lossyBefore, SamplePolicies: o.pairs}
	switch {
	case o.onLoss == "":
	case o.lossyBefore:
		return spec, guarded, exit.Fail(exit.Usage, "leave one of them out",
			"--on-loss cannot tell a loss of the command from those that --baseline-loss-ok accepts")
	case o.onLoss == "kill":
		guarded.Kill = true
	default:
		if guarded.OnLoss, err = shell.Split(o.onLoss); err != nil {
			return spec, guarded, exit.Fail(exit.Usage, "write it as --on-loss 'helm rollback cilium -n kube-system'",
				"--on-loss: %w", err)
		}
	}
	for _, program := range slices.Concat([][]string{args}, [][]string{guarded.OnLoss}) {
		if len(program) == 0 {
			continue
		}
		if _, err := exec.LookPath(program[0]); err != nil {
			return spec, guarded, exit.Fail(exit.Usage,
				"name a program of this machine; what a shell has to do is: sh -c '...'",
				"the command %q cannot be run: %w", program[0], err)
		}
	}
	spec, err = o.measuring(command)
	return spec, guarded, err
}

// signalled asks the user's signals before anything is installed. What fails already proves nothing about the change.
// A dry run asks nothing.
func (o *options) signalled(ctx context.Context, a *app.App, spec v1alpha1.ChangeSpec, guarded kind.Guard) error {
	if o.dry {
		return nil
	}
	return slo.MustHold(ctx, a.Err, spec.SLO, slo.Before{Nothing: "nothing was installed", Accept: guarded.LossyBefore,
		Silent: exit.Unproven, Fails: exit.Unproven,
		Hint: "repair that first, change the comparison, or accept it with --baseline-loss-ok: then " +
			"that signal proves nothing"})
}

// written refuses an output that a report does not have.
func written(output string) error {
	if slices.Contains([]string{"", "text", "json"}, output) || strings.HasSuffix(output, ".html") ||
		strings.HasSuffix(output, ".json") {
		return nil
	}
	return exit.Fail(exit.Usage, "-o report.html or -o report.json", "a report cannot be written to %q", output)
}

func (o *options) guard(ctx context.Context, a *app.App, spec v1alpha1.ChangeSpec, guarded kind.Guard) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if err := incluster.NotFrozen(ctx, a, client); err != nil {
		return err
	}
	if err := o.signalled(ctx, a, spec, guarded); err != nil {
		return err
	}
	p, pass, err := o.propose(ctx, a, client, spec, guarded)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Err, run.Cost(p))
	o.sampled(a, p)
	if err := o.around.Announce(ctx, a, client, p); err != nil {
		return err
	}
	if o.dry {
		return nil
	}
	if err := planning.MayCarryOut(ctx, a, pass, p,
		"ask for the rights: theseus rights operate --for user:NAME prints them"); err != nil {
		return err
	}
	end := o.around.Run(ctx, a, client, p, func() error {
		if err := execute.Ready(ctx, a, client, p); err != nil {
			return err
		}
		return execute.Run(ctx, a, execute.New(a, client, mirror.Access{}, p, true), &o.outward)
	}, func(end error) bool { // then the command was run, too
		code := exit.Code(io.Discard, end)
		return (code == exit.Lost || code == exit.Unproven) && !errors.Is(end, execute.ErrNotRun)
	})
	if guarded.Others {
		return end // the report follows at the end
	}
	return reported(ctx, a, client, p, end)
}

// sampled lists the pairs of pods that a dry run would connect, and says which kind is missing, and which policies keep
// pods out of them.
func (o *options) sampled(a *app.App, p *plan.Plan) {
	count := map[string]int{}
	for _, pair := range p.Pairs() {
		count[pair.Verdict()]++
		if o.dry {
			fmt.Fprintf(a.Err, "sampled: %s: %s by policy\n", pair, pair.Verdict())
		}
	}
	for _, verdict := range []string{"allowed", "denied"} {
		if len(p.Pairs()) > 0 && count[verdict] == 0 {
			fmt.Fprintf(a.Err, "note: no connection between Ready pods that is %s by policy was found to sample\n",
				verdict)
		}
	}
	for _, left := range p.Unevaluated() {
		fmt.Fprintf(a.Err, "note: no connection is sampled about which this may decide: %s\n", left)
	}
}

// reported writes the report that -o names. end is how the guard ended, and stays its error.
func reported(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, end error) error {
	if a.Output == "" || a.Output == "text" || a.Output == "json" {
		return end
	}
	err := a.Patiently(context.WithoutCancel(ctx), app.Glance, func(ctx context.Context) error {
		return report.Show(ctx, a, client, p, nil)
	})
	switch {
	case err == nil:
	case end == nil:
		return fmt.Errorf("the report: %w", err)
	default:
		fmt.Fprintln(a.Err, "warning: the report:", err)
	}
	return end
}

// propose reads the cluster, refuses one that a migration has, and makes the plan.
func (o *options) propose(ctx context.Context, a *app.App, client *kube.Client, spec v1alpha1.ChangeSpec,
	guarded kind.Guard) (*plan.Plan, *check.Pass, error) {
	snapshot, err := survey.See(ctx, a, nil)
	if err != nil {
		return nil, nil, err
	}
	options := plan.Options{Version: a.Version, Now: time.Now()}
	request := &kind.Request{Snapshot: snapshot, Change: spec, Drivers: drivers.All(), Options: options}
	// A migration that runs is a better reason than the traces that it leaves.
	alone := admission.Request{Client: client, Plan: &plan.Plan{}, Version: a.Version, Waiting: a.Waiting,
		Say: a.Tell}
	if err := admission.Alone(ctx, alone); err != nil {
		return nil, nil, err
	}
	request.Change.AgentImage = planning.Pinned(ctx, a, nil, spec.AgentImage)
	draft, err := guardplan.Propose(request, guarded)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Seal(snapshot, draft)
	if err != nil {
		return nil, nil, err
	}
	if found := drivers.All().Detect(snapshot); len(found) != 1 {
		fmt.Fprintf(a.Err, "note: %s were found that Theseus knows: the change is measured without knowledge of the "+
			"network, so paths that policy denies and full-size packets are not\n",
			cluster.Count(len(found), "network"))
	}
	return p, &check.Pass{Snapshot: snapshot, Change: p.Change, Found: drivers.All().Detect(snapshot)}, nil
}
