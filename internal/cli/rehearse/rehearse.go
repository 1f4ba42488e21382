package rehearse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/changeflags"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/planning"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/mirror/scratch"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// options are the flags of the command.
type options struct {
	change         changeflags.Flags
	from           []string
	ignore         []string
	wait           time.Duration
	patience       time.Duration
	keep, dry, yes bool
	once           bool
	named          []string // --faults
	commands       []string // --fault-command
	seed           uint64
	faults         []rehearsal.Fault
	network        string // --network-manifest
	// manifest installs the network on the scratch cluster, and installs is what it installs; nil if that has one.
	manifest []unstructured.Unstructured
	installs []*cni.Installation
}

// NewCommand makes the command theseus rehearse.
func NewCommand(a *app.App) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "rehearse --from SNAPSHOT",
		Short: "Run a change on a small copy of the cluster, on a scratch cluster",
		Long: "Makes a small copy of the cluster of a snapshot on an empty scratch cluster (--context), and runs\n" +
			"the change on the copy as theseus apply would: it rolls the change back halfway, and then runs it\n" +
			"again to the end. The report says whether the change would have passed, what broke, how much of\n" +
			"the original the copy covers, and how long the change of the original would take. Theseus does not\n" +
			"contact the cluster of the snapshot.\n\n" +
			"The scratch cluster must have the same network as the original, or none: then --network-manifest\n" +
			"installs it. The network gets the original's settings until the copy is removed, as far as the\n" +
			"scratch cluster can have them. The scratch cluster needs at least one node for each class of\n" +
			"nodes: nodes that are alike in role, labels, taints, capacity and kernel. Its nodes get\n" +
			"the labels and taints of their class until the copy is removed. The copy has the original's\n" +
			"namespaces, workloads, Services, policies, budgets, quotas and webhooks. Its containers run a\n" +
			"stand-in program from the agent's image, which opens the same ports and answers probes. Images,\n" +
			"commands, data and the contents of Secrets and ConfigMaps are not copied. The command first prints\n" +
			"what the copy cannot have.\n\n" +
			"At the end, the copy is removed, unless the run has not ended (interrupted, paused). The scratch\n" +
			"cluster keeps the network that the change left. With --keep, the copy stays until theseus rehearse\n" +
			"remove. --dry-run only prints the copy.\n\n" +
			"--faults breaks things on purpose, each in a run of its own that is rolled back halfway: agent\n" +
			"kills the agent of a node; image sets, for one minute, an agent image that cannot be pulled.\n" +
			"--fault-command names a command that makes another fault and takes it back. Theseus prints before\n" +
			"the first run how each run must end.\n\n" +
			"--remove-label and --add-label rehearse a change of the nodes' labels, such as one that an upgrade of\n" +
			"Kubernetes makes: Theseus makes it on the copy, evicts a pod of each workload, takes the change back,\n" +
			"and if all is well makes it again.",
		Example: "  theseus snapshot --context production -o snapshot.json\n" +
			"  theseus rehearse --from snapshot.json --to calico --manifest calico.yaml --context scratch\n" +
			"  theseus rehearse --from snapshot.json --to calico --manifest calico.yaml --context scratch --faults " +
			"agent,image@12\n" +
			"  theseus rehearse --from snapshot.json --remove-label node-role.kubernetes.io/master --context scratch",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			spec, err := o.read(command, a)
			if err != nil {
				return err
			}
			return o.rehearse(command.Context(), a, spec)
		},
	}
	flags := command.Flags()
	o.registerFrom(flags)
	flags.StringVar(&o.network, "network-manifest", "", "FILE that installs the original's network, in the same "+
		"version, on a scratch cluster without a network; removed with the copy")
	flags.DurationVar(&o.wait, "wait", 5*time.Minute, "how long to wait until the network and the pods of the copy "+
		"are ready")
	flags.DurationVar(&o.patience, "patience", 0, "longest time that the run on the copy waits for the pods of a node "+
		"to move (default: as on the original, at least 10 min)")
	flags.BoolVar(&o.keep, "keep", false, "leave the copy on the scratch cluster at the end")
	flags.BoolVar(&o.once, "once", false, "run the change once to the end, without rolling it back halfway before")
	flags.StringSliceVar(&o.named, "faults", nil, "FAULT, FAULT@STEP or FAULT@random: run the change once more with "+
		"this fault; agent, image, or one of --fault-command (repeatable)")
	flags.StringArrayVar(&o.commands, "fault-command", nil, "NAME=COMMAND that makes the fault NAME on this machine; "+
		"THESEUS_FAULT_NODE is the node of the step (repeatable)")
	flags.Uint64Var(&o.seed, "fault-seed", 0, "repeats the random steps and nodes of an earlier rehearsal")
	flags.BoolVar(&o.dry, "dry-run", false, "print the copy, and change nothing")
	flags.BoolVar(&o.yes, "yes", false, "do not ask (required when the input is not a terminal)")
	flags.StringVar(&o.change.Spec.Reflectors, "reflectors", "", "SELECTOR: make these nodes BGP route reflectors; a "+
		"Calico selector such as has(reflector); none makes a full mesh")
	o.change.Register(command)
	o.change.RegisterLabels(command)
	command.AddCommand(newNeeds(a), newRemove(a))
	return command
}

