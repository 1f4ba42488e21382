package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/metrics"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

// HolderPrefix begins the name under which a controller holds the lock.
const HolderPrefix = "theseus-controller@"

// pollEvery is the interval at which the controller reads Migrations.
const pollEvery = 2 * time.Second

// Controller runs the Migrations of a cluster whose spec asks for that, one at a time.
type Controller struct {
	Client *kube.Client
	// Holder names this controller for the lock and the journal; it begins with HolderPrefix.
	Holder string
	// Approvals is how many users must approve a plan; at least 1.
	Approvals int
	// Signers is the file with the list of those whose signatures count, in the format of ssh-keygen. With it, and
	// wherever the API server does not tie approvals to users, only signed approvals count. "" means no list.
	Signers string
	// Dir is the folder for what a run keeps on this machine: the copy of the journal, and the evidence.
	Dir string
	// Version is that of this program.
	Version string
	// Planning is true if package changes makes plans in this process, and withdraws those of Changes that were edited.
	Planning bool
	// Memory is what this process may use.
	Memory admission.Memory
	// Out gets a line for everything that happens.
	Out io.Writer
	// Metrics count what happens; they may be nil.
	Metrics *metrics.Metrics
	// MaxWrites is how many writes a second a run sends to the API server on average; 0 means no bound.
	MaxWrites int
	// Notify returns what gets the news of runs, nil if nothing does now; it may be nil.
	Notify func() *notify.Target
	// Events records events; it may be nil.
	Events record.EventRecorder

	plans  map[string]*loaded // by name
	plan   *plan.Plan         // the one that was read last, until it runs: more do not fit into the memory
	again  map[string]*pause  // by name
	unread map[string]*pause  // by name: the plan, or the journal, could not be read
	unsaid map[string]*unsaid // by name
	turned atomic.Int64       // when the loop turned last, in Unix seconds
	busy   atomic.Bool        // a run is under way
	said   string             // the last error of a turn
	drops  bool               // the CRD is of an older version: the API server drops the count of approvals
}

// loaded is what is known of a Migration's plan.
type loaded struct {
	hash  string
	unfit *Obstacle       // why the controller does not run it, or nil
	lacks bool            // it could not be read: a person may restore it
	takes []time.Duration // how much of a window each of its steps needs
}

// pause is how long the controller leaves a Migration alone after failures in a row.
type pause struct {
	failures int
	until    time.Time
	asked    v1alpha1.Observed
}

// Run looks after Migrations until ctx ends. A run that is under way then stops after its current action.
func (c *Controller) Run(ctx context.Context) error {
	c.plans, c.unsaid = map[string]*loaded{}, map[string]*unsaid{}
	c.again, c.unread = map[string]*pause{}, map[string]*pause{}
	c.say("theseus-controller %s begins as %s; a plan needs %s",
		c.Version, c.Holder, cluster.Count(c.Approvals, "approval"))
	for {
		err := c.turn(ctx)
		c.turned.Store(time.Now().Unix())
		c.note(ctx, err)
		if outage.Sleep(ctx, pollEvery) != nil {
			c.forgetUnsaid(func(string) bool { return true })
			c.say("theseus-controller ends")
			return nil
		}
	}
}

// note prints the error of a turn, once for several of the same.
func (c *Controller) note(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = outage.Steady(err).Error()
	}
	if text != "" && text != c.said {
		c.say("waiting: %s", text)
	}
	c.said = text
}

// Healthy reports whether the loop turns, or a run is under way.
func (c *Controller) Healthy() bool {
	return c.busy.Load() || time.Since(time.Unix(c.turned.Load(), 0)) < 2*time.Minute
}

// turn decides about every Migration, and executes at most one.
func (c *Controller) turn(ctx context.Context) error {
	all, err := journal.List(ctx, c.Client.Dynamic)
	if err != nil {
		return err
	}
	c.forget(all)
	c.Metrics.Migrations(all)
	s := Situation{Needed: max(c.Approvals, 1), Now: time.Now()}
	var ready []v1alpha1.Migration
	failures := []error{c.tellUnsaid(ctx, all)} // of one Migration, which do not keep the others waiting
	decided := map[string]Decision{}
	for i := range all {
		m := &all[i]
		if !mine(m) {
			continue
		}
		if s.Approvals == nil { // read once a turn, and only if needed
			s.Approvals, err = listApprovals(ctx, c.Client.Dynamic)
			if s.OldCRDs = apierrors.IsNotFound(err); s.OldCRDs {
				s.Approvals, err = []v1alpha1.Approval{}, nil
			}
			if err != nil {
				return err
			}
			if s.Policy, err = readPolicy(ctx, c.Client); err != nil {
				return err
			}
			s.Signers = readSigners(c.Signers)
			if s.Freeze, err = journal.Freeze(ctx, c.Client.Dynamic); err != nil {
				return err
			}
		}
		s.Migration, s.Unfit = m, nil
		if m.Spec.InCluster && !over(m) {
			if approved, _ := approval(s); approved.True { // a plan without approvals is not even read
				if s.Unfit, err = c.unfit(ctx, m); err != nil {
					failures = append(failures, err)
					continue
				}
			}
		}
		s.Next = c.next(m)
		decision := Decide(s)
		if decision.Do == Execute {
			ready = append(ready, *m)
			decided[m.Name] = decision
			continue
		}
		failures = append(failures, c.follow(ctx, m, decision))
	}
	return errors.Join(append(failures, c.choose(ctx, ready, decided))...)
}

