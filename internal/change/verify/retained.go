package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// Retaining says whether an action has a node retain routes, or let go of them.
func Retaining(a *step.Action) bool {
	return a.Op() == step.OpNode && (a.Verb() == step.VerbRetain || a.Verb() == step.VerbLetGo)
}

func retainsAny(actions []step.Action) bool {
	return slices.ContainsFunc(actions, func(a step.Action) bool { return Retaining(&a) })
}

// retains holds plans to the ranges that they retain while agents restart. Plans that retain others for another reason
// bring a rule of their own.
func retains(p *kind.Plan, own kind.Kind) kind.Rule {
	if own.Retains {
		return kind.Rule{}
	}
	return Retained(p, p.Retain, func(a *step.Action) string {
		if len(p.Retain) > 0 && a.Op() == step.OpRestart && a.Ref() == p.Source.Agent {
			return "an agent restarts"
		}
		return ""
	})
}

// Retained proves of plans that end BIRD's sessions, or restart agents with BIRD: that is done, there and back, only
// while every node retains the routes that BIRD carries within ranges; what a step did of that its undo takes back, and
// its gate sees; and at the end no node retains any. meanwhile gives the words for an action that is done only then, or
// none.
func Retained(p *kind.Plan, ranges []string, meanwhile func(*step.Action) string) kind.Rule {
	r := &retention{nodes: p.Cluster.Nodes, ranges: ranges, meanwhile: meanwhile, retained: map[string]bool{}}
	return kind.Rule{Before: r.pass, Undo: r.undo, End: r.end}
}

// retention is which nodes retain their routes.
type retention struct {
	nodes, ranges    []string
	meanwhile        func(*step.Action) string
	before, retained map[string]bool
	measured         bool // a baseline gate was passed
}

func (r *retention) carry(actions []step.Action, retained map[string]bool) error {
	for i := range actions {
		a := &actions[i]
		if Retaining(a) {
			if err := r.retain(a, retained); err != nil {
				return err
			}
		} else if words := r.meanwhile(a); words != "" && len(retained) < len(r.nodes) {
			return fmt.Errorf("%s while %d of %d nodes retain their routes", words, len(retained), len(r.nodes))
		}
	}
	return nil
}

// changes says whether a step is about retaining: few are, and a copy of all nodes for each would be felt in a large
// cluster.
func changes(s *step.Step) bool { return retainsAny(s.Actions) || retainsAny(s.Undo) }

func (r *retention) pass(s *step.Step) error {
	if r.before = r.retained; changes(s) {
		r.retained = maps.Clone(r.before)
	}
	if err := r.carry(s.Actions, r.retained); err != nil {
		return err
	}
	measured := r.measured
	r.measured = measured || s.Gate != nil && s.Gate.Baseline
	if changes(s) && !maps.Equal(r.before, r.retained) && (!measured || s.Gate == nil || s.NoReturn) {
		return errors.New("it changes which routes are in use, and has no gate or no undo")
	}
	return nil
}

func (r *retention) undo(s *step.Step) error {
	back := r.retained
	if changes(s) {
		back = maps.Clone(back)
	}
	if err := r.carry(s.Undo, back); err != nil {
		return err
	}
	if changes(s) && !maps.Equal(r.before, back) {
		return errors.New("after the undo, the nodes do not retain the same routes as before the step")
	}
	return nil
}

func (r *retention) end() error {
	if len(r.retained) > 0 {
		return errors.New("at the end nodes retain routes")
	}
	return nil
}

// retain has a node retain its routes, or let go of them.
func (r *retention) retain(a *step.Action, retained map[string]bool) error {
	var args step.RetainArgs
	switch err := json.Unmarshal(a.Args(), &args); {
	case err != nil:
		return fmt.Errorf("arguments: %w", err)
	case !slices.Contains(r.nodes, a.Node()):
		return fmt.Errorf("node %q is not of this cluster", a.Node())
	case !slices.Equal(args.Within, r.ranges):
		return fmt.Errorf("the ranges are %v, not %v", r.ranges, args.Within)
	}
	if a.Verb() == step.VerbRetain {
		retained[a.Node()] = true
	} else {
		delete(retained, a.Node())
	}
	return nil
}