// registerFrom declares the flags that say what is copied.
func (o *options) registerFrom(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.from, "from", nil,
		"snapshot of the original, or files or folders of Kubernetes YAML or JSON")
	flags.StringSliceVar(&o.ignore, "ignore", nil,
		"KEY of a label or taint, or kernel or capacity: ignored when nodes are divided into classes (repeatable)")
}

// The error of a rehearsal of no snapshot.
const (
	fromMissing = "--from is missing: it names the snapshot of the original"
	fromHint    = "theseus snapshot -o snapshot.json, with the original's context; then --from snapshot.json"
)

// read checks the flags.
func (o *options) read(command *cobra.Command, a *app.App) (spec v1alpha1.ChangeSpec, err error) {
	if spec, err = o.change.Resolve(command); err != nil {
		return spec, err
	}
	if len(spec.SLO) > 0 {
		fmt.Fprintln(a.Err, "note: the signals of slo are the original's, and are not asked while the copy is changed")
		spec.SLO = nil
	}
	if len(spec.Windows) > 0 {
		fmt.Fprintln(a.Err, "note: the windows of the change are the original's: the rehearsal begins at once")
		spec.Windows = nil
	}
	var fault *rehearsal.FaultError
	if o.faults, err = rehearsal.Faults(o.named, o.commands); errors.As(err, &fault) {
		return spec, exit.Fail(exit.Usage, fault.Hint, "%w", err)
	}
	if err := o.labelsAlone(spec); err != nil {
		return spec, err
	}
	switch {
	case len(o.from) == 0:
		return spec, exit.Fail(exit.Usage, fromHint, fromMissing)
	case o.once && len(o.faults) > 0:
		return spec, exit.Fail(exit.Usage, "leave out --once",
			"--once runs the change once, and each of --faults needs a run that is rolled back")
	case spec.Strategy == surge.Name || spec.Strategy == mirror.Name:
		return spec, exit.Fail(exit.Usage, "rehearse the strategy recreate or adopt", "--strategy %s cannot be "+
			"rehearsed yet: it needs more nodes, or another cluster, in addition to the scratch cluster", spec.Strategy)
	case spec.AgentImage == "":
		return spec, exit.Fail(exit.Usage, "name one that the nodes can pull: --agent-image IMAGE",
			"no image of the agent is named, and this build of theseus is no release, which would know its own")
	case o.wait < time.Second:
		return spec, exit.Fail(exit.Usage, "give 1s or more", "--wait %s is too short", o.wait)
	case o.patience != 0 && o.patience < rehearsal.Lasts:
		return spec, exit.Fail(exit.Usage, fmt.Sprintf("give %s or more: a problem must last that long to be "+
			"reported as a trap", rehearsal.Lasts), "--patience %s is too short", o.patience)
	}
	switch {
	case a.Output == "" || a.Output == "text" || strings.HasSuffix(a.Output, ".json"):
	case strings.HasSuffix(a.Output, ".html") && !o.dry:
	case strings.HasSuffix(a.Output, ".html"):
		return spec, exit.Fail(exit.Usage, "-o copy.json has what --dry-run prints",
			"--dry-run has no result for a page")
	case a.Output == "json" && !o.dry:
		return spec, exit.Fail(exit.Usage, "-o rehearsal.json writes the result to a file, and the output of the run "+
			"stays on the terminal", "-o json is only for --dry-run")
	case a.Output != "json":
		return spec, exit.Fail(exit.Usage, "-o rehearsal.html writes a page, and -o rehearsal.json the same data for "+
			"programs", "a rehearsal cannot be written to %q", a.Output)
	}
	if slices.Contains(o.from, "-") {
		return spec, exit.Fail(exit.Usage, "save the snapshot to a file, and name that",
			"--from - cannot be rehearsed: the snapshot is read more than once")
	}
	if o.network != "" {
		if err := o.readNetwork(a); err != nil {
			return spec, err
		}
	}
	if err := scratchNamed(a); err != nil {
		return spec, err
	}
	if _, ok := a.Terminal(); !o.yes && !o.dry && !ok {
		return spec, exit.Fail(exit.Usage, "check it with --dry-run, then add --yes",
			"rehearse asks before it changes the scratch cluster, and the input is not a terminal")
	}
	return spec, nil
}

