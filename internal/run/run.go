package run

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/metrics"
	"github.com/theseus-cni/theseus/internal/run/nodepool"
	"github.com/theseus-cni/theseus/internal/run/notify"
	"github.com/theseus-cni/theseus/internal/step"
)

// Run is one execution of a plan by this process.
type Run struct {
	Client *kube.Client
	Plan   *plan.Plan
	View   View
	// Begins is true if the cluster does not have the plan yet.
	Begins bool
	// MayBegin may refuse a plan that begins, once this process has the lock, and before the cluster has the plan. It
	// may be nil.
	MayBegin func(context.Context) error
	// Desire is the desired state that this process sets once it has the lock, unless KeepsDesire is true.
	Desire v1alpha1.Desire
	// KeepsDesire leaves the desired state as operators have set it.
	KeepsDesire bool
	// Admit may refuse the run, or set Fresh, once this process has the lock and has read the journal, and before it
	// acts. It may be nil.
	Admit func(ctx context.Context, past []engine.Record) error
	// Holder says who runs the plan, for the lock and the journal; "" means journal.Holder().
	Holder string
	// AnyTime lets steps begin outside of the migration's windows.
	AnyTime bool
	// Ended says that the changes of others have ended, which a plan measures.
	Ended bool
	// Fresh counts losses only from now on: a person has seen the earlier ones.
	Fresh bool
	// Head is the head that the journal must have; "" accepts any.
	Head string
	// Dir is the folder of this run on this machine: the copy of the journal, and the evidence.
	Dir string
	// MaxWrites is how many writes a second this process sends to the API server on average; 0 means no bound. The lock
	// is renewed without it.
	MaxWrites int
	// Theseus is the version of this program.
	Theseus string
	// Waiting gets the reason why a call is retried while the API server is unavailable.
	Waiting func(error)
	// Stoppable returns a channel whose closing ends the run after the current action, and a function to call when the
	// run ends.
	Stoppable func(*Flight) (stop <-chan struct{}, done func())
	// Mirrored returns the actor and the gate of a plan with a mirror; own are those for the original's nodes. It is
	// nil for other plans.
	Mirrored func(ctx context.Context, own engine.Deps, records engine.Journal) (engine.Actor, engine.Gate, error)
	// Command returns the actor of a plan that guards a command; own is the actor for everything else, gate has the
	// measurements, and signals watches the user's own signals (nil for none). It is nil for other plans.
	Command func(own engine.Actor, gate *kube.Gate, signals *ask.Watch) engine.Actor
	// Metrics count what happens; they may be nil.
	Metrics *metrics.Metrics
	// Notify gets what happens; it may be nil.
	Notify *notify.Target
	// Denied is called each time that a budget denies an eviction, as that of kube.Actor. It may be nil.
	Denied func(pod *corev1.Pod, why string)
	// Follow watches the source of a plan's flag until it is stopped. It may be nil.
	Follow func(ctx context.Context, origin *plan.Origin) (stop func())

	// Continues is true if this process, or another one like it, carries on with what the run leaves undone.
	Continues bool

	// stood is true if a person or the controller has continued a run that stood before the step that begins next.
	stood bool
	// unfenced is the Client without the lock.
	unfenced dynamic.Interface
	// unkept is the last warning that the evidence cannot be kept on this machine.
	unkept string
	flight *Flight
}

// JournalFile is this machine's copy of the journal, in the folder of a run.
const JournalFile = "journal.jsonl"

// NewFlight returns the flight of a plan before its first record.
func NewFlight(p *plan.Plan) *Flight { return &Flight{script: NewScript(p)} }

// Leases has the lock on a cluster.
func Leases(client *kube.Client) coordination.LeaseInterface {
	return client.Typed.CoordinationV1().Leases(v1alpha1.Namespace)
}

// patiently retries calls to the API server before the engine starts, which has limits of its own.
func (r *Run) patiently(ctx context.Context, call func(context.Context) error) error {
	return outage.Retry(ctx, journal.Patience, r.Waiting, call)
}

