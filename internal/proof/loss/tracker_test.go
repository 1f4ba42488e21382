package loss

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(millis int) time.Time { return start.Add(time.Duration(millis) * time.Millisecond) }

// event is one thing that happens to a path.
type event struct {
	at   int // ms
	kind string
	seq  uint64
	due  int // ms, for sends
}

// play runs events through a Tracker.
func play(config Config, events []event, now int) v1alpha1.PathResult {
	tracker := New(config)
	for _, e := range events {
		switch e.kind {
		case "send":
			tracker.Send(after(e.due), after(e.at))
		case "answer":
			tracker.Answer(e.seq, after(e.at))
		case "fail":
			tracker.Fail(e.seq, "")
		}
	}
	tracker.Expire(after(now))
	return tracker.Result()
}

// naive works a result out again with everything kept and looked at as a whole: the fate of each probe
// first, then the prefix that is decided, then gaps by a scan for runs.
func naive(config Config, events []event, now int) v1alpha1.PathResult {
	type fate struct {
		at, rtt       int
		decided, good bool // good: answered
	}
	var probes []fate
	result := v1alpha1.PathResult{ID: config.ID}
	timeout, interval := int(config.Timeout.Milliseconds()), int(config.Interval.Milliseconds())
	for _, e := range events {
		switch {
		case e.kind == "send":
			probes = append(probes, fate{at: e.at})
			if late := e.at - e.due; late > 2*interval {
				result.Stalls = append(result.Stalls,
					v1alpha1.Gap{From: after(e.due), Millis: float64(late), Probes: int64(late / interval)})
			}
		case int(e.seq) >= len(probes) || probes[e.seq].decided:
		case e.kind == "answer":
			p := &probes[e.seq]
			p.decided, p.rtt, p.good = true, e.at-p.at, e.at-p.at <= timeout
		case e.kind == "fail":
			// A probe that timed out before it failed is as lost.
			probes[e.seq].decided = true
		}
	}
	var rtts []int
	for i := range probes {
		if !probes[i].decided && now-probes[i].at > timeout {
			probes[i].decided = true
		}
	}
	for _, p := range probes {
		if !p.decided {
			break
		}
		if result.Sent == 0 {
			result.Since = after(p.at)
		}
		result.Sent++
		result.Last = after(p.at)
		if p.good {
			result.Answered++
			rtts = append(rtts, p.rtt)
		}
	}
	settled := probes[:result.Sent]
	for i := 0; i < len(settled); {
		if settled[i].good != config.Denied {
			i++
			continue
		}
		j := i
		for j < len(settled) && settled[j].good == config.Denied {
			j++
		}
		gap := v1alpha1.Gap{From: after(settled[i].at), Probes: int64(j - i)}
		if j == len(settled) {
			gap.Millis = float64(settled[j-1].at - settled[i].at)
			result.Open = &gap
		} else {
			gap.Millis = float64(settled[j].at - settled[i].at)
			result.Gaps = append(result.Gaps, gap)
		}
		i = j
	}
	for _, rtt := range rtts {
		result.RTTMicros[2] = max(result.RTTMicros[2], int64(rtt)*1000)
	}
	return result
}

// TestTrackerAgainstNaive compares the tracker with the plain second implementation over random histories:
// answers out of order, late, doubled and to probes never sent, stalls, and moments to look at any time.
// Each of rapid's checks (100 by default) plays 200 histories.
func TestTrackerAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 200 {
			config, events, now := history(t)
			got, want := play(config, events, now), naive(config, events, now)
			// the histogram has its own test
			want.RTTMicros[0], want.RTTMicros[1], want.RTTCounts = got.RTTMicros[0], got.RTTMicros[1], got.RTTCounts
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%+v\n%+v\nnow %d\n(-naive +tracker)\n%s", config, events, now, diff)
			}
		}
	})
}

// history draws a configuration, events in order of time, and a last moment.
func history(t *rapid.T) (Config, []event, int) {
	config := Config{ID: "p", Interval: 10 * time.Millisecond, Timeout: 50 * time.Millisecond, MaxGaps: 1000}
	source := rapid.Uint64().Draw(t, "source")
	draw := func(n int) int { // xorshift: cheaper than a draw each, and as reproducible
		source ^= source << 13
		source ^= source >> 7
		source ^= source << 17
		return int(source % uint64(n))
	}
	if source == 0 {
		source = 1
	}
	config.Denied = draw(2) == 0
	length, answers := 1+draw(60), 1+draw(100)
	at, due := 0, 0
	var events []event
	type pending struct{ seq, at int }
	var open []pending
	for seq := range length {
		due += 10
		at = max(at, due) + []int{0, 0, 0, 0, 1, 15, 21, 90}[draw(8)]
		planned := due
		if late := at - due; late > 20 {
			due += late / 10 * 10
		}
		for i := 0; i < len(open); { // what is answered before this send
			if open[i].at > at {
				i++
				continue
			}
			events = append(events, event{at: open[i].at, kind: "answer", seq: uint64(open[i].seq)})
			open = append(open[:i], open[i+1:]...)
		}
		events = append(events, event{at: at, kind: "send", due: planned})
		switch {
		case draw(100) < answers:
			open = append(open, pending{seq, at + draw(70)})
		case draw(4) == 0:
			events = append(events, event{at: at, kind: "fail", seq: uint64(draw(seq + 2))})
		}
	}
	for _, p := range open {
		events = append(events, event{at: max(at, p.at), kind: "answer", seq: uint64(p.seq)})
	}
	last := at
	for _, e := range events {
		last = max(last, e.at)
	}
	return config, events, last + draw(120)
}

