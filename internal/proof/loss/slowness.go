package loss

import (
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// slowSlot is the time over which a node is found slow or not: a hiccup of seconds
// weighs little.
const slowSlot = 10 * time.Second

// resting is the number of slots for which a node that was slow is not judged.
const resting = 1

// fewest is the number of answers in a slot from which a node is judged.
const fewest = 50

// noticed is the time, in microseconds, below which no answer is slow.
const noticed = 1000

// margin is by how many ranges an answer must be slower than its path's quantile was before the change: two to three
// times as slow.
const margin = 3

// slowness compares how long answers take. A node is slow in a slot when half of its answers take more than twice as
// long as half of them did before anything was changed, path by path, or a tenth more than twice as long as nine tenths
// did. Such slots are compared as those with losses are: however slow, a node counts once, and a cause that slows all
// nodes is no evidence.
type slowness struct {
	comparison
	at   time.Time
	last map[string]v1alpha1.PathResult
	// before are the counts of paths until the first node was changed.
	before map[string][]int64
	// was and is are those of changed nodes, over their paths, before and since.
	was, is         map[string][]int64
	changed, others Tally // slots, and slow ones
	// rest is for how many more slots a node is not judged.
	rest map[string]int
}

// paceSum is how many answers of a node came in a slot, and how many of them later than twice the median, and than
// twice the ninth decile, of before.
type paceSum struct{ answers, median, tail int64 }

func (p paceSum) slow() bool { return 2*p.median > p.answers || 10*p.tail > p.answers }

// look evaluates results, as Canary.Look does; a slot ends with the first look after its time.
func (s *slowness) look(paths []v1alpha1.Path, results map[string]v1alpha1.PathResult, changed []string, at time.Time) {
	if !s.at.IsZero() && at.Sub(s.at) < slowSlot {
		return
	}
	if s.before == nil {
		s.before, s.was, s.is, s.rest = map[string][]int64{}, map[string][]int64{},
			map[string][]int64{}, map[string]int{}
	}
	fresh, old, turns := map[string]paceSum{}, map[string]paceSum{}, turnsOf(changed)
	for _, path := range paths {
		now, ok := results[path.ID]
		then, known := s.last[path.ID]
		if !ok || path.Denied {
			continue
		}
		latest := max(turns[path.Source.Node], turns[path.Target.Node]) - 1
		if before := s.before[path.ID]; known && before != nil && !restarted(then, now) {
			since := minus(now.RTTCounts, then.RTTCounts)
			switch {
			case latest >= 0:
				node := changed[latest]
				fresh[node] = fresh[node].plus(before, since)
				s.was[node], s.is[node] = plus(s.was[node], before), plus(s.is[node], since)
			case path.Target.Node != "" || len(changed) == 0:
				old[path.Source.Node] = old[path.Source.Node].plus(before, since)
			}
		}
		if len(changed) == 0 || s.before[path.ID] == nil {
			s.before[path.ID] = now.RTTCounts
		}
	}
	s.at, s.last = at, results
	now, others := judged(fresh, &s.changed), judged(old, &s.others)
	s.bet(s.rested(now), s.rested(others))
}

// rested leaves out nodes that were found slow recently, and remembers those that are slow now: a cause of slowness
// lasts longer than a slot, and must count once.
func (s *slowness) rested(nodes map[string]nodeSum) map[string]nodeSum {
	for name, n := range nodes {
		switch {
		case s.rest[name] > 0:
			s.rest[name]--
			delete(nodes, name)
		case n.lost > 0:
			s.rest[name] = resting
		}
	}
	return nodes
}

// judged are the nodes with enough answers, as nodes that sent one probe each, and lost it if they were slow.
func judged(nodes map[string]paceSum, tally *Tally) map[string]nodeSum {
	sums := map[string]nodeSum{}
	for name, p := range nodes {
		if p.answers >= fewest {
			sums[name] = nodeSum{1, int64(one(p.slow()))}
			tally.add(1, sums[name].lost)
		}
	}
	return sums
}

// plus adds the answers of a path.
func (p paceSum) plus(before, since []int64) paceSum {
	median, tail := slowFrom(before, 0.5), slowFrom(before, 0.9)
	for i, n := range since {
		p.answers += n
		if i >= median {
			p.median += n
		}
		if i >= tail {
			p.tail += n
		}
	}
	return p
}

// slowFrom is the first range that counts as slow, by a quantile from before the change.
func slowFrom(before []int64, q float64) int {
	return max(quantileRange(before, q)+margin, rangeOf(noticed)+1)
}

// quantileRange is the range of a quantile; the first if there are no answers.
func quantileRange(counts []int64, q float64) int {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	seen := int64(0)
	for i, n := range counts {
		if seen += n; n > 0 && float64(seen) >= q*float64(total) {
			return i
		}
	}
	return 0
}

func plus(a, b []int64) []int64 {
	sum := make([]int64, max(len(a), len(b)))
	copy(sum, a)
	for i, n := range b {
		sum[i] += n
	}
	return sum
}

func minus(a, b []int64) []int64 {
	left := slices.Clone(a)
	for i := range min(len(a), len(b)) {
		left[i] -= b[i]
	}
	return left
}

// figures describes how slow nodes are; without nodes, it describes all changed ones.
func (s *slowness) figures(names []string) string {
	var was, is []int64
	for node := range s.is {
		if len(names) == 0 || slices.Contains(names, node) {
			was, is = plus(was, s.was[node]), plus(is, s.is[node])
		}
	}
	within := func(counts []int64, q float64) string {
		return ms(float64(rangeEnd(quantileRange(counts, q))) / 1000)
	}
	return fmt.Sprintf("half of the answers take up to %s, and nine tenths up to %s, where it was %s and %s; slow in "+
		"%s of %s looks on changed nodes, %s of %s on the others",
		within(is, 0.5), within(is, 0.9), within(was, 0.5), within(was, 0.9),
		count(s.changed.Lost), count(s.changed.Sent), count(s.others.Lost), count(s.others.Sent))
}
