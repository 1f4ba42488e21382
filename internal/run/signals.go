package run

import (
	"context"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/nodepool"
	"github.com/theseus-cni/theseus/internal/step"
)

// SignalsRun demands that the programs of a plan's signals exist on this machine, if a gate is still to ask them. The
// way back asks none.
func SignalsRun(p *plan.Plan, desire v1alpha1.Desire, past []engine.Record) error {
	signals, err := signal.ParseAll(p.Change.SLO)
	if err != nil {
		return err
	}
	if desire == v1alpha1.DesireRollback || !asksYet(p, past) {
		return nil
	}
	if err := nodepool.Runnable(signal.Commands(signals)...); err != nil {
		return engine.WithHint(err,
			"install it here, or continue on a machine that has it; --slo names it. A rollback does not need it")
	}
	return nil
}

// asksYet reports whether a gate of a plan has not answered yet, and the plan is not being taken back.
func asksYet(p *plan.Plan, past []engine.Record) bool {
	state, err := engine.Replay(past)
	if err != nil {
		return true // the engine refuses such a journal
	}
	if state.Undoing || state.Over() {
		return false
	}
	for i := range p.Steps {
		if one := &p.Steps[i]; one.Gate != nil && plan.SignalsAt(p, one) != kind.SignalsLeft {
			if known := state.Find(one.ID); known == nil || known.Verdict == nil {
				return true
			}
		}
	}
	return false
}

// Watch watches the signals of a plan until the context ends; nil if it has none. past is the journal.
func Watch(ctx context.Context, p *plan.Plan, past []engine.Record) (*ask.Watch, error) {
	signals, err := signal.ParseAll(p.Change.SLO)
	if err != nil || len(signals) == 0 {
		return nil, err
	}
	watch := ask.NewWatch(ctx, signals, (&ask.Asker{}).Begin)
	if p.Foreign() && unheard(p, past) {
		watch.Interrupted()
	}
	return watch, nil
}

// unheard reports whether an earlier process asked the signals of a guard after the change, and ended before the
// journal had what they said.
func unheard(p *plan.Plan, past []engine.Record) (open bool) {
	result := ""
	for i := range p.Steps {
		if one := &p.Steps[i]; one.Gate != nil && one.Gate.Result {
			result = one.ID
		}
	}
	for _, r := range past {
		if r.Step == result && !r.Undo {
			switch r.Event {
			case engine.Intended, engine.GateAsked:
				open = true
			case engine.Acted, engine.GateAnswer:
				open = false
			}
		}
	}
	return open
}

// Asking is a gate that asks the signals of a plan, too. Without signals it is the same gate.
func Asking(gate engine.Gate, p *plan.Plan, signals *ask.Watch) engine.Gate {
	if signals == nil {
		return gate
	}
	at := map[string]kind.Signals{}
	for i := range p.Steps {
		if how := plan.SignalsAt(p, &p.Steps[i]); how != kind.SignalsHold {
			at[p.Steps[i].ID] = how
		}
	}
	return &ask.Gate{Gate: gate, Watch: signals, Clock: Clock{}, Throughout: p.Foreign(),
		FailingBefore: p.LossyBefore(), Exempt: func(g step.Gate) bool { return at[g.Step] == kind.SignalsLeft },
		Waits: func(g step.Gate) bool {
			return at[g.Step] == kind.SignalsWait
		}}
}