// readNetwork reads the manifest of the scratch cluster's network.
func (o *options) readNetwork(a *app.App) (err error) {
	if o.manifest, err = survey.Manifest(o.network); err != nil {
		return fmt.Errorf("--network-manifest: %w", err)
	}
	snapshot, _, err := kube.ReadFiles(a.Version, strings.NewReader(""), o.network)
	if err != nil {
		return exit.Fail(exit.Usage, "name the file that installs the network on a new cluster",
			"--network-manifest: %w", err)
	}
	o.installs = drivers.All().Detect(snapshot)
	return nil
}

// scratchNamed demands that the user names the scratch cluster: the current context of a kubeconfig is often the
// original's.
func scratchNamed(a *app.App) error {
	if *a.Context == "" {
		return exit.Fail(exit.Usage, "--context SCRATCH; kubectl config get-contexts lists the contexts", "--context "+
			"is missing: it names the scratch cluster, and Theseus never uses the kubeconfig's current context "+
			"for that")
	}
	return nil
}

// original is the cluster of the snapshot, with the change planned on it.
type original struct {
	rehearsal.Side
	// plan is nil for a change of labels, which effects are then.
	plan    *plan.Plan
	effects []whatif.Effect
	image   string // of the agent
	// after is the network after the change; nil if that stays.
	after *cni.Installation
}