// next is how much of a window the step needs that a Migration begins next; 0 if its plan has not been read.
func (c *Controller) next(m *v1alpha1.Migration) time.Duration {
	if known := c.plans[m.Name]; known != nil && m.Status.Done < len(known.takes) {
		return known.takes[m.Status.Done]
	}
	return 0
}

// choose executes one of the Migrations that may run, and tells the others that they wait for it.
func (c *Controller) choose(ctx context.Context, ready []v1alpha1.Migration, decided map[string]Decision) error {
	i := pick(ready)
	if i < 0 {
		return nil
	}
	for j := range ready {
		if j == i {
			continue
		}
		told := decided[ready[j].Name].Conditions
		told.Progressing = no(v1alpha1.ReasonWaiting, "migration "+ready[i].Name+" runs first")
		if err := c.write(ctx, &ready[j], told, nil); err != nil {
			return err
		}
	}
	m := &ready[i]
	if c.again[m.Name].rests(m) {
		return nil
	}
	if err := c.write(ctx, m, decided[m.Name].Conditions, nil); err != nil {
		return err
	}
	p, err := c.take(ctx, m)
	if err != nil {
		return err
	}
	return c.execute(ctx, m, p)
}

// take returns the plan of a Migration that was found fit, and does not keep it.
func (c *Controller) take(ctx context.Context, m *v1alpha1.Migration) (*plan.Plan, error) {
	if p := c.plan; p != nil && p.Name == m.Name && p.Hash == m.Spec.PlanHash {
		c.plan = nil
		return p, nil
	}
	delete(c.plans, m.Name)
	unfit, err := c.unfit(ctx, m)
	p := c.plan
	c.plan = nil
	if err == nil && (unfit != nil || p == nil) {
		// the next turn says what it is
		err = fmt.Errorf("%w: the plan of %s is not what was read before", engine.ErrUnavailable, m.Name)
	}
	return p, err
}

// follow does what was decided about a Migration that is not executed.
func (c *Controller) follow(ctx context.Context, m *v1alpha1.Migration, decision Decision) error {
	switch decision.Do {
	case Tell:
		return c.write(ctx, m, decision.Conditions, nil)
	case Recount:
		return c.recount(ctx, m)
	}
	return c.write(ctx, m, Conditions{}, nil) // those that an earlier release did not derive from the others
}

// recount writes the conditions that follow from the journal.
func (c *Controller) recount(ctx context.Context, m *v1alpha1.Migration) error {
	if c.unread[m.Name].rests(m) {
		return nil
	}
	state, ways, err := c.standing(ctx, m)
	switch {
	case err != nil && over(m) && !transient(err): // the summary says how it ended, and nothing is left to do
		state = engine.State{Phase: engine.Phase(m.Status.Phase), Cause: "the journal cannot be read: " + err.Error()}
	case err != nil:
		return c.tellUnread(ctx, m, err)
	}
	delete(c.unread, m.Name)
	told, ok := ended(state, ways)
	if !ok {
		return nil // the summary in the status is older than the journal
	}
	seen := asked(m)
	return c.write(ctx, m, told, &seen)
}

// standing replays the journal of a Migration, and says how it can continue.
func (c *Controller) standing(ctx context.Context, m *v1alpha1.Migration) (engine.State, string, error) {
	records, err := journal.NewCluster(c.Client.Dynamic, m.Name).Records(ctx)
	if err != nil {
		return engine.State{}, "", err
	}
	state, err := engine.Replay(records)
	if err != nil || state.Over() {
		return state, "", err
	}
	p, _, err := journal.LoadWithin(ctx, c.Client.Dynamic, m.Name, c.Memory.PlanBytes())
	if err != nil {
		return state, "", err
	}
	return state, engine.Judge(p.Steps, state, false).Ways, nil
}

// tellUnread tells that a plan or a journal cannot be read, unless that may go away. It is read again after a while.
func (c *Controller) tellUnread(ctx context.Context, m *v1alpha1.Migration, err error) error {
	if transient(err) {
		return err
	}
	obstacle, err := c.obstacle(ctx, m, err)
	if err != nil {
		return err
	}
	later(c.unread, m)
	return c.write(ctx, m, obstructed(*obstacle), nil)
}

