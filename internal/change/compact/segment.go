package compact

import (
	"encoding/json"
	"slices"
)

// segment is a run of items: what is said for lists of nodes, one list after the other.
type segment struct {
	do     []item
	lists  [][]string
	inTurn bool
}

// longestTurn is how many items of one node are looked at as one turn.
const longestTurn = 8

// segments folds a list of items.
func segments(items []item, acts bool) []segment {
	return batched(merged(runs(items, acts)))
}

// runs are the longest runs of items that differ in their node alone. What names no node is a run of its own.
func runs(items []item, acts bool) (found []segment) {
	for len(items) > 0 {
		best, taken := segment{do: items[:1], lists: [][]string{{items[0].node}}}, 1
		if items[0].node == "" {
			best.lists = nil
		}
		for period := 1; items[0].node != "" && period <= min(longestTurn, len(items)); period++ {
			if items[period-1].node != items[0].node {
				break
			}
			for _, inTurn := range []bool{false, true} {
				nodes := run(items, period, inTurn, acts)
				if len(nodes) > 1 && len(nodes)*period > taken {
					best, taken = segment{do: items[:period], lists: [][]string{nodes}, inTurn: inTurn},
						len(nodes)*period
				}
			}
		}
		found = append(found, best)
		items = items[taken:]
	}
	return found
}

// run are the nodes for which the first items, as many as period, are said one node after the other.
func run(items []item, period int, inTurn, acts bool) (nodes []string) {
	if !inTurn && period > 1 {
		return nil
	}
	seen := map[string]bool{}
	for at := 0; at+period <= len(items); at += period {
		node := items[at].node
		if node == "" || seen[node] {
			break
		}
		for k := range period {
			it, as := items[at+k], items[k]
			together := acts && !inTurn && at > 0
			if it.node != node || it.text != as.text || it.beside != (as.beside || together) {
				return nodes
			}
		}
		seen[node] = true
		nodes = append(nodes, node)
	}
	return nodes
}

// merged joins segments that are for the same nodes, one after the other.
func merged(all []segment) (fewer []segment) {
	for _, s := range all {
		if n := len(fewer); n > 0 && len(s.lists) == 1 && len(fewer[n-1].lists) == 1 &&
			!s.inTurn && !fewer[n-1].inTurn &&
			slices.Equal(s.lists[0], fewer[n-1].lists[0]) {
			fewer[n-1].do = slices.Concat(fewer[n-1].do, s.do)
			continue
		}
		fewer = append(fewer, s)
	}
	return fewer
}

// batched joins segments that say the same for other nodes, one after the other.
func batched(all []segment) (fewer []segment) {
	for _, s := range all {
		if n := len(fewer); n > 0 && len(s.lists) == 1 && len(fewer[n-1].lists) > 0 && s.inTurn == fewer[n-1].inTurn &&
			slices.EqualFunc(s.do, fewer[n-1].do, item.says) {
			fewer[n-1].lists = append(fewer[n-1].lists, s.lists[0])
			continue
		}
		fewer = append(fewer, s)
	}
	return fewer
}

func (it item) says(other item) bool { return it.text == other.text && it.beside == other.beside }

// entries are the segment as entries of a list. name is the name of a list of nodes, "" where it has none.
func (s segment) entries(name func([]string) string) ([]json.RawMessage, error) {
	var entries []json.RawMessage
	if len(s.lists) == 0 || len(s.lists) == 1 && len(s.lists[0]) == 1 {
		for _, it := range s.do {
			entries = append(entries, it.entry())
		}
		return entries, nil
	}
	e := each{InTurn: s.inTurn, ForEach: Batches{Lists: s.lists}}
	if len(s.lists) == 1 {
		e.ForEach.Name = name(s.lists[0])
	}
	for _, it := range s.do {
		e.Do = append(e.Do, it.template())
	}
	entry, err := json.Marshal(e)
	return append(entries, entry), err
}
