package load

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// timeout is how long an answer may take, counted from when its question was to be sent.
const timeout = time.Second

// flow is operations at a constant rate. Their times follow from the rate and from the begin alone.
type flow struct {
	begin time.Time
	every time.Duration
	// micros has the latency of each operation, and of one without an answer -1; late how late each was sent.
	micros []atomic.Int64
	late   []int64
	// sent is the number of operations that were sent.
	sent atomic.Int64

	mu   sync.Mutex
	last error
}

// newFlow is a flow of rate operations a second that lasts so long.
func newFlow(rate int, lasts time.Duration) *flow {
	n := max(1, int(float64(rate)*lasts.Seconds()))
	f := &flow{begin: time.Now(), every: time.Second / time.Duration(rate), micros: make([]atomic.Int64, n), late: make([]int64, n)}
	for i := range f.micros {
		f.micros[i].Store(-1)
	}
	return f
}

// due is when an operation is to be sent.
func (f *flow) due(i int) time.Time { return f.begin.Add(time.Duration(i) * f.every) }

// send calls send for every operation at its time, or at once if that has passed. It keeps a thread to itself, because timers of the
// runtime are late by up to a millisecond. It ends with ctx.
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

// sum is the distribution of the operations that were to be sent, those that were not included, and how many were answered a second. If
// answers came after the last send, the time until the last one counts.
func (f *flow) sum(offered int) (bench.Latency, float64) {
	var micros []int64
	took := time.Duration(offered) * f.every
	for i := range offered {
		if m := f.micros[i].Load(); m >= 0 {
			micros = append(micros, m)
			took = max(took, time.Duration(i)*f.every+time.Duration(m)*time.Microsecond)
		}
	}
	late := append([]int64{}, f.late[:min(offered, int(f.sent.Load()))]...)
	return bench.NewLatency(int64(offered), micros, late), float64(len(micros)) / took.Seconds()
}

// slow reports whether more than half of the operations that were due in the second before now took longer than most, or were not
// answered. Those that are younger than most are not judged. A sender that was late itself does not count.
func (f *flow) slow(now time.Time, most time.Duration) bool {
	end := min(int(now.Add(-most).Sub(f.begin)/f.every), int(f.sent.Load()))
	begin := max(0, end-int(time.Second/f.every))
	n, bad := 0, 0
	for i := begin; i < end; i++ {
		if f.late[i] > most.Microseconds()/2 {
			continue
		}
		n++
		if m := f.micros[i].Load(); m < 0 || m > most.Microseconds() {
			bad++
		}
	}
	return n >= int(time.Second/f.every)/2 && bad*2 > n
}
