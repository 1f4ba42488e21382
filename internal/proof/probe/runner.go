package probe

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// DefaultInterval is the time between two probes of a path without an interval.
const DefaultInterval = 10 * time.Millisecond

// maxRetired bounds the removed paths whose results are kept; the oldest are dropped first.
const maxRetired = 256

// Options of a Runner; the zero value is valid.
type Options struct {
	// Timeout is how long an answer may take; 0 means loss.DefaultTimeout.
	Timeout time.Duration
	// MaxGaps bounds the gaps kept per path; 0 means loss.DefaultMaxGaps.
	MaxGaps int
	// WarmUp is how many probes in a row must go right before a path that should answer counts.
	WarmUp int
}

// WarmUp is the value that agents and probe pods use: a path through a new Service or policy
// answers intermittently before it answers reliably.
const WarmUp = 10

// warmUpOutside is the minimum for paths that leave the cluster, which send seldom, and settlesOutside the longest time
// that they must answer before they count: no rules are made for them.
const (
	warmUpOutside  = 3
	settlesOutside = time.Second
)

// settles is how long a path through a Service must answer without a miss before it counts, if paths warm up: the rules
// of kube-proxy may be a second or more behind the Service's endpoints (minSyncPeriod), and change when an endpoint is
// added.
const settles = 2 * time.Second

// Runner measures a set of paths. Its methods may be called concurrently.
type Runner struct {
	options Options
	run     uint32    // distinguishes this runner's probes from those of others
	base    time.Time // origin of schedules and send times
	pulse   *pulse

	mu     sync.Mutex
	lines  map[string]*line // by path ID, including removed ones
	active []*line
	ended  time.Time // when it was closed; probes in flight then stay undecided

	wake   chan struct{}
	cancel context.CancelFunc
	ctx    context.Context // ends with the runner; bounds its goroutines
	tasks  sync.WaitGroup
}

// NewRunner starts a runner without paths. Close ends it.
func NewRunner(options Options) *Runner {
	if options.Timeout <= 0 {
		options.Timeout = loss.DefaultTimeout
	}
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	r := &Runner{
		options: options, run: rand.Uint32(), base: now, pulse: newPulse(now),
		lines: map[string]*line{}, wake: make(chan struct{}, 1), ctx: ctx, cancel: cancel,
	}
	r.tasks.Go(r.pump)
	r.tasks.Go(r.seconds)
	return r
}

// Close stops sending and receiving, and returns when everything has ended. Results stay readable.
func (r *Runner) Close() {
	r.cancel()
	r.mu.Lock()
	if !r.ended.IsZero() {
		r.mu.Unlock()
		return
	}
	for _, l := range r.active {
		l.wire.close()
	}
	r.active, r.ended = nil, time.Now()
	r.mu.Unlock()
	r.tasks.Wait()
}

// SetPaths makes the runner measure exactly the given paths. Unchanged paths keep their sockets and
// counters. A removed path sends no more, still accepts the answers to probes in flight, and keeps
// its final result; if a path with its ID is added again, it continues to count, unless it is measured
// differently (interval, denied): then its result starts again.
func (r *Runner) SetPaths(paths []v1alpha1.Path) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	wanted := make(map[string]bool, len(paths))
	var active []*line
	for _, path := range paths {
		if wanted[path.ID] {
			continue
		}
		wanted[path.ID] = true
		active = append(active, r.ensure(path))
	}
	for id, l := range r.lines {
		if !wanted[id] && l.wire != nil {
			r.retire(l)
		}
	}
	r.active = active
	r.forget()
	r.nudge()
}

// Paths are the paths being measured, in the order they were set.
func (r *Runner) Paths() []v1alpha1.Path {
	r.mu.Lock()
	defer r.mu.Unlock()
	paths := make([]v1alpha1.Path, 0, len(r.active))
	for _, l := range r.active {
		paths = append(paths, l.path)
	}
	return paths
}

// Results are the results of all paths so far, including removed ones, by ID. Paths that have sent
// nothing yet are included, with counts of zero.
func (r *Runner) Results() []v1alpha1.PathResult {
	r.mu.Lock()
	lines := make([]*line, 0, len(r.lines))
	for _, l := range r.lines {
		lines = append(lines, l)
	}
	now := r.ended
	r.mu.Unlock()
	if now.IsZero() {
		now = time.Now()
	}
	results := make([]v1alpha1.PathResult, 0, len(lines))
	for _, l := range lines {
		results = append(results, l.result(now))
	}
	slices.SortFunc(results, func(a, b v1alpha1.PathResult) int { return strings.Compare(a.ID, b.ID) })
	return results
}

