package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// view shows a run as lines, conditions and events. Its methods are called by the engine, and never wait for the API
// server: conditions are written by publish, and events by the recorder.
type view struct {
	*run.Lines
	script  *run.Script
	news    *run.Narrator
	event   func(kind, reason, message string)
	herald  *herald
	attempt v1alpha1.Observed

	lock     sync.Mutex
	state    engine.State
	pending  *news
	observed bool   // a record of this run was written
	hindered string // the reason that was told in the present step
	// hindrances are what keeps pods from starting now, the latest last.
	hindrances []hindrance
}

// hindrance is what keeps pods from starting, with what a person can do.
type hindrance struct{ kind, reason, message string }

// news is the next status of a Migration.
type news struct {
	conditions Conditions
	observed   *v1alpha1.Observed
}

func newView(lines *run.Lines, p *plan.Plan, asked v1alpha1.Observed, event func(kind, reason, message string),
	about func(about corev1.ObjectReference, kind, reason, message string)) *view {
	script := run.NewScript(p)
	return &view{Lines: lines, script: script, news: run.NewNarrator(script), event: event,
		herald: newHerald(p, script, about), attempt: asked, state: engine.State{Phase: engine.PhaseNew}}
}

// Past implements run.View.
func (v *view) Past(records []engine.Record) {
	v.Lines.Past(records)
	v.lock.Lock()
	defer v.lock.Unlock()
	v.script.Learn(records)
	for _, r := range records {
		v.news.News(r)
		v.herald.hear(r, true)
	}
	if state, err := engine.Replay(records); err == nil { // the engine reports a journal that cannot be replayed
		v.state = state
	}
}

// Record implements run.View.
func (v *view) Record(r engine.Record) {
	v.Lines.Record(r)
	v.lock.Lock()
	defer v.lock.Unlock()
	if err := v.state.Add(r); err != nil {
		return // the engine has added it too, and ends with this error
	}
	v.observed = true
	if r.Event == engine.StepBegan {
		v.hindered = ""
	}
	v.script.Learn([]engine.Record{r})
	v.herald.hear(r, false)
	// these two are told as conditions are, with a hint, once the run has returned it
	hinted := []string{v1alpha1.ReasonRolledBack, v1alpha1.ReasonNeedsPerson}
	if news := v.news.News(r); news.Reason != "" && !slices.Contains(hinted, news.Reason) {
		kind := corev1.EventTypeNormal
		if news.Warning {
			kind = corev1.EventTypeWarning
		}
		v.event(kind, news.Reason, news.Message)
	}
	if _, over := ended(v.state, ""); !over { // the end is told with its hint, too
		asked := v.attempt
		v.hindrances = nil // of the action that has ended; another one that still waits says so by its event
		v.pending = &news{running(v.state, v.where()), &asked}
	}
}

// Note implements run.View. What keeps the pods of a step from starting is told at once, with what a person can do: the
// run waits a while for it before it gives up. Its end is told, too.
func (v *view) Note(text string) {
	v.Lines.Note(text)
	kind := outage.Hindrance(text)
	if kind == "" {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	before := len(v.hindrances)
	v.hindrances = slices.DeleteFunc(v.hindrances, func(h hindrance) bool { return h.kind == kind })
	if outage.IsResolved(text) {
		if len(v.hindrances) < before {
			v.hinder()
		}
		return
	}
	reason, hint := outage.Hindering(text)
	message := v.where() + ": " + sentence(text, hint)
	v.hindrances = append(v.hindrances, hindrance{kind, reason, message})
	v.hinder()
	if v.hindered != reason {
		v.hindered = reason
		v.event(corev1.EventTypeWarning, reason, message)
	}
}

// hinder tells the latest hindrance; or the current step, if there is none.
func (v *view) hinder() {
	told, asked := running(v.state, v.where()), v.attempt
	if n := len(v.hindrances); n > 0 {
		told.Progressing = yes(v.hindrances[n-1].reason, v.hindrances[n-1].message)
	}
	v.pending = &news{told, &asked}
}

// where is the current step.
func (v *view) where() string {
	if v.state.Step == "" {
		return "between two steps"
	}
	return v.script.Place(v.state.Step)
}

// take returns what has changed since the last call; nil if nothing has.
func (v *view) take() *news {
	v.lock.Lock()
	defer v.lock.Unlock()
	next := v.pending
	v.pending = nil
	return next
}

// begun reports whether this run has written a record, so that what its spec asked for is being done.
func (v *view) begun() bool {
	v.lock.Lock()
	defer v.lock.Unlock()
	return v.observed
}

// publish writes the news of a view at most once a second, until the returned function is called. What cannot be
// written is tried again a second later, unless there is newer news.
func (v *view) publish(ctx context.Context, write func(context.Context, news) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			if next := v.take(); next != nil {
				if err := write(ctx, *next); err != nil {
					v.putBack(next)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (v *view) putBack(old *news) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.pending == nil {
		v.pending = old
	}
}

// now is a line about the controller itself.
func (c *Controller) say(format string, args ...any) {
	fmt.Fprintf(c.Out, "%s  %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}
