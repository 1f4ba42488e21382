package verify

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// Abreast follows which nodes the steps of a plan change at once: whose pods move, or whose agents restart.
type Abreast struct {
	nodes map[string]bool // of the cluster
	moved map[string]bool // the kinds of change that a node had
	args  step.Reader[step.AdoptArgs]
}

// NewAbreast makes one for a plan, before its first step.
func NewAbreast(p *kind.Plan) *Abreast {
	a := &Abreast{nodes: map[string]bool{}, moved: map[string]bool{}, args: step.Reader[step.AdoptArgs]{}}
	for _, node := range p.Cluster.Nodes {
		a.nodes[node] = true
	}
	return a
}

// Next returns the groups of nodes that the next step changes at once. A node whose pods moved before is not among
// them: what moves then is what has started since. Nor are nodes that the plan adds, on which no pods of users run yet.
func (a *Abreast) Next(s *step.Step) [][]string {
	var groups [][]string
	var group []string
	for i := range s.Actions {
		action := &s.Actions[i]
		if !action.Together && len(group) > 0 {
			groups, group = append(groups, group), nil
		}
		node, what := a.changed(action)
		if what == "" || !a.nodes[node] || what != restarts && a.moved[node+" "+what] {
			continue
		}
		a.moved[node+" "+what] = true
		group = append(group, node)
	}
	if len(group) > 0 {
		groups = append(groups, group)
	}
	return groups
}

const restarts = "restart"

// changed returns the node that an action changes, and how; empty if it changes none.
func (a *Abreast) changed(action *step.Action) (node, what string) {
	switch do := action.Do.(type) {
	case step.Restart:
		return do.NodeName, restarts
	case step.Evict:
		return do.Pods.Node, "evict"
	case step.Node:
		if do.Verb != step.VerbAdopt {
			break
		}
		if args, err := a.args.Read(do.Args); err == nil && len(args.Pods) > 0 {
			return do.NodeName, "probe pod"
		}
		return do.NodeName, "adopt"
	}
	return "", ""
}

// abreast holds a plan to its bound: no step changes more nodes at once, and those that it does are of one failure
// domain. What takes a step back is not bound.
func abreast(p *kind.Plan) kind.Rule {
	follow, domains, most := NewAbreast(p), p.Domains(), p.AtOnce()
	return kind.Rule{Before: func(s *step.Step) error {
		if most < 1 || most > step.MostAtOnce || p.Change.MaxParallel > 0 && most != p.Change.MaxParallel {
			return fmt.Errorf("its plan lets %d nodes be changed at once", most)
		}
		for _, group := range follow.Next(s) {
			if len(group) > most {
				return fmt.Errorf("it changes %d nodes at once, of at most %d", len(group), most)
			}
			for _, node := range group {
				if domains[node] != domains[group[0]] {
					return fmt.Errorf("it changes nodes %s and %s at once, which are in different failure domains",
						group[0], node)
				}
			}
		}
		return nil
	}}
}
