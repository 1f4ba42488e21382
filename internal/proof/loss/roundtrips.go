package loss

// RoundTrips is a histogram of round trips, as PathResult.RTTCounts.
type RoundTrips []int64

// Add adds another histogram.
func (r *RoundTrips) Add(counts []int64) {
	for len(*r) < len(counts) {
		*r = append(*r, 0)
	}
	for i, n := range counts {
		(*r)[i] += n
	}
}

// Since is what was added to an earlier state of the same histogram.
func (r RoundTrips) Since(before RoundTrips) RoundTrips { return minus(r, before) }

// Quantile is the end of the range that holds the q-th value (0 < q <= 1), in microseconds; 0 if there is none.
func (r RoundTrips) Quantile(q float64) int64 {
	for _, n := range r {
		if n > 0 {
			return rangeEnd(quantileRange(r, q))
		}
	}
	return 0
}

// Within is how many values lie in ranges that end at or before a number of microseconds.
func (r RoundTrips) Within(micros int64) (n int64) {
	for i, count := range r {
		if rangeEnd(i) <= micros {
			n += count
		}
	}
	return n
}

// Total is how many values there are, and an estimate of their sum in microseconds: each counts as the middle of its
// range.
func (r RoundTrips) Total() (n, micros int64) {
	begin := int64(0)
	for i, count := range r {
		end := rangeEnd(i)
		n, micros = n+count, micros+count*(begin+end)/2
		begin = end
	}
	return n, micros
}
