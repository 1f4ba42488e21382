// Package drive has the workload's clients: they send requests of every kind that real programs send,
// at a fixed rate, and count the results.
//
// A request is one attempt. No code below hides a failure: names are looked up by one datagram, connections are dialled
// once, and no request is retried. Drivers react to a server that announces that it is leaving as well-behaved clients
// do: they close the connection when told to, ask another member of a set, or move a stream over.
package drive

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// patience is the timeout of an answer: long enough that a machine that is merely
// busy loses nothing. Slow answers within it are counted as late.
const patience = 5 * time.Second

// request sends one request and returns whom it asked, and an error unless all was as expected. It
// returns when ctx ends at the latest.
type request func(ctx context.Context) (target string, err error)

// kind is one sort of requests, sent at a steady rate.
type kind struct {
	name     string
	rate     float64 // per second
	patience time.Duration
	denied   bool // an answer is the failure, so the time without one says nothing
	// steady is how many requests in a row must be fine before counting starts.
	steady int
	send   request

	tally  *tally.Tally
	warmUp time.Duration
	mu     sync.Mutex
	warm   bool
}

// Driver sends and counts.
type Driver struct {
	kinds   []*kind
	started time.Time
	stalls  stalls
	close   func()
}

// expect adds a kind of requests that are to be answered.
func (d *Driver) expect(name string, rate float64, send request) {
	// A client that is a second old is not in every node's policies yet, which has nothing to do with the network's
	// change.
	const steady = 20
	d.kinds = append(d.kinds, &kind{
		name: name, rate: rate, steady: steady, patience: patience, send: send, tally: tally.New(),
	})
}

// deny adds a kind of requests that are not to be answered.
func (d *Driver) deny(name string, rate float64, send request) {
	const (
		steady  = 10
		silence = 500 * time.Millisecond // allowed answers take a few
	)
	d.kinds = append(d.kinds, &kind{
		name: name, rate: rate, steady: steady, patience: silence, denied: true, send: send, tally: tally.New(),
	})
}

// Run sends until ctx ends, then waits for requests in flight. Call it once.
func (d *Driver) Run(ctx context.Context) {
	d.started = time.Now()
	var group sync.WaitGroup
	group.Go(func() { d.stalls.watch(ctx) })
	for _, k := range d.kinds {
		group.Go(func() { k.run(ctx) })
	}
	group.Wait()
	if d.close != nil {
		d.close()
	}
}

// Warm reports whether every kind of requests has worked and is being counted.
func (d *Driver) Warm() bool {
	for _, k := range d.kinds {
		k.mu.Lock()
		warm := k.warm
		k.mu.Unlock()
		if !warm {
			return false
		}
	}
	return true
}

// Summary is what was counted so far.
func (d *Driver) Summary(now time.Time) tally.Summary {
	s := tally.Summary{Started: d.started, Updated: now, Stalls: d.stalls.read(), Kinds: map[string]tally.Count{}}
	for _, k := range d.kinds {
		c := k.tally.Count(now)
		k.mu.Lock()
		c.WarmUp = tally.Millis(k.warmUp)
		if !k.warm {
			c.WarmUp = tally.Millis(now.Sub(d.started))
		}
		k.mu.Unlock()
		s.Kinds[k.name] = c
	}
	return s
}

// run first waits until requests of this kind work at all, as a program does that starts up; from
// then on every one counts.
func (k *kind) run(ctx context.Context) {
	interval := time.Duration(float64(time.Second) / k.rate)
	if !k.warmed(ctx, interval) {
		return
	}
	var flying sync.WaitGroup
	defer flying.Wait()
	next := time.Now()
	for wait(ctx, time.Until(next)) {
		next = next.Add(interval)
		if behind := time.Since(next); behind > patience {
			next = time.Now() // the sender itself was stalled; catching up would measure the burst
		}
		flying.Go(func() { k.one() })
	}
}

// one sends a counted request. The driver's end does not cancel it: requests in flight are finished.
func (k *kind) one() {
	n := k.tally.Send()
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), k.patience)
	defer cancel()
	target, err := k.send(ctx)
	took := time.Since(sent)
	if k.denied {
		took = 0
	}
	k.tally.Done(n, tally.Outcome{Sent: sent, Took: took, Err: err, Target: target})
}

// warmed sends uncounted requests until enough in a row were fine.
func (k *kind) warmed(ctx context.Context, interval time.Duration) bool {
	started := time.Now()
	for fine := 0; fine < k.steady; {
		if !wait(ctx, max(interval, 20*time.Millisecond)) {
			return false
		}
		attempt, cancel := context.WithTimeout(ctx, k.patience)
		_, err := k.send(attempt)
		cancel()
		fine++
		if err != nil {
			fine = 0
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.warm, k.warmUp = true, time.Since(started)
	return true
}

// wait returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// unexpected is the error of an answer that is not the one that was asked for.
func unexpected(got, want string) error { return fmt.Errorf("got %q, expected %q", got, want) }
