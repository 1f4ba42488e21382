package plan

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/step"
)

// SignalsAt says how the gate of a step takes the user's own signals.
func SignalsAt(p *Plan, s *step.Step) kind.Signals {
	if k := of(p); k.Signals != nil {
		return k.Signals(s)
	}
	return kind.SignalsHold
}

// UsesOf lists what a plan does through the API of the cluster where the operations of its actions do not say it.
func UsesOf(p *Plan) []step.Use {
	if k := of(p); k.Uses != nil {
		return k.Uses(p)
	}
	return nil
}

// ReachOf lists what a plan does beyond objects that it applies, each once, in the order of the steps.
func ReachOf(p *Plan) Reach {
	r := Reach{}
	if k := of(p); k.Reach != nil {
		k.Reach(p, &r)
	}
	signals, _ := signal.ParseAll(p.Change.SLO) // Verify refuses a plan without valid ones
	for _, one := range signals {
		r.Command(one.Command)
		if one.Address != "" {
			kind.Once(&r.Uses, one.Address+" (the gates ask it, without credentials)")
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.NoReturn && r.NoReturn == 0 {
			r.NoReturn, r.Title = i+1, s.Title
		}
		for _, action := range slices.Concat(s.Actions, s.Undo) {
			reaches(&r, action)
		}
	}
	return r
}

func reaches(r *Reach, a step.Action) {
	switch do := a.Do.(type) {
	case step.Delete:
		if do.Ref != (step.Ref{}) {
			kind.Once(&r.Deletes, do.Ref.String())
		}
	case step.Hook:
		if args, err := step.Arguments[step.HookArgs](a); err == nil {
			r.Command(args.Command)
		}
		if do.Verb == step.VerbRemove {
			kind.Once(&r.Deletes, "node "+do.NodeName)
		}
	case step.Node:
		if do.Verb == step.VerbClean {
			kind.Once(&r.Deletes, "what the network left on "+do.NodeName)
		}
	}
}