// Flight describes the current action of a run, for the person who interrupts it.
type Flight struct {
	lock   sync.Mutex
	script *Script
	what   string
}

func (f *Flight) Record(r engine.Record) {
	f.lock.Lock()
	defer f.lock.Unlock()
	switch title := f.script.Place(r.Step); r.Event {
	case engine.Intended:
		f.what = title + ": " + f.script.Action(r)
	case engine.GateAsked:
		f.what = title + ": the gate measures"
	default:
		f.what = ""
	}
}

func (f *Flight) String() string {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.what == "" {
		return "between two actions"
	}
	return "during " + f.what
}

// Execute carries out a plan from where its journal ends, and keeps everything that a report needs.
func (r *Run) Execute(ctx context.Context) (outcome engine.Outcome, err error) {
	r.flight, r.unfenced = NewFlight(r.Plan), r.Client.Dynamic
	r.Holder = cmp.Or(r.Holder, journal.Holder())
	asked := ctx
	var telling *Telling
	defer func() { r.told(asked, telling, outcome, err) }()
	lease, ctx, err := journal.Acquire(ctx, Leases(r.Client), r.Holder)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not released expires
	if r.Client, err = r.Client.Fenced(lease.Check); err != nil {
		return engine.Outcome{}, err
	}
	if r.Client, err = r.Client.Paced(r.MaxWrites); err != nil { // a write waits before the lock is checked
		return engine.Outcome{}, err
	}
	if err := r.begin(ctx); err != nil {
		return engine.Outcome{}, err
	}
	inCluster := journal.NewCluster(r.Client.Dynamic, r.Plan.Name)
	records := journal.NewMirrored(inCluster, filepath.Join(r.Dir, JournalFile), r.Plan.Hash, func(err error) {
		r.View.Say(fmt.Sprintf("warning: the local copy of the journal: %v", err))
	})
	defer records.Close()
	past, err := r.past(ctx, lease, inCluster, records)
	if err != nil {
		return engine.Outcome{}, err
	}
	for _, record := range past {
		r.stood = stood(r.stood, record)
	}
	r.View.Past(past)
	r.flight.script.Learn(past)
	defer r.Metrics.Begin(r.Plan, past)()
	telling = r.notifying(ctx, past)
	defer context.AfterFunc(ctx, func() {
		if asked.Err() == nil { // the lock is lost, and its new holder tells the rest
			telling.End()
		}
	})()
	return r.carryOut(ctx, lease, records, past, telling)
}

// begin checks what must hold before the journal is read, and writes the plan to the cluster, unless the cluster has
// it, and the desired state.
func (r *Run) begin(ctx context.Context) error {
	if err := HooksRun(r.Plan); err != nil {
		return err
	}
	if r.Begins {
		if err := SignalsRun(r.Plan, r.Desire, nil); err != nil { // before the cluster has the plan
			return err
		}
	}
	if r.Begins && r.MayBegin != nil {
		if err := r.patiently(ctx, r.MayBegin); err != nil {
			return err
		}
	}
	if err := r.endBenchmarks(ctx); err != nil {
		return err
	}
	return r.patiently(ctx, r.enter)
}

