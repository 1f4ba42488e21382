package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// The pauses between two attempts during an outage: short at first, since most outages are short.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
	// longCall is a call that outlived an outage: one that fails after it begins a new one.
	longCall = time.Minute
	// desireInterval is the time between two reads of the operator's desire while a gate measures.
	desireInterval = 2 * time.Second
)

// patiently retries a call during an outage, for at most Options.Patience. It returns all other errors at once.
func (m *machine) patiently(ctx context.Context, what string, call func(context.Context) error) error {
	var since, refusedSince time.Time
	pause := firstPause
	for {
		begun := m.deps.Clock.Now()
		err := call(ctx)
		now := m.deps.Clock.Now()
		switch {
		case !errors.Is(err, ErrRefused):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = now
		}
		switch {
		case err == nil:
			if !since.IsZero() {
				m.away += begun.Sub(since)
				m.say("")
			}
			return nil
		case ctx.Err() != nil:
			return errInterrupted
		case !transient(err):
			return err
		case m.stopped():
			return errInterrupted
		case since.IsZero() || now.Sub(begun) > longCall:
			since, pause = now, firstPause
		case now.Sub(since) >= m.deps.Patience:
			return &gaveUp{what, now.Sub(since), err}
		case !refusedSince.IsZero() && now.Sub(refusedSince) >= m.deps.Settling:
			return &refusedForGood{now.Sub(refusedSince), err}
		}
		m.say(fmt.Sprintf("%s: %v; retrying", what, err))
		if err := m.deps.Clock.Sleep(ctx, pause); err != nil {
			return errInterrupted
		}
		pause = min(2*pause, lastPause)
	}
}

// stopped reports whether the run must end after the current action.
func (m *machine) stopped() bool {
	select {
	case <-m.deps.Stop:
		return true
	default:
		return false
	}
}

// append makes records durable, and then applies them to the state. The end of the context does not interrupt an append
// that has begun, so that what was done is not forgotten.
func (m *machine) append(ctx context.Context, records ...Record) error {
	if len(records) == 0 {
		return nil
	}
	head := m.state.Head
	if head == "" {
		head = m.plan.Hash
	}
	for i := range records {
		records[i].Seq, records[i].Epoch = m.state.Seq+1+i, m.deps.Epoch
		records[i].At = m.deps.Clock.Now().UTC().Round(0)
		var err error
		if records[i].Chain, err = Link(head, records[i]); err != nil {
			return fmt.Errorf("record %d (%s): %w", records[i].Seq, records[i].Event, err)
		}
		head = records[i].Chain
	}
	durable := context.WithoutCancel(ctx)
	err := m.patiently(ctx, "writing the journal", func(context.Context) error {
		return m.deps.Journal.Append(durable, records...)
	})
	if err != nil {
		if errors.Is(err, errInterrupted) {
			return err
		}
		return fmt.Errorf("writing record %d (%s) to the journal: %w", records[0].Seq, records[0].Event, err)
	}
	for _, r := range records {
		if err := m.state.Add(r); err != nil {
			return err
		}
		if m.deps.Notify != nil {
			m.deps.Notify(r)
		}
	}
	return nil
}

// say tells people what the run waits for, once per text; "" forgets the last one.
func (m *machine) say(text string) {
	if text == m.note {
		return
	}
	m.note = text
	if text != "" && m.deps.Note != nil {
		m.deps.Note(text)
	}
}

// desire reads what the operator asks for.
func (m *machine) desire(ctx context.Context) (v1alpha1.Desire, error) {
	var desire v1alpha1.Desire
	err := m.patiently(ctx, "reading the migration's desired state", func(ctx context.Context) (err error) {
		desire, err = m.deps.Control.Desire(ctx)
		return err
	})
	return desire, err
}

// fresh makes the next read of what the operator asks for one that is made then: what follows cannot be undone.
func (m *machine) fresh() {
	if control, is := m.deps.Control.(Fresher); is {
		control.Fresh()
	}
}

// hindered pauses a run that should not continue just now.
func (m *machine) hindered(ctx context.Context) error {
	if m.deps.Hindrance == nil {
		return nil
	}
	if cause := m.deps.Hindrance(ctx); cause != "" {
		return m.pause(ctx, cause)
	}
	return nil
}

// followDesire does what the operator asks for: it continues, pauses, or turns back.
func (m *machine) followDesire(ctx context.Context) error {
	if ctx.Err() != nil || m.stopped() {
		return errInterrupted
	}
	desire, err := m.desire(ctx)
	if err != nil {
		return err
	}
	switch {
	case desire == v1alpha1.DesireRun:
		return m.hindered(ctx)
	case desire == v1alpha1.DesirePause:
		if err := m.append(ctx, Record{Event: Paused, Data: m.asked(), By: m.deps.By}); err != nil {
			return err
		}
		return errPaused
	case desire != v1alpha1.DesireRollback:
		return WithHint(fmt.Errorf("the migration's desired state is %q, which is unknown", desire),
			"use `theseus pause`, `theseus resume` or `theseus rollback`")
	case m.state.Undoing:
		return nil
	case m.state.PastReturn(m.plan.Steps):
		return m.pause(ctx, "a rollback was requested after the point of no return, but is no longer possible")
	}
	if err := m.append(ctx, Record{Event: RollingBack, Result: ResultAsked, Error: "the operator requested it",
		Data: m.asked(), By: m.deps.By}); err != nil {
		return err
	}
	return errTurn
}

// Asked is the data of records of what a person asked for.
type Asked struct {
	By string `json:"askedBy"`
}

// asked is the data that says who asked for the desired state; nil if that is not known.
func (m *machine) asked() json.RawMessage {
	asker, ok := m.deps.Control.(Asker)
	if !ok || asker.AskedBy() == "" {
		return nil
	}
	data, _ := json.Marshal(Asked{asker.AskedBy()}) // a string always can be written
	return data
}

// AskedBy is the user who asked for the pause, the rollback or the continuation of a record; empty if that is not
// known.
func AskedBy(r Record) string {
	var asked Asked
	if r.Event == Paused || r.Event == RollingBack || r.Event == Resumed {
		_ = json.Unmarshal(r.Data, &asked) // records of earlier versions have none
	}
	return asked.By
}

func (m *machine) pause(ctx context.Context, cause string) error {
	if err := m.append(ctx, Record{Event: Paused, Error: cause, By: m.deps.By}); err != nil {
		return err
	}
	return errPaused
}
