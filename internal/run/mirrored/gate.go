package mirrored

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// holdGate is the gate of a plan of the strategy mirror. It judges the names, and also watches them at the mirror while
// the original is being changed.
type holdGate struct {
	dns.Gate
	// own judges the paths that are measured on the original's nodes.
	own   engine.Gate
	whole func(context.Context, string) (string, error)
	note  func(string)
}

// Ask implements engine.Gate.
func (g *holdGate) Ask(ctx context.Context, gate step.Gate,
	followDesire func(context.Context) error) (engine.Verdict, error) {
	if gate.Args == nil {
		return g.own.Ask(ctx, gate, followDesire)
	}
	var args mirror.HoldArgs
	if err := json.Unmarshal(gate.Args, &args); err != nil {
		return engine.Verdict{}, fmt.Errorf("arguments of the gate: %w", err)
	}
	if args.Hold == nil {
		return g.Gate.Ask(ctx, gate, followDesire)
	}
	for {
		verdict, err := g.Gate.Ask(ctx, gate, followDesire)
		if err != nil || !verdict.Pass {
			return verdict, err
		}
		why, err := g.whole(ctx, args.Hold.To)
		switch {
		case err != nil && !outage.Passes(err) && !unreachable(err):
			return verdict, kube.Passing(err)
		case err != nil:
			why = err.Error() // its API server may be under change
		case why == "":
			return verdict, nil
		}
		g.note(why + "; meanwhile " + verdict.Reason)
	}
}

func unreachable(err error) bool {
	var one *kube.UnreachableError
	return errors.As(err, &one)
}