// past reads the journal, and checks what must hold before this process adds to it.
func (r *Run) past(ctx context.Context, lease *journal.Lease, inCluster *journal.Cluster,
	records *journal.Mirrored) (past []engine.Record, err error) {
	err = r.patiently(ctx, func(ctx context.Context) (err error) {
		past, err = records.Records(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := MustBeHead(r.Plan.Name, past, r.Head); err != nil {
		return nil, err
	}
	if err := SignalsRun(r.Plan, r.Desire, past); err != nil {
		return nil, err
	}
	if n := len(past); n > 0 {
		if err := r.patiently(ctx,
			func(ctx context.Context) error { return lease.Exceed(ctx, past[n-1].Epoch) }); err != nil {
			return nil, err
		}
	}
	if err := r.patiently(ctx, inCluster.Summarise); err != nil {
		return nil, err
	}
	if r.Admit != nil {
		if err := r.Admit(ctx, past); err != nil {
			return nil, err
		}
	}
	return past, nil
}

// carryOut assembles the parts of a run, and lets the engine continue from the past records.
func (r *Run) carryOut(ctx context.Context, lease *journal.Lease, records *journal.Mirrored, past []engine.Record,
	telling *Telling) (engine.Outcome, error) {
	actor := r.actor(lease.Epoch())
	unwatch, err := actor.Follow(ctx, r.Client)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer unwatch()
	r.keepGraph(ctx, actor)
	gate, err := r.gate(ctx, actor, past)
	if err != nil {
		return engine.Outcome{}, err
	}
	evidence, archive := r.evidence(), newArchive(r.Client.Dynamic, r.Plan.Name)
	if r.Plan.Foreign() {
		if err := r.recall(ctx, archive, evidence, gate, past); err != nil {
			return engine.Outcome{}, err
		}
	}
	if r.Plan.OnNodes() {
		r.resume(ctx, archive, evidence, past)
		defer r.archiving(ctx, archive, evidence)()
		defer r.collect(ctx, actor, evidence)()
	}
	if r.Plan.Foreign() {
		gate.Leaves = evidence.Leaves
		defer r.observing(ctx, evidence)()
	}
	deps := engine.Deps{Actor: r.withPool(actor), Gate: gate}
	if r.Mirrored != nil {
		if deps.Actor, deps.Gate, err = r.Mirrored(ctx, deps, records); err != nil {
			return engine.Outcome{}, err
		}
	}
	if origin := r.Plan.Origin(); r.Follow != nil && origin != nil {
		defer r.Follow(ctx, origin)()
	}
	asking, cut := context.WithCancel(ctx)
	defer cut()
	signals, err := Watch(asking, r.Plan, past)
	if err != nil {
		return engine.Outcome{}, err
	}
	deps.Gate = Asking(deps.Gate, r.Plan, signals)
	if r.Command != nil {
		deps.Actor = r.Command(deps.Actor, gate, signals)
	}
	deps.Actor, deps.Journal = lease.Guard(deps.Actor), r.Metrics.Journal(lease.GuardJournal(records))
	deps.Past, deps.Clock, deps.Together = past, Clock{}, Together(step.MostAtOnce)
	deps.Control, deps.Hold = journal.NewControl(r.Client.Dynamic, r.Plan.Name), r.holding()
	deps.Epoch, deps.By, deps.Theseus, deps.Note = lease.Epoch(), r.Holder, r.Theseus, r.View.Note
	reverts := &kube.Reverts{Actor: actor, Steps: r.Plan.Steps}
	deps.Hindrance = r.hindrance(reverts, past)
	deps.Notify = func(record engine.Record) {
		r.flight.Record(record)
		r.stood = stood(r.stood, record)
		r.Metrics.Record(record)
		telling.Record(record)
		reverts.Learn(record)
		r.counts(record, evidence, gate)
		if record.Event == engine.StepBegan && r.Plan.OnNodes() {
			evidence.Collect(ctx, actor) //nolint:errcheck // the collector retries; the engine reports outages
		}
		r.View.Record(record)
	}
	stop, done := r.Stoppable(r.flight)
	defer done()
	deps.Stop = stop
	return engine.Run(ctx, r.Plan, deps)
}

// gate returns the gate of a run. It counts losses from the first record on, unless the run is Fresh.
func (r *Run) gate(ctx context.Context, actor *kube.Actor, past []engine.Record) (*kube.Gate, error) {
	gate := &kube.Gate{Actor: actor, Since: []v1alpha1.ProbeReport{},
		NoneCompares: !slices.ContainsFunc(r.Plan.Steps, compares)}
	if r.Plan.LossyBefore() {
		gate.Contrast = loss.NewContrast()
	}
	if r.Fresh {
		gate.Since = nil
	} else if held(past) {
		if err := gate.Begin(ctx); err != nil { // before the next step, so that its own losses count
			return nil, err
		}
	}
	return gate, nil
}

// hindrance returns what pauses a run between two steps: a change of versions, or of what earlier steps did. nil if
// nothing does: with a mirror, the original is idle during the change.
func (r *Run) hindrance(reverts *kube.Reverts, past []engine.Record) func(context.Context) string {
	if r.Mirrored != nil || r.Plan.Foreign() {
		return nil
	}
	versions := &kube.Versions{Client: r.Client, Clock: Clock{}}
	reverts.Learn(past...)
	return func(ctx context.Context) string { return cmp.Or(versions.Changed(ctx), reverts.Found(ctx)) }
}

// holding returns what keeps the next step from beginning: neither a window nor a freeze ends what is measured.
func (r *Run) holding() func(context.Context, *step.Step) (engine.Hold, error) {
	if r.Plan.Foreign() {
		return r.measuring
	}
	return r.hold
}

// enter writes the plan to the cluster, unless the cluster has it, and then the desired state. It is idempotent.
func (r *Run) enter(ctx context.Context) error {
	if r.Begins {
		if err := journal.Create(ctx, r.Client.Dynamic, r.Plan); err != nil {
			return err
		}
	} else if err := journal.Settle(ctx, r.Client.Dynamic); err != nil {
		r.View.Say(fmt.Sprintf("warning: orphaned plan pages: %v", err))
	}
	if r.KeepsDesire {
		return nil
	}
	return journal.SetDesire(ctx, r.Client.Dynamic, r.Plan.Name, r.Desire)
}

func (r *Run) actor(epoch int64) *kube.Actor {
	return &kube.Actor{
		Typed: r.Client.Typed, Dynamic: r.Client.Dynamic, Mapper: r.Client.Mapper, Clock: Clock{},
		Migration: r.Plan.Name, Epoch: epoch, Measured: MeasuredBy(r.Plan), Note: r.View.Note, Denied: r.Denied,
	}
}

// compares reports whether the gate of a step compares nodes.
func compares(one step.Step) bool { return one.Gate != nil && one.Gate.Compares() }

// withPool adds hooks that add and remove nodes, if the plan has them.
func (r *Run) withPool(actor *kube.Actor) engine.Actor {
	if len(r.Plan.Hooks()) == 0 {
		return actor
	}
	return &nodepool.Actor{Actor: actor, Typed: actor.Typed, Clock: actor.Clock, Slots: r.Plan.Slots(),
		Known: r.Plan.Cluster.Nodes, Migration: r.Plan.Name, Note: actor.Note}
}

// HooksRun demands that the hooks of a plan can run on this machine.
func HooksRun(p *plan.Plan) error {
	if err := nodepool.Runnable(p.Hooks()...); err != nil {
		return engine.WithHint(err, "install it here, or continue on a machine that has it; --add-hook and "+
			"--remove-hook of theseus plan name it")
	}
	return nil
}

// MustBeHead demands that the journal has this head; "" accepts any.
func MustBeHead(name string, records []engine.Record, head string) error {
	if now := HeadOf(records); head != "" && head != now {
		return engine.NeedsPerson("compare `theseus status` here and on the machine that ran the migration: "+
			"records were added or removed",
			"the journal of %s has the head %s, not %s", name, now, head)
	}
	return nil
}

// HeadOf is the head of a journal: the chain of its last record, "" if it is empty.
func HeadOf(records []engine.Record) string {
	if len(records) == 0 {
		return ""
	}
	return records[len(records)-1].Chain
}

// FailedBefore reports whether an earlier run of the migration ended because it needs a person.
func FailedBefore(records []engine.Record) bool {
	return slices.ContainsFunc(records, func(r engine.Record) bool {
		return r.Event == engine.Finished && r.Result == engine.ResultNeedsPerson
	})
}
