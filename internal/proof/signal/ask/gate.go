package ask

import (
	"context"
	"errors"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// again is the time until a signal without an answer is asked again at the end of a gate, and a URL or a command that
// failed is asked again at any time.
const again = time.Second

// Gate is a gate that asks the user's signals, too: every few seconds while the gate that it wraps measures, and once
// more at its end. It passes only if all of them hold. It stops at once when a signal is broken, unless its answer is
// the result of the plan. A gate that is asked again because it could not answer, as when the API server was away,
// remembers what the signals said before.
type Gate struct {
	engine.Gate
	Watch *Watch
	Clock engine.Clock
	// Throughout says that the signals are watched from the baseline to the result, between the gates too: nothing is
	// forgotten meanwhile.
	Throughout bool
	// FailingBefore lets a baseline pass although signals fail. A signal without an answer fails it all the same.
	FailingBefore bool
	// Exempt names gates that ask no signals, and Waits those during which silence is expected, and breaks nothing.
	// Both may be nil.
	Exempt, Waits func(step.Gate) bool

	// unanswered is true if the last question had no verdict.
	unanswered bool
}

// errBroken ends the measuring of a gate whose signals are broken.
var errBroken = errors.New("a signal is broken")

// Ask implements engine.Gate.
func (g *Gate) Ask(ctx context.Context, gate step.Gate, follow func(context.Context) error) (engine.Verdict, error) {
	if g.Exempt != nil && g.Exempt(gate) {
		return g.Gate.Ask(ctx, gate, follow)
	}
	if !g.unanswered && (!g.Throughout || gate.Baseline) {
		g.Watch.Restart()
	}
	g.unanswered, g.Watch.Waits = true, g.Waits != nil && g.Waits(gate)
	verdict, err := g.Gate.Ask(ctx, gate, func(ctx context.Context) error {
		if err := follow(ctx); err != nil {
			return err
		}
		g.Watch.Look(g.Clock.Now())
		if !gate.Result && len(g.against(gate, g.Watch.Broken())) > 0 {
			return errBroken
		}
		return nil
	})
	g.Watch.Waits = false
	switch {
	case errors.Is(err, errBroken):
		verdict.Pass, verdict.Reason = false, "the paths were not watched to the end"
	case err != nil:
		return verdict, err
	case verdict.Pass || gate.Result:
		if err := g.end(ctx, follow); err != nil {
			return engine.Verdict{}, err
		}
	}
	g.join(&verdict, gate, g.Watch.Answers())
	g.unanswered = false
	if gate.Baseline && g.Throughout {
		g.Watch.Forgive()
	}
	return verdict, nil
}

// end asks the signals until all have answered, or some have been silent for too long.
func (g *Gate) end(ctx context.Context, follow func(context.Context) error) error {
	for {
		if err := g.Watch.Fresh(ctx, g.Clock.Now, follow); err != nil {
			return err
		}
		if g.Watch.answered() || len(g.Watch.Broken()) > 0 {
			return nil
		}
		if err := follow(ctx); err != nil {
			return err
		}
		if err := g.Clock.Sleep(ctx, again); err != nil {
			return err
		}
	}
}

// against are the answers that a gate does not pass with.
func (g *Gate) against(gate step.Gate, broken []signal.Answer) []signal.Answer {
	if !gate.Baseline || !g.FailingBefore {
		return broken
	}
	var all []signal.Answer
	for _, one := range broken {
		if one.State != signal.Fails {
			all = append(all, one)
		}
	}
	return all
}

// join adds the answers to a verdict.
func (g *Gate) join(verdict *engine.Verdict, gate step.Gate, answers []signal.Answer) {
	verdict.Signals = answers
	broken := signal.Not(answers)
	against := g.against(gate, broken)
	already := ""
	if gate.Baseline && len(broken) > 0 {
		already = "already before the change: "
	}
	switch {
	case len(against) > 0:
		if verdict.Pass {
			verdict.Reason = "apart from that " + verdict.Reason
		}
		verdict.Pass, verdict.Reason = false, already+signal.Say(broken)+"; "+verdict.Reason
	case len(answers) > 0:
		verdict.Reason += "; " + already + signal.Say(answers)
	}
}
