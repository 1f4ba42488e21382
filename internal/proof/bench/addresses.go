package bench

import (
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Left is how many addresses of a range pods could get before a benchmark, and after its pods were removed.
type Left struct {
	Of     string `json:"of"` // the network, and the node if the range is a node's
	Range  string `json:"range"`
	Usable int64  `json:"usable"`
	Before int64  `json:"before"`
	After  int64  `json:"after"`
}

// LeftOf compares the addresses of the ranges that are there both times, and that nodes may use.
func LeftOf(before, after []cluster.Addresses, nodes ...string) (all []Left) {
	for _, was := range before {
		if was.Node != "" && !slices.Contains(nodes, was.Node) {
			continue
		}
		at := slices.IndexFunc(after, func(is cluster.Addresses) bool {
			return is.Of() == was.Of() && is.Range == was.Range
		})
		if at >= 0 {
			all = append(all, Left{was.Of(), was.Range, was.Usable, was.Left(), after[at].Left()})
		}
	}
	return all
}

// String is a sentence.
func (l Left) String() string {
	return fmt.Sprintf("Addresses left for pods in %s (%s): %d of %d before, %d after the benchmark's pods were "+
		"removed",
		l.Range, l.Of, l.Before, l.Usable, l.After)
}