func TestTrackerTable(t *testing.T) {
	config := Config{ID: "a>b", Interval: 10 * time.Millisecond, Timeout: 100 * time.Millisecond}
	sends := func(n int) (events []event) {
		for i := range n {
			events = append(events, event{at: 10 * i, due: 10 * i, kind: "send"})
		}
		return events
	}
	answers := func(at int, seqs ...uint64) (events []event) {
		for _, seq := range seqs {
			events = append(events, event{at: at, kind: "answer", seq: seq})
		}
		return events
	}
	for _, test := range []struct {
		name   string
		denied bool
		events []event
		now    int
		want   v1alpha1.PathResult
	}{
		{
			name: "nothing is sent: nothing is known", now: 1000,
			want: v1alpha1.PathResult{ID: "a>b"},
		}, {
			name:   "a probe lost between two answered ones is a gap of one interval",
			events: append(sends(3), answers(25, 0, 2)...), now: 500,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 3, Answered: 2, Since: after(0), Last: after(20),
				Gaps: []v1alpha1.Gap{{From: after(10), Millis: 10, Probes: 1}}},
		}, {
			name:   "a probe that is open holds back those after it",
			events: append(sends(3), answers(25, 0, 2)...), now: 50,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 1, Answered: 1, Since: after(0), Last: after(0)},
		}, {
			name:   "an answer past the timeout comes too late",
			events: append(sends(1), answers(101, 0)...), now: 101,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 1, Since: after(0), Last: after(0),
				Open: &v1alpha1.Gap{From: after(0), Probes: 1}},
		}, {
			name:   "an answer at the timeout counts",
			events: append(sends(1), answers(100, 0)...), now: 101,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 1, Answered: 1, Since: after(0), Last: after(0)},
		}, {
			name: "two answers to one probe are one", events: append(sends(1), answers(5, 0, 0)...), now: 500,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 1, Answered: 1, Since: after(0), Last: after(0)},
		}, {
			name: "a shut path that answers leaks until it does not", denied: true,
			events: append(sends(4), answers(31, 1, 2)...), now: 500,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 4, Answered: 2, Since: after(0), Last: after(30),
				Gaps: []v1alpha1.Gap{{From: after(10), Millis: 20, Probes: 2}}},
		}, {
			name: "a late sender is a stall, and no gap",
			events: []event{{at: 0, due: 0, kind: "send"}, {at: 1, kind: "answer", seq: 0},
				{at: 45, due: 10, kind: "send"}, {at: 46, kind: "answer", seq: 1}},
			now: 500,
			want: v1alpha1.PathResult{ID: "a>b", Sent: 2, Answered: 2, Since: after(0), Last: after(45),
				Stalls: []v1alpha1.Gap{{From: after(10), Millis: 35, Probes: 3}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			config.Denied = test.denied
			got := play(config, test.events, test.now)
			got.RTTMicros, got.RTTCounts = [3]int64{}, nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestTrackerIsBounded loses every other probe for a long time: the longest gaps stay, the rest is counted.
func TestTrackerIsBounded(t *testing.T) {
	tracker := New(Config{Interval: 10 * time.Millisecond, MaxGaps: 4})
	for i := range 10000 {
		seq := tracker.Send(after(10*i), after(10*i))
		if i%2 == 0 || i > 500 && i < 520 {
			tracker.Fail(seq, "")
		} else {
			tracker.Answer(seq, after(10*i+1))
		}
	}
	result := tracker.Result()
	if len(result.Gaps) != 4 || result.Dropped != 4990-4 {
		t.Errorf("%d gaps kept, %d dropped; want 4 and 4986", len(result.Gaps), result.Dropped)
	}
	longest := 0.0
	for _, gap := range result.Gaps {
		longest = max(longest, gap.Millis)
	}
	if longest != 210 {
		t.Errorf("longest gap kept is %v ms, want 210", longest)
	}
	if len(tracker.pending) > 16 {
		t.Errorf("%d slots for probes that are settled at once", len(tracker.pending))
	}
}

// TestTrackerManyPending has more probes under way than the ring begins with.
func TestTrackerManyPending(t *testing.T) {
	tracker := New(Config{Interval: time.Millisecond})
	for i := range 900 {
		tracker.Send(after(i), after(i))
	}
	for i := 899; i >= 0; i-- {
		tracker.Answer(uint64(i), after(899))
	}
	if result := tracker.Result(); result.Sent != 900 || result.Answered != 900 || tracker.Pending() != 0 {
		t.Errorf("sent %d, answered %d, pending %d", result.Sent, result.Answered, tracker.Pending())
	}
}

func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 100_000_000), 1, 300).Draw(t, "values")
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		var h histogram
		for _, value := range values {
			h.add(value)
		}
		sorted := append([]int64(nil), values...)
		for i := range sorted { // insertion sort: plain
			for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
				sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
			}
		}
		rank := min(max(int(q*float64(len(sorted))+0.999999), 1), len(sorted))
		exact, got := sorted[rank-1], h.quantile(q)
		if got < exact || got > exact+exact/16 {
			t.Fatalf("quantile %v of %v is %d, exactly %d", q, sorted, got, exact)
		}
	})
}

