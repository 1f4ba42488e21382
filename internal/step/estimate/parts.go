// Package estimate says how long the steps of a plan take: a step is a row of parts that follow one another, and what a
// part of its kind takes was measured.
//
// The package is pure: it reads steps, and a table.
package estimate

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/step"
)

// Part is what is done together in a step.
type Part struct {
	// Kind says what: an operation with what it is about, such as "node/join", or "gate".
	Kind string `json:"kind"`
	// N is how many actions there are; of a gate and of what changes the measured paths, how many nodes measure, or of
	// more paths how many nodes they are added for.
	N int `json:"n"`
	// Pods are moved by them on all nodes, Most of them on one node.
	Pods int `json:"pods,omitempty"`
	Most int `json:"most,omitempty"`
	// Turns is how many pods of one node are moved one after another at most: several move side by side.
	Turns int `json:"turns,omitempty"`
	// Chain is how many of those that are evicted are of one workload at most: they go one after another. Ending is the
	// same of workloads that make a pod again only when the old one has ended, and Ended are all pods of such.
	Chain  int `json:"chain,omitempty"`
	Ending int `json:"ending,omitempty"`
	Ended  int `json:"ended,omitempty"`
	// Bake is how long a gate watches, and Asked is how many nodes it asks, if not all.
	Bake  step.Duration `json:"bake,omitempty"`
	Asked int           `json:"asked,omitempty"`
}

// Pod is one that is moved.
type Pod struct {
	Name  string
	Owner cluster.Owner
}

// named says whether it is one of these, namespace/name.
func (p Pod) named(names []string) bool { return slices.Contains(names, p.Owner.Namespace+"/"+p.Name) }

// Steps sets the estimates of a plan's steps, in a cluster of so many nodes. pods are those of each node that are
// moved.
func Steps(steps []step.Step, nodes int, pods map[string][]Pod) {
	(*Learnt)(nil).Steps(steps, nodes, pods)
}

// Parts are those of each step, as for Steps.
func Parts(steps []step.Step, nodes int, pods map[string][]Pod) [][]Part {
	m := meter{nodes: nodes, left: map[string][]Pod{}}
	maps.Copy(m.left, pods)
	var all [][]Part
	for i := range steps {
		all = append(all, m.parts(&steps[i]))
	}
	return all
}

// meter goes through steps in their order.
type meter struct {
	nodes    int
	left     map[string][]Pod // of each node, by the steps before
	measured step.PathSet     // by then
}

func (m *meter) parts(s *step.Step) []Part {
	var parts []Part
	chains := map[cluster.Owner]int{} // of the last part
	for i := range s.Actions {
		a := &s.Actions[i]
		if i == 0 || !a.Together {
			parts = append(parts, Part{Kind: m.kind(a)})
			clear(chains)
		}
		part := &parts[len(parts)-1]
		moved := m.moves(a)
		part.N, part.Pods, part.Most = part.N+1, part.Pods+len(moved), max(part.Most, len(moved))
		switch do := a.Do.(type) {
		case step.Evict:
			part.chain(moved, chains)
		case step.Node:
			if do.Verb == step.VerbAdopt {
				sideBySide := adoptArgs(do).AtOnce()
				part.Turns = max(part.Turns, (len(moved)+sideBySide-1)/sideBySide)
			}
		case step.Probe:
			part.N, m.measured = m.nodes, do.Paths
			if part.Kind == "probe/more" {
				part.N = 1
				for _, before := range parts {
					part.N = max(part.N, before.N)
				}
			}
		}
	}
	if s.Gate != nil {
		gate := Part{Kind: "gate", N: m.nodes, Bake: s.Gate.Bake}
		if asked := peers*len(s.Nodes()) + loss.Sample; s.Gate.Near && 2*asked <= m.nodes {
			gate.Asked = asked
		}
		parts = append(parts, gate)
	}
	return parts
}

// peers are a node and the others that measure it or are measured by it: of each of two rings (path.Degree; the third
// is the first, backwards) the next node and the one before.
const peers = 5

// chain counts evicted pods by their workloads, of which each is a chain.
func (p *Part) chain(moved []Pod, chains map[cluster.Owner]int) {
	for _, pod := range moved {
		chains[pod.Owner]++
		p.Chain = max(p.Chain, chains[pod.Owner])
		if step.EndsFirst(pod.Owner.Kind) {
			p.Ended, p.Ending = p.Ended+1, max(p.Ending, chains[pod.Owner])
		}
	}
}

// moves are the pods that an action moves. All pods of a node are moved once, by the first action that can; those that
// an adoption names are probe pods, which are none of them.
func (m *meter) moves(a *step.Action) []Pod {
	moves := func(Pod) bool { return true }
	switch do := a.Do.(type) {
	case step.Evict:
		moves = func(pod Pod) bool {
			set := do.Pods
			return (len(set.Names) == 0 || pod.named(set.Names)) && !(set.LeaveDaemons && pod.Owner.Kind == "DaemonSet")
		}
	case step.Node:
		if do.Verb != step.VerbAdopt {
			return nil
		}
		args := adoptArgs(do)
		moves = func(pod Pod) bool { return !pod.named(args.Skip) }
		if len(args.Pods) > 0 {
			return make([]Pod, len(args.Pods))
		}
	default:
		return nil
	}
	var moved, left []Pod
	node := a.Node()
	for _, pod := range m.left[node] {
		if moves(pod) {
			moved = append(moved, pod)
		} else {
			left = append(left, pod)
		}
	}
	m.left[node] = left
	return moved
}

// adoptArgs are those of VerbAdopt; what cannot be read is refused when it is done.
func adoptArgs(do step.Node) (args step.AdoptArgs) {
	if json.Unmarshal(do.Args, &args) != nil {
		return step.AdoptArgs{}
	}
	return args
}

// kind is what an action takes its time for. What Theseus starts itself is known to be small.
func (m *meter) kind(a *step.Action) string {
	own := func(namespace string) string {
		if namespace == v1alpha1.Namespace {
			return "/own"
		}
		return ""
	}
	switch do := a.Do.(type) {
	case step.Node, step.Hook:
		return string(a.Op()) + "/" + a.Verb()
	case step.Wait:
		if rolled, is := do.Condition.Is.(step.Rolled); is {
			return "wait/rolled/" + rolled.Ref.Kind + own(rolled.Ref.Namespace)
		}
		return "wait/" + string(do.Condition.Kind()) + own(do.Condition.Namespace())
	case step.Evict:
		if !do.Pods.LeaveEnding && len(do.Pods.Names) == 0 {
			return "evict/rest"
		}
	case step.Delete:
		switch do.Ref.Kind {
		case "Pod", "DaemonSet", "Deployment":
			return "delete/runs"
		}
	case step.Probe:
		has, want := m.measured, do.Paths
		switch {
		case len(want.Old) > 0 && len(has.Old) == 0, len(want.New) > 0 && len(has.New) == 0:
			return "probe"
		case len(want.Old) > 0 && len(want.New) > 0:
			return "probe/more"
		}
		return "probe/fewer"
	}
	return string(a.Op())
}
