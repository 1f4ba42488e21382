package loss

import (
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// DefaultTimeout is how long an answer may take before its probe is lost.
// On UDP a lost datagram is never answered, however long it is; a late answer (to a retransmitted
// SYN, or read after a stall of the sender) shows in the round-trip times.
const DefaultTimeout = 2 * time.Second

// DefaultMaxGaps is how many gaps, and how many stalls, a path's result keeps.
const DefaultMaxGaps = 32

// Config says what a Tracker tracks. Zero values of Timeout and MaxGaps mean the defaults.
type Config struct {
	ID string
	// Interval is the time between two sends; a send more than two intervals late is a stall.
	Interval time.Duration
	// Timeout is how long after its send an answer still counts.
	Timeout time.Duration
	// Awake is the time between two moments in which the sender ran; nil means all of it. Only that time counts towards
	// the timeout: an answer that arrived while the sender was stalled is no loss. A probe that is never answered is
	// still lost, that much later.
	Awake func(from, to time.Time) time.Duration
	// Denied is true if the path must not answer.
	Denied bool
	// WarmUp is how many probes in a row must have the expected result before counting begins: until then the
	// path is being set up and its result is empty, which no gate takes for a pass. An answer on a denied
	// path counts at once. 0 counts from the first probe.
	WarmUp int
	// MaxGaps bounds the gaps kept, and the stalls kept.
	MaxGaps int
}

// Tracker follows one path. Its memory is bounded by the probes sent within one timeout and by MaxGaps.
// It is not safe for concurrent use.
type Tracker struct {
	config Config
	// pending holds the probes first..next-1 that are not settled, as a ring indexed by seq.
	pending     []probe
	first, next uint64

	streak         int // right probes in a row before counting began
	sent, answered int64
	excused        int64
	since, last    time.Time
	rtt            histogram
	gaps, stalls   []v1alpha1.Gap
	dropped        int64
	open           *openGap
	// seconds are the send times of the probes that the second responder answered, since the oldest probe that may be
	// in a gap.
	seconds []time.Time
}

// maxSeconds bounds the times kept of a second responder: enough for the longest gap that it can explain.
const maxSeconds = 512

// probe is one send that waits to be settled in its turn.
type probe struct {
	at    time.Time
	rtt   time.Duration
	state state
	late  bool // answered after the timeout, but within it if stalls of the sender are not counted
	cause string
}

type state uint8

const (
	waiting state = iota
	answered
	lost
)

// openGap is a gap that has not ended yet.
type openGap struct {
	from   time.Time
	cause  string
	probes int64
}

// New makes a Tracker without probes.
func New(config Config) *Tracker {
	if config.Timeout <= 0 {
		config.Timeout = DefaultTimeout
	}
	if config.MaxGaps <= 0 {
		config.MaxGaps = DefaultMaxGaps
	}
	return &Tracker{config: config, pending: make([]probe, 16)}
}

// Send notes a probe sent at the time at that was due at due (the same when there is no schedule), and
// returns its number, from 0. Send times must not go backwards. A probe more than two intervals late
// is recorded as a stall from due to at.
func (t *Tracker) Send(due, at time.Time) uint64 {
	t.Expire(at)
	if late := at.Sub(due); t.config.Interval > 0 && late > 2*t.config.Interval {
		t.stall(due, late)
	}
	if t.next-t.first == uint64(len(t.pending)) {
		t.grow()
	}
	seq := t.next
	*t.slot(seq) = probe{at: at}
	t.next++
	return seq
}

// Answer notes the answer to probe seq, seen at the time at. Answers past the timeout lose their probe;
// answers to probes that are settled or were never sent change nothing. It says whether the answer counts.
func (t *Tracker) Answer(seq uint64, at time.Time) bool {
	p := t.waiting(seq)
	if p == nil {
		return false
	}
	p.rtt = at.Sub(p.at)
	p.state = answered
	if t.past(p, at) {
		p.state = lost
	}
	p.late = p.state == answered && p.rtt > t.config.Timeout
	inTime := p.state == answered
	t.settle()
	return inTime
}

// Fail notes that probe seq is lost for sure, ahead of its timeout, and why: it could not be sent, or was refused.
func (t *Tracker) Fail(seq uint64, cause string) {
	p := t.waiting(seq)
	if p == nil {
		return
	}
	p.state, p.cause = lost, cause
	t.settle()
}

// Expire loses the probes whose timeout has passed at now.
func (t *Tracker) Expire(now time.Time) {
	for seq := t.first; seq < t.next; seq++ {
		p := t.slot(seq)
		if !t.past(p, now) {
			break
		}
		if p.state == waiting {
			p.state = lost
		}
	}
	t.settle()
}

// Silent reports whether a path that counts has had no answer for some time: a gap is open, or may open next.
func (t *Tracker) Silent(now time.Time, patience time.Duration) bool {
	if t.sent == 0 || t.config.Denied {
		return false
	}
	return t.open != nil || t.first < t.next && now.Sub(t.slot(t.first).at) > patience
}

// Second records that the path's second responder answered the probe that was sent at a moment.
func (t *Tracker) Second(at time.Time) {
	if len(t.seconds) < maxSeconds {
		t.seconds = append(t.seconds, at)
	}
}

// past says whether the timeout of a probe has passed at now.
func (t *Tracker) past(p *probe, now time.Time) bool {
	if now.Sub(p.at) <= t.config.Timeout {
		return false
	}
	return t.config.Awake == nil || t.config.Awake(p.at, now) > t.config.Timeout
}

// Pending is how many probes are sent but not settled.
func (t *Tracker) Pending() int { return int(t.next - t.first) }

// First is the number of the oldest probe that is not settled: what shortened numbers count from.
func (t *Tracker) First() uint64 { return t.first }

// Result is the result of the probes settled so far. It shares no memory with the Tracker.
func (t *Tracker) Result() v1alpha1.PathResult {
	result := v1alpha1.PathResult{
		ID: t.config.ID, Sent: t.sent, Answered: t.answered, Excused: t.excused, Since: t.since, Last: t.last,
		RTTMicros: [3]int64{t.rtt.quantile(0.5), t.rtt.quantile(0.99), t.rtt.max},
		RTTCounts: t.rtt.ranges(),
		Gaps:      append([]v1alpha1.Gap(nil), t.gaps...),
		Dropped:   t.dropped,
		Stalls:    append([]v1alpha1.Gap(nil), t.stalls...),
	}
	if t.open != nil {
		gap := t.until(t.last)
		result.Open = &gap
	}
	return result
}

// settle takes decided probes from the front, in the order of their sends.
func (t *Tracker) settle() {
	for t.first < t.next {
		p := t.slot(t.first)
		if p.state == waiting {
			return
		}
		t.count(p)
		t.first++
	}
}

// count adds one decided probe to the result.
func (t *Tracker) count(p *probe) {
	wrong := (p.state == answered) == t.config.Denied
	if t.sent == 0 && t.streak < t.config.WarmUp && !(wrong && t.config.Denied) {
		if t.streak++; wrong {
			t.streak = 0
		}
		return
	}
	if t.sent == 0 {
		t.since = p.at
	}
	t.sent++
	t.last = p.at
	if p.state == answered {
		t.answered++
		if p.late {
			t.excused++
		}
		t.rtt.add(p.rtt.Microseconds())
	}
	if wrong {
		if t.open == nil {
			t.open = &openGap{from: p.at, cause: p.cause}
		}
		t.open.probes++
		return
	}
	if t.open != nil {
		var fit bool
		t.gaps, fit = keep(t.gaps, t.until(p.at), t.config.MaxGaps)
		if !fit {
			t.dropped++
		}
		t.open = nil
	}
	t.seconds = slices.DeleteFunc(t.seconds, p.at.After)
}

// stall notes that the sender itself was late.
func (t *Tracker) stall(due time.Time, late time.Duration) {
	skipped := int64(late / t.config.Interval)
	t.stalls, _ = keep(t.stalls, v1alpha1.Gap{From: due, Millis: millis(late), Probes: skipped}, t.config.MaxGaps)
}

func (t *Tracker) slot(seq uint64) *probe { return &t.pending[seq%uint64(len(t.pending))] }

// waiting is the slot of a probe that is not decided, or nil.
func (t *Tracker) waiting(seq uint64) *probe {
	if seq < t.first || seq >= t.next {
		return nil
	}
	if p := t.slot(seq); p.state == waiting {
		return p
	}
	return nil
}

// grow doubles the ring; the sends within one timeout bound it.
func (t *Tracker) grow() {
	old := t.pending
	t.pending = make([]probe, 2*len(old))
	for seq := t.first; seq < t.next; seq++ {
		*t.slot(seq) = old[seq%uint64(len(old))]
	}
}

// until is the gap that is open, as if it ended at a moment.
func (t *Tracker) until(end time.Time) v1alpha1.Gap {
	g := t.open
	return v1alpha1.Gap{From: g.from, Millis: millis(end.Sub(g.from)), Probes: g.probes, Cause: g.cause,
		Second: t.second(g.from, end)}
}

// second has the second responder's answers between two moments.
func (t *Tracker) second(from, to time.Time) v1alpha1.Second {
	var s v1alpha1.Second
	slices.SortFunc(t.seconds, time.Time.Compare)
	silent, before := time.Duration(0), from
	for _, at := range t.seconds {
		if at.Before(from) || at.After(to) {
			continue
		}
		s.Answered++
		silent, before = max(silent, at.Sub(before)), at
	}
	if s.Answered > 0 {
		s.SilentMillis = millis(max(silent, to.Sub(before)))
	}
	return s
}

// keep appends a gap; when that is one too many, the shortest goes (the oldest of equals), so that the
// longest are never lost. It says whether all fit.
func keep(gaps []v1alpha1.Gap, gap v1alpha1.Gap, limit int) ([]v1alpha1.Gap, bool) {
	gaps = append(gaps, gap)
	if len(gaps) <= limit {
		return gaps, true
	}
	shortest := 0
	for i := range gaps {
		if gaps[i].Millis < gaps[shortest].Millis {
			shortest = i
		}
	}
	return append(gaps[:shortest], gaps[shortest+1:]...), false
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
