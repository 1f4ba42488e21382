package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// execute carries out a plan, and writes how that ended.
func (c *Controller) execute(ctx context.Context, m *v1alpha1.Migration, p *plan.Plan) error {
	c.busy.Store(true)
	defer c.busy.Store(false)
	dir := filepath.Join(c.Dir, string(m.UID), p.Name) // a Migration that is made again under the same name is another
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	began := asked(m)
	view := newView(&run.Lines{Out: c.Out, Script: run.NewScript(p), Begun: time.Now()}, p, began,
		func(kind, reason, message string) { c.event(m, kind, reason, message) },
		func(about corev1.ObjectReference, kind, reason, message string) {
			c.eventAbout(m, about, kind, reason, message)
		})
	halt := &halt{stop: make(chan struct{})}
	running, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	stopWatching := c.watch(ctx, m.Name, halt, abandon)
	stopPublishing := view.publish(running, func(ctx context.Context, next news) error {
		return c.write(ctx, m, next.conditions, next.observed)
	})
	c.forgetUnsaid(func(name string) bool { return name == m.Name }) // the run tells it
	execution := &run.Run{
		Client: c.Client, Plan: p, View: view, KeepsDesire: true, Continues: true, Holder: c.Holder, Dir: dir,
		Theseus: c.Version, MaxWrites: c.MaxWrites, Metrics: c.Metrics, Notify: c.target(), Waiting: func(err error) {
			view.Say("waiting for the API server: " + err.Error())
		},
		Stoppable: func(*run.Flight) (<-chan struct{}, func()) {
			halt.begin()
			return halt.stop, func() {}
		},
	}
	execution.Admit = func(ctx context.Context, past []engine.Record) error {
		state, err := engine.Replay(past)
		// a person has seen the losses before that
		execution.Fresh = err == nil && state.Phase == engine.PhaseNeedsPerson
		return c.admit(ctx, m, p, past)
	}
	outcome, err := execution.Execute(running)
	stopPublishing()
	stopWatching()
	return c.conclude(context.WithoutCancel(ctx), m, view, halt, outcome, err)
}

// errSettled ends a run of a Migration that was withdrawn, or is about to be; or a run whose journal says that it has
// stopped for a person, while the summary in the status did not say so yet.
var errSettled = errors.New("the migration has stopped, and no user has resumed it")

// admit checks what must hold before a run continues, and before the first record of its journal. The lock is held.
func (c *Controller) admit(ctx context.Context, m *v1alpha1.Migration, p *plan.Plan, past []engine.Record) error {
	now, err := journal.Get(ctx, c.Client.Dynamic, m.Name)
	if apierrors.IsNotFound(err) {
		return errSettled // withdrawn, such as after an edit of its Change
	}
	if err != nil {
		return err
	}
	if now.UID != m.UID || now.Spec.PlanHash != p.Hash {
		return fmt.Errorf("%s was replaced or changed: its plan has the hash %s, but the approved plan has %s",
			m.Name, now.Spec.PlanHash, p.Hash)
	}
	if len(past) > 0 {
		state, err := engine.Replay(past)
		if err == nil && state.Waits() && answered(m) {
			return errSettled
		}
		return admission.SameCluster(ctx, c.Client, p)
	}
	if why, err := c.outdated(ctx, m); err != nil || why != "" {
		if err == nil && !c.Planning {
			err = admission.Refuse(v1alpha1.ReasonChangeEdited,
				"turn planning on again (planning.enabled of the chart), and the controller makes another plan; "+
					"or `kubectl -n "+v1alpha1.Namespace+" delete migration "+m.Name+"`, and plan with `theseus plan`",
				"%s, so the plan is outdated; this controller makes no plans", why)
		}
		return cmp.Or(err, errSettled)
	}
	return admission.Check(ctx, admission.Request{Client: c.Client, Plan: p, Entered: true,
		Holder: c.Holder, Version: c.Version})
}

// halt ends a run after its current action.
type halt struct {
	lock    sync.Mutex
	stop    chan struct{}
	closed  bool
	engaged bool // the engine runs, and reads stop
	// handed is true if the run ends because a command line wants it.
	handed bool
}

func (h *halt) begin() {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.engaged = true
}

// end closes the channel. It reports whether the engine does not run yet, so that nothing will read it.
func (h *halt) end(handed bool) (early bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if !h.closed {
		h.closed, h.handed = true, handed
		close(h.stop)
	}
	return !h.engaged
}

func (h *halt) wanted() bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.handed
}

// watch ends a run when ctx ends, or when the Migration is taken from the controller.
func (c *Controller) watch(ctx context.Context, name string, h *halt, abandon func()) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	end := func(handed bool) {
		if h.end(handed) {
			abandon()
		}
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-ctx.Done():
				end(false)
				return
			case <-tick.C:
			}
			if all, err := journal.List(ctx, c.Client.Dynamic); err == nil {
				c.Metrics.Migrations(all)
				if slices.ContainsFunc(all,
					func(m v1alpha1.Migration) bool { return m.Name == name && !m.Spec.InCluster }) {
					end(true)
					return
				}
			}
		}
	}()
	return func() { close(over); <-done }
}

// tellFor is how long the controller tries to write how a run ended. If it cannot, a later turn does it from the
// journal.
var tellFor = outage.Limits{Away: time.Minute, Refused: 20 * time.Second}

