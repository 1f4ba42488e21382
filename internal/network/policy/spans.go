package policy

import (
	"cmp"
	"slices"
)

// span is a range of numbers, including both ends.
type span struct{ first, last uint32 }

// spans is a set of numbers: ranges in order that neither overlap nor touch. It is used for ports and addresses. A set
// is immutable.
type spans []span

// makeSpans makes a set from ranges in any order; a range that ends before it begins is empty.
func makeSpans(ranges ...span) spans {
	slices.SortFunc(ranges, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var set spans
	for _, r := range ranges {
		if r.first > r.last {
			continue
		}
		if n := len(set); n > 0 && (set[n-1].last == ^uint32(0) || r.first <= set[n-1].last+1) {
			set[n-1].last = max(set[n-1].last, r.last)
			continue
		}
		set = append(set, r)
	}
	return set
}

func (s spans) union(other spans) spans {
	switch {
	case len(s) == 0:
		return other
	case len(other) == 0:
		return s
	}
	return makeSpans(slices.Concat(s, other)...)
}

func (s spans) intersect(other spans) spans {
	var set spans
	for i, j := 0, 0; i < len(s) && j < len(other); {
		first, last := max(s[i].first, other[j].first), min(s[i].last, other[j].last)
		if first <= last {
			set = append(set, span{first, last})
		}
		if s[i].last < other[j].last {
			i++
		} else {
			j++
		}
	}
	return set
}

func (s spans) subtract(other spans) spans {
	if len(other) == 0 {
		return s
	}
	var set spans
	j := 0
	for _, r := range s {
		for j < len(other) && other[j].last < r.first {
			j++
		}
		rest, done := r.first, false
		for k := j; k < len(other) && other[k].first <= r.last; k++ {
			if other[k].first > rest {
				set = append(set, span{rest, other[k].first - 1})
			}
			if done = other[k].last >= r.last; done {
				break
			}
			rest = other[k].last + 1
		}
		if !done {
			set = append(set, span{rest, r.last})
		}
	}
	return set
}

func (s spans) contains(n uint32) bool {
	_, ok := slices.BinarySearchFunc(s, n, func(r span, n uint32) int {
		switch {
		case r.last < n:
			return -1
		case r.first > n:
			return 1
		}
		return 0
	})
	return ok
}

// overlap returns how much of s is in other.
func (s spans) overlap(other spans) match {
	switch shared := s.intersect(other); {
	case len(shared) == 0:
		return no
	case slices.Equal(shared, s):
		return yes
	}
	return maybe
}
