package report

import (
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// residue compares the inventories of all nodes, item by item.
func residue(before, after map[string]step.Inventory) Residue {
	result := Residue{NodesBefore: len(before), NodesAfter: len(after)}
	items := map[[2]string]*ResidueItem{}
	each(before, func(_, kind, name string) {
		item(items, kind, name).Before++
		result.Before++
	})
	each(after, func(node, kind, name string) {
		found := item(items, kind, name)
		found.After++
		found.Left = append(found.Left, node)
		result.After++
	})
	for _, node := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[node]; !ok {
			result.NodesWithout = append(result.NodesWithout, node)
		}
	}
	result.Items = inOrder(items)
	return result
}

// each calls a function for every item of every inventory, in the order of the nodes' names.
func each(inventories map[string]step.Inventory, call func(node, kind, name string)) {
	for _, node := range slices.Sorted(maps.Keys(inventories)) {
		for _, list := range residueKinds(inventories[node].Found) {
			for _, name := range list.names {
				call(node, list.kind, name)
			}
		}
	}
}

func item(items map[[2]string]*ResidueItem, kind, name string) *ResidueItem {
	key := [2]string{kind, name}
	if items[key] == nil {
		items[key] = &ResidueItem{Kind: kind, Name: name}
	}
	return items[key]
}

// inOrder sorts items that are left first, then by kind and name.
func inOrder(items map[[2]string]*ResidueItem) []ResidueItem {
	var order []string
	for _, list := range residueKinds(step.Residue{}) {
		order = append(order, list.kind)
	}
	keys := slices.SortedFunc(maps.Keys(items), func(a, b [2]string) int {
		if left := boolRank(items[a].After > 0) - boolRank(items[b].After > 0); left != 0 {
			return left
		}
		if kinds := slices.Index(order, a[0]) - slices.Index(order, b[0]); kinds != 0 {
			return kinds
		}
		return slices.Compare(a[:], b[:])
	})
	list := make([]ResidueItem, 0, len(keys))
	for _, key := range keys {
		list = append(list, *items[key])
	}
	return list
}

// boolRank sorts true first.
func boolRank(first bool) int {
	if first {
		return 0
	}
	return 1
}
