package loss

import "math/bits"

// Sixteen buckets for each power of two keep a quantile within 1/16 of its true value, in 3 KiB a path.
const (
	subBits    = 4
	subBuckets = 1 << subBits
	octaves    = 24 // up to 2^27 microseconds, about two minutes
)

// histogram counts durations in microseconds in buckets whose width grows with the value.
type histogram struct {
	counts [subBuckets * octaves]int64
	total  int64
	max    int64
}

// add counts one value; negative ones count as zero.
func (h *histogram) add(micros int64) {
	micros = max(micros, 0)
	h.counts[bucketOf(micros)]++
	h.total++
	h.max = max(h.max, micros)
}

// quantile is the upper bound of the bucket that holds the q-th value of all (0 < q <= 1), at most the
// largest value seen; 0 when there is none.
func (h *histogram) quantile(q float64) int64 {
	if h.total == 0 {
		return 0
	}
	rank := max(int64(q*float64(h.total)+0.999999), 1)
	seen := int64(0)
	for i, count := range h.counts {
		if seen += count; seen >= rank {
			return min(upperBound(i), h.max)
		}
	}
	return h.max
}

// bucketOf is the index of a value's bucket; values too large share the last one.
func bucketOf(value int64) int {
	if value < subBuckets {
		return int(value)
	}
	shift := bits.Len64(uint64(value)) - subBits - 1
	index := (shift+1)*subBuckets + int(value>>shift) - subBuckets
	return min(index, subBuckets*octaves-1)
}

// upperBound is the largest value of a bucket.
func upperBound(index int) int64 {
	if index < subBuckets {
		return int64(index)
	}
	shift := index/subBuckets - 1
	low := int64(index%subBuckets+subBuckets) << shift
	return low + int64(1)<<shift - 1
}

// ranges sums the buckets up in those of PathResult.RTTCounts.
func (h *histogram) ranges() []int64 {
	var counts []int64
	for i, count := range h.counts {
		if count == 0 {
			continue
		}
		for at := rangeOf(upperBound(i)); len(counts) <= at; {
			counts = append(counts, 0)
		}
		counts[len(counts)-1] += count
	}
	return counts
}

// firstRange is where the second range of PathResult.RTTCounts begins; from there on each power of two has two.
const firstRange = 64

// rangeOf is the index of a value's range in PathResult.RTTCounts.
func rangeOf(micros int64) int {
	if micros < firstRange {
		return 0
	}
	n := bits.Len64(uint64(micros))
	return 1 + 2*(n-bits.Len64(firstRange)) + int(micros>>(n-2)&1)
}

// rangeEnd is where a range ends, in microseconds.
func rangeEnd(index int) int64 {
	whole := int64(firstRange) << ((index + 1) / 2)
	if index%2 == 1 {
		return whole/2 + whole/4
	}
	return whole
}
