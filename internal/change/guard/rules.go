package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// course carries a model of a guarded change through its plan.
type course struct {
	plan                           *kind.Plan
	measuring                      bool // paths are measured now
	proven, ran, watched, answered bool
	tried, sampled                 bool // new pods, and pairs of pods, before the change
}

// rules prove of a guard's plan: it touches nothing but Theseus' own objects; the command runs once, or others change
// the cluster, after a baseline, while paths are measured; the watching follows, with the gate that is the result; at
// the end nothing is measured. Plans of other kinds run no command, and none of their gates goes on whatever its answer
// is.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Guarded == nil {
		return []kind.Rule{{Before: none, Act: func(_ *step.Step, a *step.Action) error { return noCommand(a) }}}, nil
	}
	if (len(p.Guarded.Command) == 0) != p.Guarded.Others || p.Guarded.Others && len(p.Guarded.OnLoss) > 0 ||
		p.Guarded.Quiet <= 0 || p.Guarded.AtMost < p.Guarded.Quiet || p.Guarded.Kill && len(p.Guarded.OnLoss) > 0 {
		return nil, errors.New("the plan does not say what it guards, or how")
	}
	if err := sampling(p); err != nil {
		return nil, err
	}
	if one, err := netip.ParseAddr(p.Guarded.LocalDNS); p.Guarded.LocalDNS != "" && (err != nil ||
		!one.IsLinkLocalUnicast()) {
		return nil, fmt.Errorf("%q is no name server on a pod's own node", p.Guarded.LocalDNS)
	}
	c := &course{plan: p}
	return []kind.Rule{{Act: func(_ *step.Step, a *step.Action) error { return c.act(a) }, After: c.gated,
		Undo: c.undo, End: c.end}}, nil
}

// sampling judges the pairs of pods that a plan connects.
func sampling(p *kind.Plan) error {
	g := p.Guarded
	if len(g.Pairs) > g.SamplePolicies || len(g.Pairs) > 0 && g.NewPods <= 0 {
		return errors.New("more pairs of pods would be connected than the user allows")
	}
	for _, pair := range g.Pairs {
		if !slices.Contains(p.Cluster.Nodes, pair.Node) {
			return fmt.Errorf("the node of %s is none of the plan's", pair)
		}
	}
	args, err := json.Marshal(step.ConnectArgs{Pairs: g.Pairs})
	if err != nil {
		return err
	}
	return step.Allowed(step.VerbConnect, args)
}

// none refuses a gate that decides nothing.
func none(s *step.Step) error {
	if s.Gate != nil && s.Gate.Result {
		return errors.New("its gate would pass whatever was measured")
	}
	return nil
}

func noCommand(a *step.Action) error {
	if slices.Contains([]step.Op{step.OpCommand, step.OpAwait, step.OpWatch, step.OpNewPods, step.OpSample}, a.Op()) {
		return fmt.Errorf("the operation %q is not allowed here", a.Op())
	}
	return nil
}

func (c *course) act(a *step.Action) error {
	switch do := a.Do.(type) {
	case step.Apply:
		if !verify.Ours(step.RefOf(do.Object)) {
			return fmt.Errorf("%s is not Theseus' own", step.RefOf(do.Object))
		}
	case step.Delete:
		if !verify.Ours(do.Ref) {
			return fmt.Errorf("%s is not Theseus' own", do.Ref)
		}
		if c.measuring {
			return errors.New("what is measured would be removed")
		}
	case step.Probe:
		c.measuring = slices.Contains(do.Paths.Old, step.EveryNode)
	case step.Command, step.Await:
		if (a.Op() == step.OpAwait) != c.plan.Guarded.Others {
			return fmt.Errorf("the operation %q is not allowed here", a.Op())
		}
		if c.ran || !c.proven || !c.measuring {
			return errors.New("the change comes once, after a baseline, while paths are measured")
		}
		c.ran = true
	case step.NewPods:
		if !c.measuring || c.ran || c.plan.Guarded.NewPods <= 0 {
			return errors.New("new pods are tried before the change, while paths are measured")
		}
		c.tried = true
	case step.Sample:
		if !c.measuring || c.ran || len(c.plan.Guarded.Pairs) == 0 {
			return errors.New("pairs of pods are connected before the change, while paths are measured")
		}
		c.sampled = true
	case step.Watch:
		if c.tried != (c.plan.Guarded.NewPods > 0) {
			return errors.New("new pods were not tried before the change, so what they show after it proves nothing")
		}
		if c.sampled != (len(c.plan.Guarded.Pairs) > 0) {
			return errors.New("pairs of pods were not connected before the change, so nothing can be compared after it")
		}
		if !c.ran || !c.measuring {
			return errors.New("there is nothing to watch: nothing was changed, or no path is measured")
		}
		c.watched = true
	case step.Wait:
	default:
		return fmt.Errorf("the operation %q is not allowed here", a.Op())
	}
	return nil
}

func (c *course) gated(s *step.Step) error {
	switch {
	case s.Gate == nil:
		if s.NoReturn && !c.answered {
			return errors.New("no gate has given the result yet")
		}
	case s.Gate.Result:
		if !c.watched || !c.measuring {
			return errors.New("the gate gives the result before anything was watched")
		}
		c.answered = true
	default:
		c.proven = c.proven || s.Gate.Baseline && c.measuring
	}
	return nil
}

// undo removes Theseus' own objects alone.
func (c *course) undo(s *step.Step) error {
	back := *c
	for i := range s.Undo {
		if err := back.act(&s.Undo[i]); err != nil {
			return err
		}
	}
	if len(s.Undo) > 0 && back.measuring {
		return errors.New("paths are still measured")
	}
	return nil
}

func (c *course) end() error {
	if !c.answered || c.measuring {
		return errors.New("at the end there is no result, or paths are still measured")
	}
	return nil
}