// rehearse makes the copy, runs the change on it, and removes it.
func (o *options) rehearse(ctx context.Context, a *app.App, spec v1alpha1.ChangeSpec) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	s := &scratch.Scratch{Client: client, Note: func(text string) { fmt.Fprintln(a.Err, text) }}
	from, made, err := o.look(ctx, a, s, spec)
	if err != nil {
		return err
	}
	relabels := made.Relabels(from.effects)
	for _, f := range o.faults { // half of the copy's plan, which is not made yet, has fewer steps than this one
		if n := len(from.plan.Steps); f.At > n {
			return exit.Fail(exit.Usage, fmt.Sprintf("name a step from 1 to %d, or random", n),
				"--faults %s@%d: the plan of the original has %d steps", f.Name, f.At, n)
		}
	}
	if err := s.May(ctx, made, relabels...); err != nil {
		return err
	}
	if o.dry && a.Output != "" && a.Output != "text" {
		if a.Output == "json" {
			return terminal.WriteJSON(a.Out, made)
		}
		if err := outfile.WriteBy(a.Output,
			func(to io.Writer) error { return terminal.WriteJSON(to, made) }); err != nil {
			return err
		}
	}
	if err := a.Printed(made.Text); err != nil {
		return err
	}
	if err := printed(a, relabels); err != nil {
		return err
	}
	for _, f := range o.faults {
		fmt.Fprintf(a.Err, "fault %s: expected result: the run %s\n", f.Name, f.Expected())
	}
	if o.dry {
		return nil
	}
	if !o.yes {
		fmt.Fprintf(a.Err, "\nThe copy is made on %s, and %s.\n", where(a, client), from.does())
		if err := a.Typed(ctx, *a.Context); err != nil {
			return err
		}
	}
	// it may have changed since
	now, theirs, err := o.free(ctx, a, s, from.Side.Snapshot, []*cni.Installation{from.Network})
	if err != nil {
		return err
	}
	if made.Network.Links {
		if made, err = o.measured(ctx, a, from, now, theirs, made); err != nil {
			return err
		}
	}
	result, end := o.onCopy(ctx, a, s, spec, from, made)
	kept, end := o.removed(ctx, a, s, end)
	if result == nil {
		return end
	}
	result.Kept = kept
	return result.show(a, end)
}

// where names the scratch cluster.
func where(a *app.App, client *kube.Client) string {
	return fmt.Sprintf("%s (%s)", *a.Context, client.Config.Host)
}