// unfit loads a Migration's plan, once, and says why the controller cannot run it; nil if it can. A plan that cannot be
// read is read again after a while: a person may restore it.
func (c *Controller) unfit(ctx context.Context, m *v1alpha1.Migration) (*Obstacle, error) {
	if known := c.plans[m.Name]; known != nil && known.hash == m.Spec.PlanHash &&
		(!known.lacks || c.unread[m.Name].rests(m)) {
		return known.unfit, nil
	}
	found := &loaded{hash: m.Spec.PlanHash}
	c.plan = nil
	p, _, err := journal.LoadWithin(ctx, c.Client.Dynamic, m.Name, c.Memory.PlanBytes())
	if err != nil && transient(err) {
		return nil, err
	}
	var large *plan.TooLarge
	switch {
	case errors.As(err, &large):
		if found.unfit, err = c.obstacle(ctx, m, err); err != nil {
			return nil, err
		}
	case err != nil:
		if found.unfit, err = c.obstacle(ctx, m, err); err != nil {
			return nil, err
		}
		found.lacks = true
		later(c.unread, m)
	case p.Hash != m.Spec.PlanHash:
		// the approvals are of the hash that was listed, and Load has read the Migration again
		return nil, fmt.Errorf("the plan of %s was changed while it was read: it has the hash %s, not %s",
			m.Name, p.Hash, m.Spec.PlanHash)
	default:
		delete(c.unread, m.Name)
		c.plan = p
		for i := range p.Steps {
			found.takes = append(found.takes, p.Takes(&p.Steps[i]))
		}
		var refusal *admission.Refusal
		if errors.As(admission.InCluster(p), &refusal) {
			found.unfit = &Obstacle{refusal.Reason, sentence(refusal.Error(), refusal.Hint())}
		}
	}
	c.plans[m.Name] = found
	return found.unfit, nil
}

// obstacle is why a plan or a journal cannot be used. If another release wrote it, that is the likely cause.
func (c *Controller) obstacle(ctx context.Context, m *v1alpha1.Migration, err error) (*Obstacle, error) {
	if large, ok := errors.AsType[*plan.TooLarge](err); ok {
		refusal := c.Memory.FitsPlan(m.Name, large.Limit+1)
		return &Obstacle{v1alpha1.ReasonTooLarge, sentence(refusal.Error()+" or more", engine.HintOf(refusal))}, nil
	}
	by, failed := journal.WrittenBy(ctx, c.Client.Dynamic, m.Name)
	if failed != nil && transient(failed) {
		return nil, failed
	}
	if by != "" && by != c.Version {
		return &Obstacle{v1alpha1.ReasonUnknownFormat,
			sentence(fmt.Sprintf("theseus %s wrote this migration, and this is %s: %v", by, c.Version, err),
				"continue with `theseus resume` of release "+by+", or install its chart")}, nil
	}
	return &Obstacle{v1alpha1.ReasonNeedsPerson, sentence(err.Error(), engine.HintOf(err))}, nil
}

// forget drops what is known about Migrations that were deleted.
func (c *Controller) forget(all []v1alpha1.Migration) {
	gone := func(name string) bool {
		return !slices.ContainsFunc(all, func(m v1alpha1.Migration) bool { return m.Name == name })
	}
	maps.DeleteFunc(c.plans, func(name string, _ *loaded) bool { return gone(name) })
	maps.DeleteFunc(c.again, func(name string, _ *pause) bool { return gone(name) })
	maps.DeleteFunc(c.unread, func(name string, _ *pause) bool { return gone(name) })
	c.forgetUnsaid(gone)
}

// rests reports whether a Migration is to be left alone now. A person who asks for something else ends that.
func (p *pause) rests(m *v1alpha1.Migration) bool {
	return p != nil && p.asked == asked(m) && time.Now().Before(p.until)
}

// later makes the controller leave a Migration alone for a while, and returns for how long.
func (c *Controller) later(m *v1alpha1.Migration) time.Duration { return later(c.again, m) }

// later counts a failure with a Migration among the pauses, and returns how long the next one is.
func later(pauses map[string]*pause, m *v1alpha1.Migration) time.Duration {
	p := pauses[m.Name]
	if p == nil || p.asked != asked(m) {
		p = &pause{asked: asked(m)}
		pauses[m.Name] = p
	}
	p.failures++
	after := pauseAfter(p.failures)
	p.until = time.Now().Add(after)
	return after
}

// event records an event of a Migration.
func (c *Controller) event(m *v1alpha1.Migration, kind, reason, message string) {
	if c.Events == nil {
		return
	}
	c.Events.Event(&corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: "Migration",
		Namespace: m.Namespace, Name: m.Name, UID: m.UID}, kind, reason, fits(message))
}

// fits is the message of an event, without its middle if it is too long: what to do is at its end.
func fits(message string) string {
	const most = 1000 // the API server refuses messages of more than 1024 bytes
	if n := len(message); n > most {
		message = strings.ToValidUTF8(message[:most/2], "") + " ... " + strings.ToValidUTF8(message[n-most/2:], "")
	}
	return message
}

func over(m *v1alpha1.Migration) bool {
	phase := engine.Phase(m.Status.Phase)
	return phase == engine.PhaseDone || phase == engine.PhaseRolledBack
}

// transient reports whether an error may go away by itself.
func transient(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrRefused) ||
		errors.Is(err, context.Canceled) ||
		outage.Passes(err) || outage.Refused(err) || apierrors.IsForbidden(err)
}
