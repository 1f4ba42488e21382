package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// timeout is how long an answer may take, counted from the scheduled time of its question.
const timeout = bench.Timeout

// flow is operations at a constant rate. Their times follow from the rate and from the begin alone.
type flow struct {
	begin time.Time
	every time.Duration
	// micros has the latency of each operation, and of one without an answer -1; late how late each was sent.
	micros []atomic.Int64
	late   []int64
	// sent is the number of operations that were sent, queued of those that waited in the client.
	sent, queued atomic.Int64

	mu   sync.Mutex
	last error
}

// newFlow is a flow of rate operations a second that lasts so long.
func newFlow(rate int, lasts time.Duration) *flow {
	n := max(1, int(float64(rate)*lasts.Seconds()))
	f := &flow{begin: time.Now(), every: time.Second / time.Duration(rate), micros: make([]atomic.Int64, n),
		late: make([]int64, n)}
	for i := range f.micros {
		f.micros[i].Store(-1)
	}
	return f
}

// due is the scheduled time of an operation.
func (f *flow) due(i int) time.Time { return f.begin.Add(time.Duration(i) * f.every) }

// send calls send for every operation at its time, or at once if that has passed. It keeps a thread to itself, because
// timers of the runtime are late by up to a millisecond. It ends with ctx.
func (f *flow) send(ctx context.Context, send func(i int)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range f.micros {
		at := f.due(i)
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			rest := unix.NsecToTimespec(int64(min(wait, 100*time.Millisecond)))
			unix.Nanosleep(&rest, nil) //nolint:errcheck // a signal only ends it early
			if ctx.Err() != nil {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		f.late[i] = time.Since(at).Microseconds()
		f.sent.Store(int64(i + 1))
		send(i)
	}
}

// answered records an answer that arrives now, unless it is too late, or not the first.
func (f *flow) answered(i int) {
	if i < 0 || i >= len(f.micros) {
		return
	}
	if took := time.Since(f.due(i)); took <= timeout {
		f.micros[i].CompareAndSwap(-1, took.Microseconds())
	}
}

func (f *flow) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = err
}

// lastError is the last error of an operation; empty if there was none.
func (f *flow) lastError() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return ""
	}
	return failure(f.last)
}

// complete reports whether every operation that was sent is answered.
func (f *flow) complete() bool {
	for i := range int(f.sent.Load()) {
		if f.micros[i].Load() < 0 {
			return false
		}
	}
	return true
}

// sum is the distribution of the operations that were to be sent, those that were not included, and how many were
// answered for each second in which they were to be sent.
func (f *flow) sum(offered int) (bench.Latency, float64) {
	var micros []int64
	for i := range offered {
		if m := f.micros[i].Load(); m >= 0 {
			micros = append(micros, m)
		}
	}
	late := append([]int64{}, f.late[:min(offered, int(f.sent.Load()))]...)
	latency := bench.NewLatency(int64(offered), micros, late)
	latency.Queued = f.queued.Load()
	return latency, float64(len(micros)) / max(f.every, time.Duration(offered)*f.every).Seconds()
}

// leastLost is how many operations must be lost for the load to stop.
const leastLost = 5

// harm says why the load must stop; empty if it need not. what names the operations. It judges the operations of a
// second: those that were due before now, less the time that they had. Over half of them were sent late by over most/2,
// or took over most, or bench.LostShare of them were not answered.
func (f *flow) harm(now time.Time, most time.Duration, what string) string {
	second := max(1, int(time.Second/f.every))
	sent := int(f.sent.Load())
	window := func(age time.Duration) (begin, end int) {
		end = min(max(0, int(now.Add(-age).Sub(f.begin)/f.every)), len(f.micros))
		return max(0, end-second), end
	}
	tardy := func(i int) bool { return i >= sent || f.late[i] > most.Microseconds()/2 }
	begin, end := window(most)
	late, bad := 0, 0
	for i := begin; i < end; i++ {
		m := int64(0)
		if i < sent {
			m = f.micros[i].Load()
		}
		switch {
		case tardy(i):
			late++
		case m < 0 || m > most.Microseconds():
			bad++
		}
	}
	if n := end - begin; n >= (second+1)/2 {
		if late*2 > n {
			return fmt.Sprintf("the client's node is overloaded: over half of a second's %s were sent late by over %s",
				what, most/2)
		}
		if bad*2 > n-late {
			return fmt.Sprintf("more than half of a second's %s took longer than %s, or were not answered", what, most)
		}
	}
	begin, end = window(timeout)
	lost, n := 0, 0
	for i := begin; i < end; i++ {
		if tardy(i) {
			continue
		}
		n++
		if f.micros[i].Load() < 0 {
			lost++
		}
	}
	if lost >= leastLost && lost*100 > n*bench.LostShare {
		return fmt.Sprintf("%d of a second's %d %s were not answered", lost, n, what)
	}
	return ""
}

// watch looks for harm until ctx ends, and calls stop with it.
func (f *flow) watch(ctx context.Context, most time.Duration, what string, stop context.CancelCauseFunc) {
	for ; ctx.Err() == nil; outage.Sleep(ctx, 100*time.Millisecond) { //nolint:errcheck // the loop sees it
		if why := f.harm(time.Now(), most, what); why != "" {
			stop(errors.New(why))
		}
	}
}
