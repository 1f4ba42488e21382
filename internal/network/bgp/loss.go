package bgp

import (
	"fmt"
	"slices"
)

// Loss is the effect of the loss of some reflectors.
type Loss struct {
	// Down are the reflectors, by index.
	Down []int
	// Pairs counts the ordered pairs of other nodes that have a route now and would lose it.
	Pairs int
	// Cut are the other nodes that would lose routes.
	Cut []int
}

// maxTries is the maximum number of sets of reflectors to try.
const maxTries = 2000

// Losses returns the sets of exactly k reflectors whose loss removes routes of other nodes, the worst first, and
// whether all sets were tried. Of equivalent sets, whose reflectors have the same neighbours with the same settings, it
// returns one.
func (g *Graph) Losses(k int) (losses []Loss, complete bool) {
	now := g.Routes()
	reflectors := g.Reflectors()
	seen := map[string]bool{}
	complete = true
	tries := 0
	var lose func(set []int, from int)
	lose = func(set []int, from int) {
		if len(set) == k {
			key := now.alike(set)
			if seen[key] {
				return
			}
			seen[key] = true
			if tries++; tries > maxTries {
				complete = false
				return
			}
			if loss := g.lose(now, set); loss.Pairs > 0 {
				losses = append(losses, loss)
			}
			return
		}
		for i := from; i < len(reflectors) && complete; i++ {
			lose(append(slices.Clone(set), reflectors[i]), i+1)
		}
	}
	lose(nil, 0)
	slices.SortStableFunc(losses, func(a, b Loss) int { return b.Pairs - a.Pairs })
	return losses, complete
}

// Carriers returns a smallest set of reflectors without which no other node has a route to another one; nil if there is
// no set of at most the given size, or there are too many sets to try.
func (g *Graph) Carriers(most int) []int {
	for k := 1; k <= min(most, len(g.Reflectors())); k++ {
		losses, complete := g.Losses(k)
		for _, loss := range losses {
			left := len(g.Speakers()) - k
			if left > 1 && loss.Pairs == left*(left-1) {
				return loss.Down
			}
		}
		if !complete {
			return nil
		}
	}
	return nil
}

// alike identifies a set of nodes by their classes.
func (r *Routes) alike(set []int) string {
	classes := make([]int32, len(set))
	for i, node := range set {
		classes[i] = r.class[node]
	}
	slices.Sort(classes)
	return fmt.Sprint(classes)
}

func (g *Graph) lose(now *Routes, down []int) Loss {
	loss := Loss{Down: down}
	after := g.routes(down)
	for i := range g.Nodes {
		if after.class[i] < 0 {
			continue
		}
		lacked := now.Lacks(i)
		for _, d := range down {
			if !now.Learns(i, d) {
				lacked--
			}
		}
		if more := after.Lacks(i) - lacked; more > 0 {
			loss.Pairs += more
			loss.Cut = append(loss.Cut, i)
		}
	}
	return loss
}
