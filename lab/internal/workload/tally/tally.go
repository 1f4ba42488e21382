// Package tally counts the results of requests, in the order in which they were sent: late outcomes are sorted in
// before anything is concluded from them. It reads no clock and uses no network; times are the sender's.
package tally

import (
	"slices"
	"sync"
	"time"
)

// late is when an answer that did come is late: a user noticed. A retransmitted TCP SYN takes a second.
const late = 500 * time.Millisecond

// maxErrors is how many errors are kept word by word.
const maxErrors = 100

// Outcome is the result of one request.
type Outcome struct {
	Sent   time.Time     // when it was sent, by the sender's clock
	Took   time.Duration // until the answer, or until it was given up
	Err    error         // nil if it was as expected
	Target string        // whom it was sent to, for the error's sake
}

// Tally counts one kind of requests. It may be used from several goroutines.
type Tally struct {
	mu      sync.Mutex
	next    uint64             // number of the next request
	turn    uint64             // number of the next outcome to count
	waiting map[uint64]Outcome // outcomes that came before their turn
	count   Count
	badFrom time.Time // send time of the first request of the current gap, or zero
}

// New returns an empty tally.
func New() *Tally {
	return &Tally{waiting: map[uint64]Outcome{}, count: Count{Latency: Histogram{}, GapLengths: Histogram{}}}
}

// Send gives a request its place. Each must be followed by one call of Done with the same number.
func (t *Tally) Send() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next
	t.next++
	return n
}

// Done records the outcome of request n.
func (t *Tally) Done(n uint64, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[n] = o
	for {
		o, ok := t.waiting[t.turn]
		if !ok {
			return
		}
		delete(t.waiting, t.turn)
		t.turn++
		t.add(o)
	}
}

// add counts the next outcome in the order of sending.
func (t *Tally) add(o Outcome) {
	c := &t.count
	c.Sent++
	switch {
	case o.Err != nil:
		c.Failed++
		if len(c.Errors) < maxErrors {
			c.Errors = append(c.Errors,
				Error{At: o.Sent, After: Millis(o.Took), Target: o.Target, Message: o.Err.Error()})
		}
	case o.Took > late:
		c.Late++
	}
	if o.Err == nil {
		c.Latency.add(o.Took)
		c.Slowest = max(c.Slowest, Millis(o.Took))
	}
	if o.Err != nil || o.Took > late {
		if t.badFrom.IsZero() {
			t.badFrom = o.Sent
		}
		return
	}
	c.Fine = c.Fine.add(o.Sent)
	c.widen(t.badFrom, o.Sent)
	t.badFrom = time.Time{}
}

// Count returns the counts so far. A gap that has not ended is counted up to now.
func (t *Tally) Count(now time.Time) Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.count
	c.InFlight = t.next - t.turn
	c.Errors = append([]Error(nil), c.Errors...)
	c.Latency, c.GapLengths = c.Latency.clone(), c.GapLengths.clone()
	c.Fine = slices.Clone(c.Fine)
	c.widen(t.badFrom, now)
	c.quantiles()
	return c
}

// widen counts a gap, and makes it the longest one if it is.
func (c *Count) widen(from, to time.Time) {
	if from.IsZero() {
		return
	}
	c.Gaps++
	c.GapLengths.add(to.Sub(from))
	if length := Millis(to.Sub(from)); length > c.LongestGap {
		c.LongestGap, c.LongestGapAt = length, from
	}
}
