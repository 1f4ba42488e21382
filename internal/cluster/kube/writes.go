package kube

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	// WritesPerSecond is how many writes a second a run sends on average, unless a flag says otherwise.
	WritesPerSecond = 50
	// leastWrites is the smallest bound: with as many actions at once as a run has, a write waits for less than the
	// timeout of a request.
	leastWrites = 10
)

// ValidWrites refuses a bound of writes a second with which a run cannot go on. 0 is no bound.
func ValidWrites(perSecond int) error {
	if perSecond == 0 || perSecond >= leastWrites {
		return nil
	}
	return fmt.Errorf("%d is too small: give at least %d writes a second, or 0 for no bound", perSecond, leastWrites)
}

// Paced returns a client of the same cluster that sends at most so many writes a second on average, after a burst of
// one second's. Writes wait, and are sent in the order in which they came; none is dropped. Reads do not wait. 0 is no
// bound.
func (c *Client) Paced(perSecond int) (*Client, error) {
	if perSecond == 0 {
		return c, nil
	}
	bucket := &bucket{every: time.Second / time.Duration(perSecond)}
	return c.Through(func(next http.RoundTripper) http.RoundTripper { return paced{next, bucket} })
}

type paced struct {
	next   http.RoundTripper
	bucket *bucket
}

// RoundTrip implements http.RoundTripper.
func (p paced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := p.bucket.wait(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as the interface requires
			}
			return nil, err
		}
	}
	return p.next.RoundTrip(r)
}

// bucket is a token bucket for a second's writes. They are counted by the time at which each may be sent.
type bucket struct {
	every time.Duration

	lock sync.Mutex
	next time.Time
}

// wait waits for a write's turn. The turn of a write that is given up is lost.
func (b *bucket) wait(ctx context.Context) error {
	b.lock.Lock()
	now := time.Now()
	if full := now.Add(b.every - time.Second); b.next.Before(full) {
		b.next = full
	}
	turn := b.next.Sub(now)
	b.next = b.next.Add(b.every)
	b.lock.Unlock()
	if turn <= 0 {
		return nil
	}
	return outage.Sleep(ctx, turn)
}