// free reads the scratch cluster, and refuses one that is the original, has another network, is not empty, or is being
// changed.
func (o *options) free(ctx context.Context, a *app.App, s *scratch.Scratch, before *cluster.Snapshot,
	ours []*cni.Installation) (now *cluster.Snapshot, theirs []*cni.Installation, err error) {
	if now, err = kube.Snapshot(ctx, s.Client, a.Version, time.Now()); err != nil {
		return nil, nil, err
	}
	if err := s.Unchanged(ctx); err != nil { // what an interrupted rehearsal left is no network of the cluster's own
		return nil, nil, err
	}
	theirs = drivers.All().Detect(now)
	if o.manifest != nil {
		err = rehearsal.Bare(before, now, ours, theirs)
		theirs = o.installs
	} else {
		err = rehearsal.Same(before, now, ours, theirs)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := rehearsal.Empty(now, theirs); err != nil {
		return nil, nil, err
	}
	if err := s.Empty(ctx); err != nil {
		return nil, nil, err
	}
	if err := incluster.NotFrozen(ctx, a, s.Client); err != nil {
		return nil, nil, err
	}
	return now, theirs, ended(ctx, a, s.Client)
}

// ended refuses while a migration of the scratch cluster has not ended, or where that cannot be read.
func ended(ctx context.Context, a *app.App, client *kube.Client) error {
	return a.Patiently(ctx, app.Glance, func(ctx context.Context) error {
		if _, err := journal.List(ctx, client.Dynamic); err != nil { // Alone lets users begin who may not list them
			return err
		}
		return admission.Alone(ctx, admission.Request{Client: client, Plan: &plan.Plan{}, Version: a.Version,
			Waiting: a.Waiting, Say: a.Tell})
	})
}

// look reads both clusters, refuses what cannot be rehearsed, plans the change on the original, and decides on the
// copy.
func (o *options) look(ctx context.Context, a *app.App, s *scratch.Scratch, spec v1alpha1.ChangeSpec) (from original,
	made *rehearsal.Copy, err error) {
	before, err := survey.See(ctx, a, o.from)
	if err != nil {
		return from, nil, err
	}
	if err := rehearsal.Usable(before); err != nil {
		return from, nil, err
	}
	ours := drivers.All().Detect(before)
	if o.manifest != nil {
		if err := rehearsal.Fits(ours, o.installs); err != nil {
			return from, nil, err
		}
	}
	now, theirs, err := o.free(ctx, a, s, before, ours)
	if err != nil {
		return from, nil, err
	}
	quiet := *a
	quiet.Err = blocking{a.Err}
	if whatif.Asked(spec) {
		from, err = o.lookLabels(ctx, &quiet, spec, rehearsal.Side{Snapshot: before, Network: ours[0]})
		if err != nil {
			return from, nil, fmt.Errorf("on the original: %w", err)
		}
		if made, err = o.make(from, now, theirs); err == nil {
			err = made.Relabelable(made.Relabels(from.effects), now)
		}
		return from, made, err
	}
	p, checked, err := planning.Propose(ctx, &quiet, o.from, spec, planning.Flags{})
	if err != nil {
		return from, nil, fmt.Errorf("on the original: %w", err)
	}
	from = original{Side: rehearsal.Side{Snapshot: before, Network: ours[0], Findings: checked.Result}, plan: p,
		image: p.Change.AgentImage, after: checked.Pass.Target}
	made, err = o.make(from, now, theirs)
	return from, made, err
}

// make decides on the copy. What it lacks for a change of labels is noted, too.
func (o *options) make(from original, now *cluster.Snapshot, theirs []*cni.Installation) (*rehearsal.Copy, error) {
	made, err := rehearsal.Make(from.Snapshot, now, []*cni.Installation{from.Network}, theirs,
		rehearsal.Options{Image: from.image, Ignore: o.ignore, Certify: scratch.Certify,
			After: from.after, Manifest: o.manifest})
	if err == nil {
		made.Relabels(from.effects)
	}
	return made, err
}

// measured decides on the copy again, with the MTU of the scratch cluster's links, and says what it cannot have because
// of that.
func (o *options) measured(ctx context.Context, a *app.App, from original, now *cluster.Snapshot,
	theirs []*cni.Installation, before *rehearsal.Copy) (made *rehearsal.Copy, err error) {
	fmt.Fprintln(a.Err, "reading the MTU of the scratch cluster's links, since the original sets that of pods")
	if now.Facts, err = survey.LookAtNodes(ctx, a, now, from.image); err != nil {
		return nil, err
	}
	if made, err = o.make(from, now, theirs); err != nil {
		return nil, err
	}
	for _, lack := range made.NewLacks(before) {
		fmt.Fprintf(a.Err, "note: not in the copy: %s: %s\n", printable.Line(lack.What), printable.Line(lack.Follows))
	}
	return made, nil
}

// blocking lets findings through, and no notes: those are about a plan that is not applied.
type blocking struct{ io.Writer }

func (b blocking) Write(data []byte) (int, error) {
	if strings.HasPrefix(string(data), "note: ") {
		return len(data), nil
	}
	return b.Writer.Write(data)
}

// onCopy makes the copy and runs the change on it. The result is nil if the change did not begin; the error is how it
// ended.
func (o *options) onCopy(ctx context.Context, a *app.App, s *scratch.Scratch, spec v1alpha1.ChangeSpec, from original,
	made *rehearsal.Copy) (r *result, _ error) {
	if text := made.Network.Text(); text != "" {
		fmt.Fprintln(a.Err, text)
		if err := s.Network(ctx, made, o.wait); err != nil {
			return nil, fmt.Errorf("the network of the copy: %w", err)
		}
	}
	fmt.Fprintf(a.Err, "making the copy: %s\n", cluster.Count(len(made.Objects), "object"))
	if err := s.Make(ctx, made); err != nil {
		return nil, fmt.Errorf("the copy: %w", err)
	}
	r = &result{APIVersion: v1alpha1.APIVersion, Kind: "Rehearsal", Original: from.Snapshot.UID, Copy: made}
	if from.plan != nil {
		r.From, r.To, r.Strategy = from.plan.From(), from.plan.To(), from.plan.Strategy
	} else {
		r.Labels = labelsOf(from.effects)
	}
	failed := func(err error) (*result, error) { // a person's interrupt is no result
		if ctx.Err() != nil {
			return nil, err
		}
		r.Why = exit.OneLine(err.Error())
		return r, err
	}
	unplaced, err := s.Ready(ctx, made, o.wait)
	if err != nil {
		return failed(err)
	}
	if err := bound(ctx, a, s, from.Snapshot, made); err != nil {
		return failed(fmt.Errorf("the quotas of the copy: %w", err))
	}
	late := made.Unanswered(names(unplaced))
	if len(late) == 0 {
		err = s.Hook(ctx, made)
	}
	if err != nil {
		return failed(fmt.Errorf("the webhooks of the copy: %w", err))
	}
	p, checked, err := o.onceMade(ctx, a, spec, from)
	if err != nil {
		return failed(fmt.Errorf("on the copy: %w", err))
	}
	copied := rehearsal.Side{Snapshot: checked.Pass.Snapshot, Network: checked.Pass.Source, Findings: checked.Result}
	if copied.Network == nil {
		return failed(exit.Fail(exit.Failed, "theseus check shows the networks that it finds",
			"the network of the scratch cluster is gone"))
	}
	unlike := made.Reread(checked.Pass.Snapshot, checked.Pass.Source, checked.Pass.Target)
	r.Coverage = made.Covered(from.Side, copied, checks(checked), unplaced)
	r.Uncovered = uncovered(made, unplaced, r.Coverage)
	if p != nil {
		r.From, r.To, r.Strategy = p.From(), p.To(), p.Strategy
		r.Uncovered = append(r.Uncovered, unlikePlans(from.plan, p)...)
	}
	if len(late) > 0 {
		r.Uncovered = append(r.Uncovered, "webhooks: they are left out, since no node fits these: "+
			strings.Join(late, ", "))
	}
	var n int
	var faults []placed
	if p != nil {
		p = hurry(p, o.patience)
		if n = turn(p); o.once {
			n = 0
		}
		if faults, err = o.placed(a, p, n, made); err != nil {
			return failed(err)
		}
	}
	w, stop := watching(ctx, s.Client, made, unlike)
	defer func() {
		stop()
		if r != nil {
			r.Traffic = w.ended()
			r.Shown = w.shown(from.Findings.Findings)
			r.talked(spec.MaxLost)
			r.trapped()
		}
	}()
	if len(made.Traffic) > 0 {
		fmt.Fprintf(a.Err, "listening to %s between stand-ins\n", cluster.Count(len(made.Traffic), "connection"))
	}
	w.maxLost = spec.MaxLost
	w.hear(ctx)
	w.begin()
	if p == nil {
		if err := o.relabelled(ctx, a, s, made, made.Relabels(from.effects), unplaced, r, w); err != nil {
			return failed(err)
		}
		return r, nil
	}
	if n == 0 {
		r.Uncovered = append(r.Uncovered, "the rollback: no run was rolled back")
	} else {
		fmt.Fprintf(a.Err, "the change begins, and is rolled back after step %d of %d\n", n, len(p.Steps))
		if r.Back, err = thereAndBack(ctx, a, s.Client, p, n, w); err != nil {
			return failed(err)
		}
		if err := r.Back.still(unplaced, func() ([]string, error) { return s.Ready(ctx, made, o.wait) }); err != nil {
			return failed(err)
		}
		again := func() (err error) {
			if p, _, err = planning.Propose(ctx, a, nil, spec, planning.Flags{}); err != nil {
				return fmt.Errorf("after the rollback: %w", err)
			}
			p = hurry(p, o.patience)
			return nil
		}
		for _, f := range faults {
			if err := again(); err != nil {
				return failed(err)
			}
			if err := r.fault(ctx, a, s, p, n, f, made, unplaced, o.wait, w); err != nil {
				return failed(err)
			}
		}
		if err := again(); err != nil {
			return failed(err)
		}
		fmt.Fprintf(a.Err, "the change begins again, and runs to its end\n")
	}
	r.Migration = p.Name
	w.final()
	end := carryOut(ctx, a, s.Client, p, w)
	unread := a.Patiently(context.WithoutCancel(ctx), app.Glance, func(ctx context.Context) error {
		return r.judge(ctx, s.Client, p, from.plan)
	})
	if r.Report == nil {
		r.Why = exit.OneLine(cmp.Or(end, unread).Error())
	}
	if end == nil && unread == nil {
		after, err := s.Ready(ctx, made, o.wait)
		r.after(unplaced, after, err)
		r.broken()
		w.hear(ctx)
	}
	return r, cmp.Or(end, unread)
}

// placed decides on the steps of the faults, if there are any.
func (o *options) placed(a *app.App, p *plan.Plan, n int, made *rehearsal.Copy) ([]placed, error) {
	if len(o.faults) == 0 {
		return nil, nil
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	var nodes []string
	for _, class := range made.Classes {
		nodes = append(nodes, class.Plays...)
	}
	chance, random := rand.New(rand.NewPCG(o.seed, 0)), false
	all, err := place(o.faults, p, n, nodes, func(below int) int {
		random = random || below > 1
		return chance.IntN(below)
	})
	if random {
		fmt.Fprintf(a.Err, "steps and nodes of the faults are chosen at random; repeat them with --fault-seed %d\n",
			o.seed)
	}
	return all, err
}

// bound makes the copy's quotas, from what its pods use now.
func bound(ctx context.Context, a *app.App, s *scratch.Scratch, original *cluster.Snapshot,
	made *rehearsal.Copy) error {
	if len(made.Quotas) == 0 {
		return nil
	}
	now, err := kube.Snapshot(ctx, s.Client, a.Version, time.Now())
	if err != nil {
		return err
	}
	made.Bound(original, now)
	for _, quota := range made.Quotas {
		for _, bound := range quota.Bounds {
			fmt.Fprintf(a.Err, "quota %s/%s: %s %s of %s, as %s of %s in the original\n",
				printable.Line(quota.Namespace), printable.Line(quota.Name), bound.Resource, bound.CopyUsed,
				bound.CopyHard, bound.Used, bound.Hard)
		}
	}
	return s.Bound(ctx, made)
}

// carryOut runs a plan on the copy, as theseus apply does.
func carryOut(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, w *watcher) error {
	if err := execute.Ready(ctx, a, client, p); err != nil {
		return err
	}
	r := execute.New(a, client, mirror.Access{}, p, true)
	r.Denied = w.denied
	return execute.Run(ctx, a, r, &execute.Outward{})
}

// checks are the IDs of all checks, except that of the permissions, which are the user's and not the cluster's.
func checks(propose.Checked) []string {
	var ids []string
	for _, check := range preflight.All() {
		if check.ID != propose.CheckOfRights {
			ids = append(ids, check.ID)
		}
	}
	return ids
}

// removed removes the copy, or says how to, and whether it is kept: under a migration that has not ended it stays,
// since the migration is about its nodes and pods. end is how the rehearsal ended; it stays the error.
func (o *options) removed(ctx context.Context, a *app.App, s *scratch.Scratch, end error) (kept bool, _ error) {
	how := "theseus rehearse remove --context " + shell.Word(*a.Context) + " removes it"
	if o.keep {
		fmt.Fprintln(a.Err, "the copy stays: "+how)
		return true, end
	}
	ctx = context.WithoutCancel(ctx)
	if err := ended(ctx, a, s.Client); err != nil {
		fmt.Fprintf(a.Err, "warning: the copy stays: %v; %s; then %s\n", err, exit.HintOf(err), how)
		return true, cmp.Or(end, err)
	}
	fmt.Fprintln(a.Err, "removing the copy")
	parts, err := s.Find(ctx)
	var done scratch.Removed
	if err == nil {
		done, err = s.Remove(ctx, parts)
	}
	if err != nil {
		fmt.Fprintf(a.Err, "warning: parts of the copy are left: %v; %s\n", err, how)
		return true, errors.Join(end, exit.Fail(exit.Failed, how, "the copy is not removed: %w", err))
	}
	fmt.Fprintln(a.Err, said(done))
	return false, end
}

func said(done scratch.Removed) string {
	text := fmt.Sprintf("removed the copy: %s and %s; restored the labels and taints of %s",
		cluster.Count(done.Namespaces, "namespace"), cluster.Count(done.Objects, "other object"),
		cluster.Count(done.Nodes, "node"))
	if done.Changed > 0 {
		text += fmt.Sprintf("; restored %s of the network", cluster.Count(done.Changed, "object"))
	}
	if done.Network > 0 {
		text += fmt.Sprintf("; removed %s of the network", cluster.Count(done.Network, "object"))
	}
	return text
}

// newRemove makes the command theseus rehearse remove.
func newRemove(a *app.App) *cobra.Command {
	yes := false
	command := &cobra.Command{
		Use:   "remove",
		Short: "Remove the copy that a rehearsal left on a scratch cluster",
		Long: "Deletes the objects that rehearsals made on the scratch cluster (--context), and takes back " +
			"what they gave its nodes.\n" +
			"It lists them, and asks before it deletes anything. Objects on which something else put the label\n" +
			rehearsal.MarkLabel + " stay. It refuses while a migration of the scratch cluster has not ended.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := scratchNamed(a); err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			return remove(command.Context(), a,
				&scratch.Scratch{Client: client, Note: func(text string) { fmt.Fprintln(a.Err, text) }}, yes)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "do not ask (required when the input is not a terminal)")
	return usage.Takes(command)
}

// remove removes what rehearsals left.
func remove(ctx context.Context, a *app.App, s *scratch.Scratch, yes bool) error {
	if err := a.Patiently(ctx, app.Glance, func(context.Context) error {
		_, err := s.Client.Typed.Discovery().ServerVersion()
		return err
	}); err != nil {
		return err
	}
	if err := ended(ctx, a, s.Client); err != nil {
		return err
	}
	parts, err := s.Find(ctx)
	if err != nil {
		return err
	}
	for _, other := range parts.Others {
		fmt.Fprintf(a.Err, "note: %s stays: it has the label %s, and no rehearsal put it there\n",
			other, rehearsal.MarkLabel)
	}
	if parts.None() {
		if len(parts.Unread) == 0 {
			fmt.Fprintln(a.Out, "there is no copy on this cluster")
			return nil
		}
		_, err := s.Remove(ctx, parts)
		return err
	}
	if !yes {
		if err := a.Printed(func(to io.Writer) error { return listed(to, parts) }); err != nil {
			return err
		}
		if _, ok := a.Terminal(); !ok {
			return exit.Fail(exit.Usage, "add --yes", "remove asks before it deletes, and the input is not a terminal")
		}
		fmt.Fprintf(a.Err, "\nThey are on %s.\n", where(a, s.Client))
		if err := a.Typed(ctx, *a.Context); err != nil {
			return err
		}
	}
	done, err := s.Remove(ctx, parts)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out, said(done))
	return nil
}

// listed prints the parts of a copy.
func listed(to io.Writer, parts scratch.Parts) error {
	var b strings.Builder
	for _, namespace := range parts.Namespaces {
		fmt.Fprintf(&b, "delete   %s, with everything in it\n", printable.Line(namespace.String()))
	}
	for _, object := range parts.Objects {
		fmt.Fprintf(&b, "delete   %s\n", printable.Line(object.String()))
	}
	for _, object := range parts.Network {
		fmt.Fprintf(&b, "delete   %s, of the network\n", printable.Line(object.String()))
	}
	for _, object := range parts.Changed {
		fmt.Fprintf(&b, "restore  %s: its former settings\n", printable.Line(object.String()))
	}
	for _, node := range parts.Nodes {
		fmt.Fprintf(&b, "restore  Node %s: its labels and taints\n", printable.Line(node))
	}
	_, err := io.WriteString(to, b.String())
	return err
}