// conclude writes how a run ended into the conditions.
func (c *Controller) conclude(ctx context.Context, m *v1alpha1.Migration, v *view, h *halt,
	outcome engine.Outcome, err error) error {
	told, observed := c.told(ctx, m, v, h, outcome, err)
	if told == (Conditions{}) {
		return nil
	}
	failed := outage.Retry(ctx, tellFor, nil,
		func(ctx context.Context) error { return c.write(ctx, m, told, observed) })
	if failed != nil && told.Degraded.True { // what keeps the run from its journal may keep this from the status
		c.event(m, corev1.EventTypeWarning, told.Degraded.Reason, told.Degraded.Message)
	}
	return failed
}

// told are the conditions for the end of a run. They are empty if there is nothing to tell.
func (c *Controller) told(ctx context.Context, m *v1alpha1.Migration, v *view, h *halt, outcome engine.Outcome,
	err error) (Conditions, *v1alpha1.Observed) {
	var observed *v1alpha1.Observed
	if v.begun() {
		followed := followed(v.attempt, outcome.State)
		observed = &followed
	}
	var another *journal.HeldError
	var refusal *admission.Refusal
	if told, over := ended(outcome.State, outcome.Hint); err == nil && over {
		delete(c.again, m.Name)
		c.say("%s: %s", m.Name, sentence(string(outcome.End)+" "+outcome.Cause, outcome.Hint))
		return told, observed
	}
	cause, advice := admission.Cause(err)
	switch {
	case errors.Is(err, errSettled): // the next turn writes the conditions
		if held(m) { // it does so only if these do not say that the run continues by itself
			return Conditions{Paused: initial.Paused}, nil
		}
		return Conditions{}, nil
	case h.wanted():
		c.say("%s: handed over to a command line", m.Name)
		return handedOver(m), observed
	case errors.As(err, &refusal):
		c.later(m)
		return obstructed(Obstacle{refusal.Reason, c.refused(m, refusal)}), observed
	case cause != "":
		c.later(m)
		return obstructed(Obstacle{cause, sentence(err.Error(), advice)}), observed
	case apierrors.IsForbidden(err): // it was retried: the API server is not just starting
		c.later(m)
		return obstructed(Obstacle{v1alpha1.ReasonRightsMissing, sentence(err.Error(), grant)}), observed
	case errors.As(err, &another):
		if strings.HasPrefix(another.Holder, HolderPrefix) {
			return Conditions{}, nil // the other controller tells how far it is
		}
		return Conditions{Progressing: no(v1alpha1.ReasonHeldByAnother,
			sentence(another.Error(), "the controller continues when it has ended"))}, observed
	case err != nil && h.closed:
		return Conditions{}, observed // stopped before it began
	case err != nil && !transient(err):
		obstacle, failed := c.obstacle(ctx, m, err)
		if failed == nil {
			c.later(m) // or each turn would take the lock, and fail again
			seen := asked(m)
			return obstructed(*obstacle), &seen
		}
		err = failed
	}
	if err != nil {
		after := c.later(m)
		c.say("%s: %v; retrying in %s", m.Name, err, after)
		return retrying(err, after), observed
	}
	c.say("%s: %s", m.Name, sentence(string(outcome.End)+" "+outcome.Cause, outcome.Hint))
	return c.unsettled(m, h, outcome), observed
}

// followed is what a run has done of what was asked: an operator may have asked for a pause or a rollback while it ran.
func followed(began v1alpha1.Observed, state engine.State) v1alpha1.Observed {
	switch {
	case state.Phase == engine.PhasePaused && state.Cause == "":
		began.Desire = v1alpha1.DesirePause
	case state.Undoing && state.Asked:
		began.Desire = v1alpha1.DesireRollback
	}
	return began
}

// unsettled are the conditions of a run that the engine ended while its journal says that it continues.
func (c *Controller) unsettled(m *v1alpha1.Migration, h *halt, outcome engine.Outcome) Conditions {
	switch {
	case outcome.State.Back != "": // the step that failed was undone, and the rest needs a person
		return obstructed(Obstacle{v1alpha1.ReasonNeedsPerson, sentence(outcome.Cause, outcome.Hint)})
	case h.closed:
		return Conditions{Progressing: no(v1alpha1.ReasonWaiting,
			"the controller was stopped between two actions; the next one continues")}
	}
	return retrying(errors.New(outcome.Cause), c.later(m))
}

// grant is how a person gives the controller the permissions for a plan.
const grant = "grant the controller the permissions for the plan: theseus rights operate --plan " +
	"PLAN --for serviceaccount:" +
	v1alpha1.Namespace + "/" + manifest.ControllerName + " | kubectl apply -f -"

// refused is the message for a plan that may not begin.
func (c *Controller) refused(m *v1alpha1.Migration, refusal *admission.Refusal) string {
	if refusal.Reason == v1alpha1.ReasonRightsMissing {
		return sentence(refusal.Error()+": "+list(refusal), grant)
	}
	if refusal.Result.Blocks() && refusal.LacksRights() {
		return sentence(refusal.Error()+": "+list(refusal),
			grant+"; and fix the others, or accept them in a new plan: theseus plan --accept ID=REASON")
	}
	if refusal.Result.Blocks() {
		return sentence(refusal.Error()+": "+list(refusal),
			"fix them; or accept them in a new plan: theseus plan --accept ID=REASON")
	}
	return sentence(refusal.Error(), refusal.Hint())
}

// list are the first findings of a refusal.
func list(refusal *admission.Refusal) string {
	const most = 5
	var texts []string
	all := admission.Blocking(refusal.Result)
	for _, f := range all[:min(len(all), most)] {
		texts = append(texts, f.ID+": "+f.Message)
	}
	if len(all) > most {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(texts, "; ")
}
