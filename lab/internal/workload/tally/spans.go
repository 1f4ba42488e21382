package tally

import (
	"cmp"
	"slices"
	"time"
)

// Spans are the times in which requests were fine, in order and disjoint. A client that is recreated leaves a hole in
// its own spans, which a gap does not show: it sends no request that could fail. The spans of all clients together have
// a hole when no client was served.
type Spans []Span

// Span lasts from sending the first request that was fine to sending the last one.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// near is how far apart two fine requests are that belong to one span: the slowest kinds send twice a second.
const near = time.Second

// add adds a request that was fine, sent after all others.
func (s Spans) add(at time.Time) Spans {
	if n := len(s); n > 0 && at.Sub(s[n-1].To) <= near {
		s[n-1].To = at
		return s
	}
	return append(s, Span{From: at, To: at})
}

// union is the time that either covers.
func (s Spans) union(o Spans) Spans {
	all := slices.Concat(s, o)
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.From.UnixNano(), b.From.UnixNano()) })
	var sum Spans
	for _, span := range all {
		if n := len(sum); n > 0 && span.From.Sub(sum[n-1].To) <= near {
			if span.To.After(sum[n-1].To) {
				sum[n-1].To = span.To
			}
			continue
		}
		sum = append(sum, span)
	}
	return sum
}

// Hole is the longest time between from and to that no span covers.
func (s Spans) Hole(from, to time.Time) (longest time.Duration) {
	for _, span := range s {
		if span.From.Before(to) {
			longest = max(longest, span.From.Sub(from))
		}
		if span.To.After(from) {
			from = span.To
		}
	}
	return max(longest, to.Sub(from))
}
