package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/step"
)

func (a *app) applyCommand() *cobra.Command {
	var yes, dry bool
	var signers signers
	command := &cobra.Command{
		Use:   "apply PLAN",
		Short: "Carry a plan out, measured and journaled, stoppable at any moment",
		Long: "Carries a plan out step by step. Every act is written to the journal in the cluster before it is\n" +
			"done; a gate on measured connectivity follows every change; a gate that fails takes everything back.\n" +
			"Interrupt it at any moment, once to end after the action at hand, twice to end at once: `theseus resume`\n" +
			"goes on, here or on another machine.",
		Args: exactly(1, "one plan file"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := signers.validate(); err != nil {
				return err
			}
			return a.apply(command.Context(), args[0], &signers, yes, dry)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask (needed when the input is no terminal)")
	command.Flags().BoolVar(&dry, "dry-run", false, "check everything, print what would be done, and change nothing")
	signers.register(command)
	registerAccess(command, &a.access)
	return takes(command, "json")
}

func (a *app) apply(ctx context.Context, file string, signers *signers, yes, dry bool) error {
	p, data, err := readPlanData(file)
	if err != nil {
		return err
	}
	who, err := signers.check(file, data)
	if err != nil {
		return err
	}
	if err := plan.Verify(p); err != nil {
		return fail(exitFailed, "make the plan anew with `theseus plan`", "the plan does not hold: %w", err)
	}
	if _, ok := a.terminal(); !yes && !dry && !ok {
		return fail(exitUsage, "read the plan, then add --yes", "apply asks before it changes a cluster, and the input is no terminal")
	}
	if err := run.HooksRun(p); err != nil {
		return err
	}
	if p.Cluster.UID == "" && p.OnNodes() {
		return fail(exitFailed, "make it on the cluster itself, or --from what theseus snapshot wrote there",
			"the plan does not say for which cluster it was made: what it was made from lacks the Namespace kube-system")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	if err := a.admit(ctx, client, p); err != nil {
		return err
	}
	if dry {
		return a.writePlan(p)
	}
	if _, err := makeStateDir(p.Name); err != nil {
		return err
	}
	if len(who) > 0 {
		fmt.Fprintf(a.Err, "%s (hash %s) is signed by %s\n", p.Name, p.Hash, strings.Join(who, ", "))
	}
	if err := a.confirm(ctx, p, yes); err != nil {
		return err
	}
	if err := a.patiently(ctx, begin, func(ctx context.Context) error { return a.prepareJournal(ctx, client) }); err != nil {
		return err
	}
	if err := keepApproval(p); err != nil {
		return err
	}
	return a.carryOut(ctx, a.newRun(client, p, true))
}

func readPlan(file string) (*plan.Plan, error) {
	p, _, err := readPlanData(file)
	return p, err
}

// readPlanData reads a plan, and returns the bytes that it was read from too.
func readPlanData(file string) (*plan.Plan, []byte, error) {
	data, err := infile.ReadUpTo(file, document.MaxInput)
	if err != nil {
		return nil, nil, fail(exitUsage, "make a plan: theseus plan --to calico ... -o plan.yaml", "%w", err)
	}
	p, err := plan.Read(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, data, nil
}

// admit refuses a plan that was made for another cluster, or for this one as it was.
func (a *app) admit(ctx context.Context, client *kube.Client, p *plan.Plan) error {
	if p.Mirror != nil {
		if err := a.admitMirror(ctx, client, p); err != nil || !p.OnNodes() {
			return err
		}
	}
	var snapshot *cluster.Snapshot
	if err := a.patiently(ctx, begin, func(ctx context.Context) (err error) {
		snapshot, err = kube.Snapshot(ctx, client, a.version, time.Now())
		return err
	}); err != nil {
		return err
	}
	if snapshot.UID != p.Cluster.UID {
		return fail(exitFailed, "choose the cluster with --context, or plan anew for this one",
			"the plan was made for another cluster (%s, this is %s)", p.Cluster.UID, snapshot.UID)
	}
	if err := a.alone(ctx, client, p.Name); err != nil {
		return err
	}
	if err := askRights(ctx, client, snapshot, p); err != nil {
		return err
	}
	// What blocks may have come since the plan was made, and this user may not be the one who made it.
	pass := &check.Pass{Snapshot: snapshot, Change: p.Change, Found: drivers.All().Detect(snapshot), Source: &p.Source}
	if !p.InPlace() {
		pass.Target = &p.Target
	}
	result := preflight.Run(preflight.All(), pass, checkOptions(p.Change))
	if err := a.mustNotBlock(result, "fix what blocks, then apply again, or make a new plan that accepts it: theseus plan --accept ID=REASON"); err != nil {
		return err
	}
	if stale := plan.Stale(p, snapshot); len(stale) > 0 {
		return fail(exitFailed, "make the plan anew with `theseus plan`", "the cluster has changed since the plan was made: %s", strings.Join(stale, "; "))
	}
	return nil
}

// askRights asks whether this user may do what a plan does, beside what was asked for any change.
func askRights(ctx context.Context, client *kube.Client, snapshot *cluster.Snapshot, p *plan.Plan) error {
	if ok, _ := snapshot.Has("rights"); !ok {
		return nil // the check of rights says why
	}
	more, err := kube.Rights(ctx, client, snapshot.Rights, p.Steps)
	snapshot.Rights = append(snapshot.Rights, more...)
	return err
}

// alone refuses to begin while another migration is under way, or what has begun already.
func (a *app) alone(ctx context.Context, client *kube.Client, name string) error {
	known, err := journal.List(ctx, client.Dynamic)
	if apierrors.IsForbidden(err) {
		return nil // without that right nothing is begun: the check of rights says all that are missing
	}
	if err != nil {
		return err
	}
	for _, migration := range known {
		over := engine.Phase(migration.Status.Phase) == engine.PhaseDone || engine.Phase(migration.Status.Phase) == engine.PhaseRolledBack
		if over && migration.Name == name {
			return fail(exitFailed, "make a new plan", "migration %s is over already (%s)", name, migration.Status.Phase)
		}
		if over {
			continue
		}
		holder, err := journal.HeldBy(ctx, run.Leases(client))
		if err != nil {
			return err
		}
		if holder != nil {
			return fail(exitFailed, holder.Hint(), "migration %s is under way: %w", migration.Name, holder)
		}
		ways := "`theseus status` says what leads on from there"
		if p, _, err := journal.Load(ctx, client.Dynamic, migration.Name); err == nil {
			if _, state, err := standing(ctx, client, migration.Name); err == nil {
				ways = engine.Judge(p.Steps, state, false).Ways
			}
		}
		if migration.Name == name {
			return fail(exitFailed, ways, "migration %s has begun already, and nobody runs it", name)
		}
		return fail(exitFailed, "`theseus status` shows it; "+ways,
			"another migration is under way, and nobody runs it: %s", migration.Name)
	}
	return nil
}

// terminal is the input, if a person sits there.
func (a *app) terminal() (*os.File, bool) {
	in, ok := a.In.(*os.File)
	return in, ok && term.IsTerminal(int(in.Fd()))
}

// confirm asks once, on a terminal, after saying what is about to happen.
func (a *app) confirm(ctx context.Context, p *plan.Plan, yes bool) error {
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
		p.Name, p.From(), p.To(), p.Strategy, what, cluster.Count(len(p.Steps), "step"), about(time.Duration(p.Estimate)))
	return a.typed(ctx, p.To())
}

// typed waits until a person types a word on the terminal.
func (a *app) typed(ctx context.Context, word string) error {
	in, _ := a.terminal() // seen before
	fmt.Fprintf(a.Err, "Type %q to go on: ", word)
	answer := make(chan string, 1)
	go func() { // an interrupt does not end a read from a terminal; the end of the program does
		line, _ := bufio.NewReader(in).ReadString('\n') // what is cut short is no confirmation
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return fail(exitInterrupted, "nothing was changed", "interrupted before it was confirmed")
	case line := <-answer:
		if strings.TrimSpace(line) == word {
			return nil
		}
	}
	return fail(exitStopped, "nothing was changed", "not confirmed")
}

// prepareJournal makes the place where the journal lives: it must be there before anything is done.
func (a *app) prepareJournal(ctx context.Context, client *kube.Client) error {
	actor := &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: run.Clock{}}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	objects := append(manifest.CRDs(), *manifest.Namespace())
	for i := range objects {
		action := step.Action{Op: step.Apply, Object: &objects[i], Title: "create " + step.RefOf(&objects[i]).String()}
		if _, err := actor.Do(ctx, action, nil); err != nil {
			return err
		}
	}
	for i := range objects[:len(objects)-1] {
		ref := step.RefOf(&objects[i])
		wait := step.Action{Op: step.Wait, Condition: &step.Condition{Kind: step.Established, Ref: &ref}, Title: "wait for " + ref.String()}
		if _, err := actor.Do(ctx, wait, nil); err != nil {
			return err
		}
	}
	return nil
}

// carryOut runs the engine, says how it ended, and turns that into the exit code.
func (a *app) carryOut(ctx context.Context, r *run.Run) error {
	dir, err := makeStateDir(r.Plan.Name)
	if err != nil {
		return err
	}
	view := a.newView(r.Plan)
	r.Dir, r.View = dir, view
	outcome, err := r.Execute(ctx)
	view.Close()
	if err != nil {
		return err
	}
	if a.output != "json" && r.Plan.OnNodes() {
		if err := a.patiently(context.WithoutCancel(ctx), glance, func(ctx context.Context) error {
			return a.printSummary(ctx, r.Client, r.Plan)
		}); err != nil {
			fmt.Fprintf(a.Err, "warning: no summary: %v\n", err)
		}
	}
	if r.Plan.Mirror != nil {
		if err := a.mirrorSummary(context.WithoutCancel(ctx), r, outcome); err != nil {
			return err
		}
	}
	if outcome.End == engine.EndDone {
		return nil
	}
	cause := outcome.Cause
	if cause == "" {
		cause = "as asked"
	}
	return fail(outcome.ExitCode(), outcome.Hint, "%s: %s", outcome.End, cause)
}
