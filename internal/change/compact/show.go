package compact

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// Repeats says of each step which earlier one it repeats for other nodes: the index of the first step of the same
// procedure, or -1 where there is none. Two steps repeat each other only if nothing but the names of nodes and waves
// differs. A few steps are expanded to find that out, and not every step as in Fold.
func (n *Namer) Repeats() ([]int, error) {
	f := n.folder
	byText := map[string]int{} // without names
	var firsts []folded
	var places []int
	repeats := make([]int, len(n.steps))
	for i := range n.steps {
		s := &n.steps[i]
		repeats[i] = -1
		parts, err := f.fold(s)
		if err != nil {
			return nil, err
		}
		text, row, err := f.template(s, parts)
		if err != nil {
			return nil, err
		}
		own, err := parts.literal(s)
		if err != nil {
			return nil, err
		}
		if text == nil || own {
			n.keep(s, parts)
			continue
		}
		if at, known := byText[string(text)]; known {
			repeats[i] = at
			continue
		}
		next := folded{step: s, row: row}
		if next.of, err = f.candidate(text, row); err != nil {
			return nil, err
		}
		for k, first := range firsts {
			if f.alike(first, next) || f.alike(next, first) {
				repeats[i] = places[k]
				break
			}
		}
		if repeats[i] >= 0 {
			byText[string(text)] = repeats[i]
			continue
		}
		n.keep(s, parts)
		byText[string(text)] = i
		firsts, places = append(firsts, next), append(places, i)
	}
	return repeats, nil
}

// alike says whether a step runs the procedure of another, such as that for several nodes where it is about one.
func (f *folder) alike(one, other folded) bool {
	return (one.row.Nodes != nil || other.of.several) && f.runs(other.of, one.row, one.step.ID) &&
		f.exact(one.step, one.row, other.of)
}

// Run are entries of a list that are said for several nodes, in batches one after the other. Of an entry that names no
// node, or of nodes that no other entry is like, there are no batches.
type Run[T any] struct {
	First   []T      // the entries for the first node
	Nodes   []string // all nodes
	Batches int
}

// Namer knows the names of a plan's nodes, and says which of its actions and conditions differ in them alone.
type Namer struct {
	steps  []step.Step
	folder *folder
	kept   map[*step.Action][]segment // of lists of actions, by their first
}

// NewNamer knows the names of the nodes that steps are about.
func NewNamer(steps []step.Step, c Cluster) *Namer {
	return &Namer{steps: steps, folder: emptyFolder(steps, c), kept: map[*step.Action][]segment{}}
}

// keep keeps how the actions of a step are folded. The lists of steps that repeat none are the longest.
func (n *Namer) keep(s *step.Step, p *parts) {
	if len(s.Actions) > 0 {
		n.kept[&s.Actions[0]] = p.actions
	}
	if len(s.Undo) > 0 {
		n.kept[&s.Undo[0]] = p.undo
	}
}

// Actions are the runs of a list of actions, which is that of an ID.
func (n *Namer) Actions(actions []step.Action, id string) ([]Run[step.Action], error) {
	if len(actions) == 0 {
		return nil, nil
	}
	folded, known := n.kept[&actions[0]]
	if !known {
		items, err := n.folder.names.actionItems(actions, id)
		if err != nil {
			return nil, err
		}
		folded = segments(items, true)
	}
	return shown(folded, actions), nil
}

// Conditions are the runs of a list of conditions.
func (n *Namer) Conditions(conditions []step.Condition) ([]Run[step.Condition], error) {
	items, err := n.folder.names.conditionItems(conditions)
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
