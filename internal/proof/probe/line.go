package probe

import (
	"sync"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
)

// wire sends the probes of one path. send must not block for longer than a moment; the wire reports the result of
// each probe to the line.
type wire interface {
	send(seq uint64, at time.Time)
	close()
}

// line is one path being measured, or measured until it was removed.
type line struct {
	mu      sync.Mutex
	path    v1alpha1.Path
	tracker *loss.Tracker
	ports   sourcePorts // of new connections of all wires
	second  exchange    // with the path's second responder; nil if it has none

	// The rest belongs to the runner: wire is nil once the path is removed.
	wire     wire
	ready    bool // the schedule runs
	schedule schedule
	retired  time.Time
	asked    time.Time // when the second responder was asked last
}

// sent records a send and returns the probe's number.
func (l *line) sent(due, at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracker.Send(due, at)
}

// answered records an answer that arrived now.
func (l *line) answered(seq uint64) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.Answer(seq, now)
}

// failed records a probe that will not be answered, and why.
func (l *line) failed(seq uint64, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.Fail(seq, cause.Error())
}

// silent reports whether the target has owed an answer for longer than usual.
func (l *line) silent(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracker.Silent(now, secondAfter)
}

// seconded records that the second responder answered the probe that was sent at a moment.
func (l *line) seconded(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.Second(at)
}

// result is the path's result at now.
func (l *line) result(now time.Time) v1alpha1.PathResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.Expire(now)
	return l.tracker.Result()
}
