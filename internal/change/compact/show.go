package compact

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// Repeats says of each step which earlier one it repeats for other nodes: the index of the first step of the same
// procedure, or -1 where there is none. Two steps repeat each other only if nothing but the names of nodes and waves
// differs.
func Repeats(steps []step.Step, c Cluster) ([]int, error) {
	f, err := newFolder(steps, c)
	if err != nil {
		return nil, err
	}
	first := map[*candidate]int{}
	repeats := make([]int, len(steps))
	for i, s := range f.steps {
		repeats[i] = -1
		if s.of == nil {
			continue
		}
		if at, known := first[s.of]; known {
			repeats[i] = at
		} else {
			first[s.of] = i
		}
	}
	return repeats, nil
}

// Run are entries of a list that are said for several nodes, in batches one after the other. Of an entry that names no
// node, or of nodes that no other entry is like, there are no batches.
type Run[T any] struct {
	First   []T      // the entries for the first node
	Nodes   []string // all nodes
	Batches int
}

// Namer knows the names of a plan's nodes.
type Namer struct{ names names }

// NewNamer knows the names of the nodes that steps are about.
func NewNamer(steps []step.Step, c Cluster) Namer { return Namer{nodesOf(steps, c)} }

// Actions are the runs of a list of actions, which is that of an ID.
func (n Namer) Actions(actions []step.Action, id string) ([]Run[step.Action], error) {
	items, err := n.names.actionItems(actions, id)
	if err != nil {
		return nil, err
	}
	return shown(segments(items, true), actions), nil
}

// Conditions are the runs of a list of conditions.
func (n Namer) Conditions(conditions []step.Condition) ([]Run[step.Condition], error) {
	items, err := n.names.conditionItems(conditions)
	if err != nil {
		return nil, err
	}
	return shown(segments(items, false), conditions), nil
}

func shown[T any](all []segment, entries []T) (found []Run[T]) {
	for _, s := range all {
		run := Run[T]{First: entries[:len(s.do)], Nodes: slices.Concat(s.lists...), Batches: len(s.lists)}
		size := len(s.do) * max(1, len(run.Nodes))
		if n := len(s.lists); n > 0 && len(s.lists[0]) > 1 && !s.inTurn {
			run.First = nil // each entry is said for all nodes of a batch before the next
			for i := range s.do {
				run.First = append(run.First, entries[i*len(s.lists[0])])
			}
		}
		if s.inTurn {
			run.Batches = 1
		}
		entries = entries[size:]
		found = append(found, run)
	}
	return found
}