// TestTrackerWarmUp counts nothing until a path is established, and a leak at once.
func TestTrackerWarmUp(t *testing.T) {
	for _, test := range []struct {
		name           string
		denied         bool
		answers        string // one probe each: a answered, - lost
		sent, answered int64
		since          int // ms
	}{
		{name: "never", answers: "aa-aa-aa-", sent: 0},
		{name: "established", answers: "a--aaaa-a", sent: 3, answered: 2, since: 60},
		{name: "denied counts its silence once established", denied: true, answers: "----", sent: 1, since: 30},
		{name: "denied counts a leak at once", denied: true, answers: "-a---", sent: 4, answered: 1, since: 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracker := New(Config{Denied: test.denied, WarmUp: 3})
			for i, c := range test.answers {
				seq := tracker.Send(after(10*i), after(10*i))
				if c == 'a' {
					tracker.Answer(seq, after(10*i+1))
				} else {
					tracker.Fail(seq, "")
				}
			}
			result := tracker.Result()
			if result.Sent != test.sent || result.Answered != test.answered {
				t.Errorf("sent %d, answered %d; want %d, %d", result.Sent, result.Answered, test.sent, test.answered)
			}
			if test.sent > 0 && !result.Since.Equal(after(test.since)) {
				t.Errorf("counts since %v, want %d ms", result.Since.Sub(start), test.since)
			}
		})
	}
}

// TestAwake: only time in which the sender ran counts towards the timeout. The sender stands still from 1050
// to 4050 ms; an answer that it finds then is in time, one that never comes is lost, and one that comes when
// the sender has run for longer than the timeout is too late.
func TestAwake(t *testing.T) {
	awake := func(from, to time.Time) time.Duration {
		ran := to.Sub(from)
		begin, end := after(1050), after(4050)
		if from.After(begin) {
			begin = from
		}
		if to.Before(end) {
			end = to
		}
		if end.After(begin) {
			ran -= end.Sub(begin)
		}
		return ran
	}
	for _, denied := range []bool{false, true} {
		tracker := New(Config{ID: "a", Interval: 10 * time.Millisecond, Timeout: time.Second,
			Awake: awake, Denied: denied})
		for i := range 5 {
			tracker.Send(after(1000+10*i), after(1000+10*i))
		}
		tracker.Expire(after(4050)) // whoever looks first after a stall must not decide
		if tracker.Pending() != 5 {
			t.Fatalf("%d of 5 are open after the stall", tracker.Pending())
		}
		tracker.Answer(0, after(4060)) // 60 ms awake
		tracker.Answer(1, after(4990)) // 980 ms
		tracker.Answer(2, after(5025)) // 1005 ms: too late
		tracker.Expire(after(5040))    // 3 has 1020 ms, 4 has 1000 ms
		if tracker.Pending() != 1 {
			t.Errorf("%d open, not the last alone", tracker.Pending())
		}
		tracker.Send(after(5050), after(5050))
		tracker.Answer(5, after(5051))
		got := tracker.Result()
		if got.Sent != 6 || got.Answered != 3 || got.Excused != 2 {
			t.Errorf("denied %t: %d sent, %d answered, %d excused", denied, got.Sent, got.Answered, got.Excused)
		}
		if !denied && (len(got.Gaps) != 1 || got.Gaps[0].Probes != 3 || !got.Gaps[0].From.Equal(after(1020))) {
			t.Errorf("gaps %+v", got.Gaps)
		}
		if denied && (len(got.Gaps) != 1 || got.Gaps[0].Probes != 2 || got.Open == nil) {
			t.Errorf("leaks %+v, open %v", got.Gaps, got.Open)
		}
	}
}
