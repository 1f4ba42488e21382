package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Actor implements engine.Actor for the operation step.DNS.
type Actor struct {
	Zones []*Zone
	// Resolvers are resolvers (host:port) that must show a change, in addition to the authoritative servers.
	Resolvers []string
	Prober    *Prober
	Clock     Clock
	// Note is called with what is being waited for; it may be nil.
	Note func(string)
}

func (a *Actor) zone(name string) (*Zone, error) {
	for _, z := range a.Zones {
		if z.Name == name {
			return z, nil
		}
	}
	return nil, engine.WithHint(fmt.Errorf("the zone %s is not in the zones file", name),
		"give the same --zones file as for the plan")
}

func (a *Actor) note(format string, args ...any) {
	if a.Note != nil {
		a.Note(fmt.Sprintf(format, args...))
	}
}

func encode(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // plain data
	}
	return data
}

// due is the stored end of a rest, the same for every process that waits.
type due struct {
	Until time.Time `json:"until"`
}

// Observe implements engine.Actor.
func (a *Actor) Observe(ctx context.Context, action step.Action, before json.RawMessage) (engine.Observation, error) {
	if action.Op() != step.OpDNS {
		return engine.Observation{}, fmt.Errorf("action %s: %q is not an operation on DNS", action.ID, action.Op())
	}
	switch action.Verb() {
	case shift.Swap:
		args, err := step.Arguments[shift.SwapArgs](action)
		if err != nil {
			return engine.Observation{}, err
		}
		return a.look(ctx, args)
	case shift.Rest:
		args, err := step.Arguments[shift.RestArgs](action)
		if err != nil {
			return engine.Observation{}, err
		}
		until := due{a.Clock.Now().Add(time.Duration(args.Seconds) * time.Second)}
		if before != nil && json.Unmarshal(before, &until) != nil {
			return engine.Observation{}, fmt.Errorf("action %s: the journal does not say until when to wait: %s",
				action.ID, before)
		}
		return engine.Observation{Done: !a.Clock.Now().Before(until.Until), Before: encode(until)}, nil
	case shift.Prove:
		args, err := step.Arguments[shift.ProveArgs](action)
		if err != nil {
			return engine.Observation{}, err
		}
		return engine.Observation{Inverse: inverse(shift.See, "check that every server shows the former "+
			"records", args.Back, action)}, nil
	case shift.See:
		return engine.Observation{}, nil
	}
	return engine.Observation{}, fmt.Errorf("action %s: unknown verb %q", action.ID, action.Verb())
}

func inverse(verb, title string, args any, of step.Action) *step.Action {
	return &step.Action{Do: step.DNS{Verb: verb, Args: encode(args)}, Title: title, Timeout: of.Timeout}
}

// look says where a transaction stands. It can be in one of two places; any other state was made by another client.
func (a *Actor) look(ctx context.Context, args shift.SwapArgs) (engine.Observation, error) {
	todo, others, err := a.standing(ctx, args.Transaction)
	if err != nil {
		return engine.Observation{}, err
	}
	if len(others) > 0 && !args.Yield {
		return engine.Observation{}, conflict(others)
	}
	if len(todo.Units) == 0 {
		return engine.Observation{Done: len(others) == 0}, nil
	}
	back := shift.SwapArgs{Transaction: todo.Inverse(), Yield: true}
	return engine.Observation{Inverse: inverse(shift.Swap, "move back "+names(back.Units), back, step.Action{})}, nil
}

// standing sorts the units: those that are still to be changed, and what is wrong with those that another client has
// changed.
func (a *Actor) standing(ctx context.Context, t zone.Transaction) (todo zone.Transaction, others []string, err error) {
	z, err := a.zone(t.Zone)
	if err != nil {
		return todo, nil, err
	}
	current, err := z.Read(ctx, t.Places())
	if err != nil {
		return todo, nil, err
	}
	todo.Zone = t.Zone
	for _, u := range t.Units {
		switch state := u.State(current); {
		case state == zone.Before, state == zone.Other && z.piecemeal() && u.Between(current):
			todo.Units = append(todo.Units, u)
		case state == zone.Other:
			others = append(others, u.Differs(current))
		}
	}
	return todo, others, nil
}

func conflict(others []string) error {
	text := strings.Join(others[:min(3, len(others))], "; ")
	if more := len(others) - 3; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return engine.WithHint(fmt.Errorf("%w: %s", zone.ErrConflict, text),
		"find out who changed it, then make a new plan: Theseus did not overwrite that change")
}

func names(units []zone.Unit) string {
	if len(units) == 1 {
		return units[0].Name
	}
	return fmt.Sprintf("%d names", len(units))
}

// Left is the result of a rollback that did not touch names which were changed by someone else.
type Left struct {
	Left []string `json:"left"`
}

// Do implements engine.Actor.
func (a *Actor) Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	switch action.Verb() {
	case shift.Swap:
		args, err := step.Arguments[shift.SwapArgs](action)
		if err != nil {
			return nil, err
		}
		return a.swap(ctx, args)
	case shift.Prove:
		args, err := step.Arguments[shift.ProveArgs](action)
		if err != nil {
			return nil, err
		}
		return nil, a.Prober.Prove(ctx, args.Probes)
	case shift.Rest:
		var until due
		if err := json.Unmarshal(before, &until); err != nil {
			return nil, fmt.Errorf("action %s: the journal does not say until when to wait: %w", action.ID, err)
		}
		a.note("until %s", until.Until.Format(time.TimeOnly))
		return nil, a.Clock.Sleep(ctx, until.Until.Sub(a.Clock.Now()))
	case shift.See:
		var all []shift.SeeArgs // of a wave's inverse, all its zones
		one, err := step.Arguments[shift.SeeArgs](action)
		if err == nil {
			all = []shift.SeeArgs{one}
		} else if all, err = step.Arguments[[]shift.SeeArgs](action); err != nil {
			return nil, err
		}
		return nil, a.Shown(ctx, all)
	}
	return nil, fmt.Errorf("action %s: unknown verb %q", action.ID, action.Verb())
}

// swap commits, and only looks where that is in conflict: it may be our own change, of which the answer was lost.
func (a *Actor) swap(ctx context.Context, args shift.SwapArgs) (json.RawMessage, error) {
	z, err := a.zone(args.Zone)
	if err != nil {
		return nil, err
	}
	todo := args.Transaction
	var others []string
	for range 3 {
		if err := z.Commit(ctx, todo); err == nil || !errors.Is(err, zone.ErrConflict) {
			return answer(others), err
		}
		if todo, others, err = a.standing(ctx, args.Transaction); err != nil {
			return nil, err
		}
		if len(others) > 0 && !args.Yield {
			return nil, conflict(others)
		}
		if len(todo.Units) == 0 {
			return answer(others), nil
		}
	}
	return nil, fmt.Errorf("%s: %w, again and again", args.Zone, zone.ErrConflict)
}

func answer(others []string) json.RawMessage {
	if len(others) == 0 {
		return nil
	}
	return encode(Left{others})
}

// Holds implements engine.Actor; plans for moving names have no conditions.
func (a *Actor) Holds(_ context.Context, c step.Condition) (bool, string, error) {
	return false, "", fmt.Errorf("%q is not a condition of DNS", c.Kind())
}
