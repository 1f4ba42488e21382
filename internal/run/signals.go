package run

import (
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Asking is a gate that asks the signals of a plan, too. Without signals it is the same gate.
func Asking(gate engine.Gate, p *plan.Plan) (engine.Gate, error) {
	signals, err := signal.ParseAll(p.Change.SLO)
	if err != nil || len(signals) == 0 {
		return gate, err
	}
	return &ask.Gate{Gate: gate, Signals: signals, Clock: Clock{}, Questions: ask.Asker{}.All, FailingBefore: p.LossyBefore()}, nil
}
