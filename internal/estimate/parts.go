// Package estimate says how long the steps of a plan take: a step is a row of parts that follow one another, and what a
// part of its kind takes was measured.
//
// The package is pure: it reads steps, and a table.
package estimate

import (
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// Part is what is done together in a step.
type Part struct {
	// Kind says what: an operation with what it is about, such as "node/join", or "gate".
	Kind string `json:"kind"`
	// N is how many actions there are; of a gate and of what changes the measured paths, how many nodes measure, or of more
	// paths how many nodes they are added for.
	N int `json:"n"`
	// Pods are moved by them on all nodes, Most of them on one node.
	Pods int `json:"pods,omitempty"`
	Most int `json:"most,omitempty"`
	// Bake is how long a gate watches.
	Bake step.Duration `json:"bake,omitempty"`
}

// Steps sets the estimates of a plan's steps, in a cluster of so many nodes. pods counts the pods of each node that are moved.
func Steps(steps []step.Step, nodes int, pods map[string]int) {
	for i, parts := range Parts(steps, nodes, pods) {
		var sum time.Duration
		for _, part := range parts {
			sum += part.Takes()
		}
		steps[i].Estimate = step.Duration(sum.Round(time.Second / 10))
	}
}

// Parts are those of each step, as for Steps.
func Parts(steps []step.Step, nodes int, pods map[string]int) [][]Part {
	m := meter{nodes: nodes, pods: pods, moved: map[string]int{}}
	var all [][]Part
	for i := range steps {
		all = append(all, m.parts(&steps[i]))
	}
	return all
}

// meter goes through steps in their order.
type meter struct {
	nodes    int
	pods     map[string]int
	moved    map[string]int // pods of a node, by the steps before
	measured step.PathSet   // by then
}

func (m *meter) parts(s *step.Step) []Part {
	var parts []Part
	for i := range s.Actions {
		a := &s.Actions[i]
		if i == 0 || !a.Beside {
			parts = append(parts, Part{Kind: m.kind(a)})
		}
		part := &parts[len(parts)-1]
		n := m.moves(a)
		part.N, part.Pods, part.Most = part.N+1, part.Pods+n, max(part.Most, n)
		if a.Op == step.Probe {
			part.N, m.measured = m.nodes, *a.Paths
			if part.Kind == "probe/more" {
				part.N = 1
				for _, before := range parts {
					part.N = max(part.N, before.N)
				}
			}
		}
	}
	if s.Gate != nil {
		parts = append(parts, Part{Kind: "gate", N: m.nodes, Bake: s.Gate.Bake})
	}
	return parts
}

// moves counts the pods that an action moves. All pods of a node are moved once, by the first action that can; those that
// are named are not counted among the others where they are probe pods.
func (m *meter) moves(a *step.Action) int {
	node, named, skipped := a.NodeName, 0, 0
	switch {
	case a.Op == step.Evict:
		node, named = a.Pods.Node, len(a.Pods.Names)
	case a.Op == step.Node && a.Verb == step.VerbAdopt:
		var args step.AdoptArgs
		if json.Unmarshal(a.Args, &args) == nil { // else it is refused when it is done
			skipped = len(args.Skip)
		}
		if len(args.Pods) > 0 {
			return len(args.Pods)
		}
	default:
		return 0
	}
	n := named
	if n == 0 {
		n = max(m.pods[node]-m.moved[node]-skipped, 0)
	}
	m.moved[node] += n
	return n
}

// kind is what an action takes its time for. What Theseus starts itself is known to be small.
func (m *meter) kind(a *step.Action) string {
	own := func(namespace string) string {
		if namespace == v1alpha1.Namespace {
			return "/own"
		}
		return ""
	}
	switch a.Op {
	case step.Node, step.Hook:
		return string(a.Op) + "/" + a.Verb
	case step.Wait:
		c := a.Condition
		if c.Kind == step.Rolled {
			return "wait/rolled/" + c.Ref.Kind + own(c.Ref.Namespace)
		}
		return "wait/" + string(c.Kind) + own(c.Namespace)
	case step.Evict:
		if !a.Pods.LeaveEnding && len(a.Pods.Names) == 0 {
			return "evict/rest"
		}
	case step.Delete:
		switch a.Ref.Kind {
		case "Pod", "DaemonSet", "Deployment":
			return "delete/runs"
		}
	case step.Probe:
		has, want := m.measured, a.Paths
		switch {
		case len(want.Old) > 0 && len(has.Old) == 0, len(want.New) > 0 && len(has.New) == 0:
			return "probe"
		case len(want.Old) > 0 && len(want.New) > 0:
			return "probe/more"
		}
		return "probe/fewer"
	}
	return string(a.Op)
}
