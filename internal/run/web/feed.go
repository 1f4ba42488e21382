package web

import (
	"context"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
)

// Feed has the newest State of a run. All viewers share it: each gets the difference from what it was sent last, so
// that a slow viewer gets fewer and larger deltas, and delays no other.
type Feed struct {
	// held while the board changes, which takes seconds with many nodes: viewers do not wait for that
	writing sync.Mutex
	board   *Board
	about   About // at the last Publish

	lock    sync.Mutex
	state   *State
	read    time.Time // when the cluster was last read
	since   time.Time // read, while it cannot be read any more
	why     string
	changed chan struct{} // closed at the next change

	withdrawn bool
}

// NewFeed makes the feed of a plan's run.
func NewFeed(p *plan.Plan) *Feed {
	f := &Feed{board: NewBoard(p), changed: make(chan struct{})}
	f.state = f.board.State(About{}, time.Time{})
	return f
}

// Publish changes the board at a time of this machine's clock, and lets all viewers know.
func (f *Feed) Publish(about About, at time.Time, change func(*Board)) {
	f.writing.Lock()
	defer f.writing.Unlock()
	if change != nil {
		change(f.board)
	}
	f.about = about
	state := f.board.State(about, at)
	f.lock.Lock()
	defer f.lock.Unlock()
	f.read, f.since, f.why = at, time.Time{}, ""
	f.show(state)
}

// Age judges again what was published staleAfter ago, or earlier: results that were new then are not any more.
func (f *Feed) Age(at time.Time) {
	if !f.writing.TryLock() {
		return // the board changes
	}
	defer f.writing.Unlock()
	f.lock.Lock()
	read := f.read
	f.lock.Unlock()
	if read.IsZero() || at.Sub(read) < staleAfter {
		return
	}
	state := f.board.State(f.about, at)
	f.lock.Lock()
	defer f.lock.Unlock()
	state.Now.Since, state.Now.Why = f.since, f.why
	f.show(state)
}

// Stale says that the run cannot be read now, and why. The page keeps the known data, with the time of the last
// reading.
func (f *Feed) Stale(why string, at time.Time) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.why == "" {
		f.since = f.read
		if f.since.IsZero() {
			f.since = at
		}
	}
	f.why = why
	state := *f.state
	state.Now.Since, state.Now.Why = f.since, why
	f.show(&state)
}

func (f *Feed) show(state *State) {
	if now := &state.Now; f.withdrawn {
		now.Withdrawn, now.Over, now.Stand, now.Cause = true, true, "withdrawn",
			"the plan is not in the cluster any more"
		now.Since, now.Why, now.Runner, now.Ways, now.Asked, now.Waits = time.Time{}, "", "", "", "", nil
	}
	f.state = state
	close(f.changed)
	f.changed = make(chan struct{})
}

// State is the newest state.
func (f *Feed) State() *State {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.state
}

// Next waits until there is something that a viewer with an earlier state lacks; nil is no state at all.
func (f *Feed) Next(ctx context.Context, before *State) (Delta, *State, error) {
	for {
		f.lock.Lock()
		state, changed := f.state, f.changed
		f.lock.Unlock()
		if state != before {
			if d := Diff(before, state); !d.Empty() {
				return d, state, nil
			}
		}
		select {
		case <-ctx.Done():
			return Delta{}, before, ctx.Err()
		case <-changed:
		}
	}
}

// Read is when the cluster was last read; zero if it was not.
func (f *Feed) Read() time.Time {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.read
}

// Withdraw says that the migration is not in the cluster any more.
func (f *Feed) Withdraw() {
	f.lock.Lock()
	defer f.lock.Unlock()
	state := *f.state
	f.withdrawn = true
	f.show(&state)
}

// On calls a function with the board. It must not change what viewers get, and nothing is published meanwhile.
func (f *Feed) On(read func(*Board)) {
	f.writing.Lock()
	defer f.writing.Unlock()
	read(f.board)
}