// ensure makes the line of a path, or finds the existing one. The lock is held.
func (r *Runner) ensure(path v1alpha1.Path) *line {
	if path.IntervalMillis <= 0 {
		path.IntervalMillis = int(DefaultInterval.Milliseconds())
	}
	old := r.lines[path.ID]
	if old != nil && old.wire != nil && old.path == path {
		return old
	}
	l := &line{path: path}
	if old != nil && old.path.Denied == path.Denied && old.path.IntervalMillis == path.IntervalMillis {
		l = old
		if l.wire != nil {
			r.retire(l)
		}
		l.path, l.ready = path, false
	} else if old != nil && old.wire != nil {
		r.retire(old)
	}
	if l.tracker == nil {
		l.tracker = loss.New(loss.Config{ID: path.ID, Interval: l.interval(), Timeout: r.options.Timeout,
			Awake: r.pulse.awake, Denied: path.Denied, MaxGaps: r.options.MaxGaps, WarmUp: r.warmUp(path)})
	}
	r.lines[path.ID] = l
	l.wire, l.second = r.open(l), r.openSecond(l)
	return l
}

// warmUp is how many probes of a path in a row must have the expected result before it counts.
func (r *Runner) warmUp(one v1alpha1.Path) int {
	switch least := r.options.WarmUp; {
	case one.Denied || least == 0:
		return 0
	case slices.Contains([]string{path.ClassPodService, path.ClassHostService, path.ClassNodePort,
		path.ClassLocalService, path.ClassLocalPort, path.ClassHostPort}, one.Class):
		return max(least, int(settles.Milliseconds())/one.IntervalMillis)
	case one.Class == path.ClassOutside:
		return min(least, max(warmUpOutside, int(settlesOutside.Milliseconds())/one.IntervalMillis))
	default:
		return least
	}
}

// open makes the wire of a line's protocol. The lock is held.
func (r *Runner) open(l *line) wire {
	payload := NewPayload(l.path.Size, r.run, r.base)
	switch l.path.Protocol {
	case v1alpha1.TCP:
		return r.newTCP(l, payload)
	case v1alpha1.TCPNew:
		r.begin(l)
		return &oneShot{runner: r, line: l, exchange: tcpExchange(l.path.Target.Address, payload, &l.ports)}
	case v1alpha1.UDPNew:
		r.begin(l)
		return &oneShot{runner: r, line: l, exchange: udpExchange(l.path.Target.Address, payload, &l.ports)}
	case v1alpha1.TCPConnect, v1alpha1.TCPReach:
		r.begin(l)
		return &oneShot{runner: r, line: l, exchange: connectExchange(l.path, &l.ports)}
	case v1alpha1.DNS:
		r.begin(l)
		return &oneShot{runner: r, line: l, exchange: dnsExchange(l.path, &l.ports)}
	}
	r.begin(l)
	return r.newUDP(l, payload)
}

// begin starts a line's schedule. The lock is held.
func (r *Runner) begin(l *line) {
	l.schedule = newSchedule(r.base, time.Now(), l.interval())
	l.ready = true
}

// start is begin for wires that were not ready at once.
func (r *Runner) start(l *line, of wire) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.wire == of && !l.ready {
		r.begin(l)
		r.nudge()
	}
}

// retire stops sending on a line, and closes its wire once no more answers can arrive. The lock is held.
func (r *Runner) retire(l *line) {
	wire := l.wire
	l.wire, l.ready, l.retired = nil, false, time.Now()
	r.tasks.Go(func() {
		within, cancel := r.within(time.Now())
		defer cancel()
		<-within.Done()
		wire.close()
	})
}

// within is a context that ends when this process has run for a timeout since a moment.
func (r *Runner) within(since time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.ctx)
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		if left := r.options.Timeout - r.pulse.awake(since, time.Now()); left > 0 {
			timer.Reset(left)
			return
		}
		cancel()
	})
	timer.Reset(time.Until(since.Add(r.options.Timeout)))
	return ctx, func() { timer.Stop(); cancel() }
}

// forget drops the oldest removed lines beyond maxRetired. The lock is held.
func (r *Runner) forget() {
	var retired []*line
	for _, l := range r.lines {
		if l.wire == nil {
			retired = append(retired, l)
		}
	}
	slices.SortFunc(retired, func(a, b *line) int { return b.retired.Compare(a.retired) })
	for _, l := range retired[min(len(retired), maxRetired):] {
		delete(r.lines, l.path.ID)
	}
}

// nudge makes the pump check the paths again.
func (r *Runner) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// pump sends the probes that are due, until the runner is closed.
func (r *Runner) pump() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(min(time.Until(r.sendDue()), beatEvery))
		select {
		case <-r.ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		r.pulse.beat(time.Now())
	}
}

// sendDue sends on every path that is due, and returns the time at which the next one is.
func (r *Runner) sendDue() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := time.Now().Add(time.Hour)
	for _, l := range r.active {
		if !l.ready || l.wire == nil {
			continue
		}
		if at := time.Now(); !l.schedule.due.After(at) {
			due := l.schedule.due
			l.schedule.advance(at)
			l.wire.send(l.sent(due, at), at)
		}
		if l.schedule.due.Before(next) {
			next = l.schedule.due
		}
	}
	return next
}

func (l *line) interval() time.Duration {
	return time.Duration(l.path.IntervalMillis) * time.Millisecond
}
