package loss

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// line is two nodes whose paths send 100 probes a second each, and what a second loses of them.
type line struct {
	paths   []v1alpha1.Path
	results map[string]v1alpha1.PathResult
	now     time.Time
	fast    time.Duration // how far the nodes' clocks are ahead
}

func newLine() *line {
	l := &line{results: map[string]v1alpha1.PathResult{}, now: start}
	for _, ends := range [][2]string{{"a", "b"}, {"b", "a"}} {
		for _, denied := range []bool{false, true} {
			path := v1alpha1.Path{ID: ends[0] + ">" + ends[1], Class: "pod-pod", Denied: denied, IntervalMillis: 10,
				Source: v1alpha1.Endpoint{Node: ends[0], Network: "old"},
				Target: v1alpha1.Endpoint{Node: ends[1], Network: "old"}}
			if denied {
				path.ID, path.Class = path.ID+"/denied", "denied"
			}
			l.paths = append(l.paths, path)
			l.results[path.ID] = v1alpha1.PathResult{ID: path.ID, Since: start}
		}
	}
	return l
}

// reports are what both nodes say now.
func (l *line) reports() []v1alpha1.ProbeReport {
	all := make([]v1alpha1.ProbeReport, 2)
	for i, node := range []string{"a", "b"} {
		all[i] = v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: v1alpha1.ProbeReportStatus{At: l.now.Add(l.fast)}}
		for _, path := range l.paths {
			if path.Source.Node == node {
				all[i].Status.Paths = append(all[i].Status.Paths, l.results[path.ID])
			}
		}
	}
	return all
}

// run lets time pass. lost is what each path loses in a second.
func (l *line) run(c *Contrast, seconds int, lost func(second int) int64) {
	c.Look(l.paths, l.reports(), nil, l.now)
	for second := range seconds {
		l.now = l.now.Add(time.Second)
		for _, path := range l.paths {
			r := l.results[path.ID]
			r.Sent, r.Last = r.Sent+100, l.now
			if n := lost(second); path.Denied {
			} else if r.Answered += 100 - n; n > 0 {
				r.Gaps = append(r.Gaps, v1alpha1.Gap{From: l.now.Add(-time.Second), Millis: float64(10 * n), Probes: n})
			}
			l.results[path.ID] = r
		}
		c.Look(l.paths, l.reports(), nil, l.now)
	}
}

func never(int) int64        { return 0 }
func often(second int) int64 { return int64(second & 1) }               // 0.5 %
func tens(second int) int64  { return int64(10 * one(second%20 == 7)) } // 0.5 %, ten at a time
func heavy(second int) int64 {
	return often(second) + int64(5*one(second >= 5 && second < 25))
}

func late(second int) int64 { return heavy(second - 800) }
func always(int) int64      { return 1 }

// cutFor is a silence of so many probes in one second.
func cutFor(probes int64) func(int) int64 {
	return func(second int) int64 { return probes * int64(one(second == 5)) }
}

// TestContrast: a stream of reports is worse than the baseline, or no worse, or undecided; another process that goes on
// says the same.
func TestContrast(t *testing.T) {
	for name, test := range map[string]struct {
		baseline    int
		before      func(int) int64
		since       int
		lost        func(int) int64
		proven, fit bool
		why, needs  string
	}{
		"nothing is lost":           {10, never, 30, never, false, true, "0 of 6,000 probes lost (0 %)", ""},
		"as before":                 {120, often, 180, often, false, true, "would have been seen", ""},
		"nothing since":             {60, often, 90, never, false, true, "0 of 18,000 probes lost (0 %) since", ""},
		"in bursts, as before":      {300, tens, 600, tens, false, false, "", "it needs about "},
		"5 % more for 20 s":         {10, often, 30, heavy, true, false, "more is lost (evidence ", ""},
		"long after":                {30, often, 900, late, true, false, "more is lost (evidence ", ""},
		"a short baseline":          {5, often, 60, often, false, false, "", "it needs about --baseline "},
		"a short watching":          {120, often, 10, often, false, false, "", " more of watching"},
		"twice as much":             {60, often, 90, always, false, false, "", "more loss "},
		"a cut of 1 s":              {60, often, 90, cutFor(99), true, false, "more is lost (evidence ", ""},
		"a cut of 1 s, clean":       {60, never, 90, cutFor(99), false, false, "", "a silence of more than 750 ms"},
		"a long cut":                {60, never, 90, cutFor(400), true, false, "more than 3.0 s is a loss", ""},
		"a cut after many seconds":  {60, often, 90, cutFor(150), true, false, "more than 1.0 s is a loss", ""},
		"one lost probe, too short": {5, never, 10, cutFor(1), false, false, "", "could not be excluded"},
	} {
		l, c := newLine(), NewContrast()
		l.run(c, test.baseline, test.before)
		lossy := c.Begin(l.reports(), l.now)
		text, err := json.Marshal(lossy)
		if err != nil {
			t.Fatal(err)
		}
		var kept Lossy
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		other := NewContrast()
		other.Resume(&kept, l.reports())
		for _, one := range []*Contrast{c, other} {
			again := &line{l.paths, map[string]v1alpha1.PathResult{}, l.now, 0}
			for id, r := range l.results {
				again.results[id] = r
			}
			again.run(one, test.since, test.lost)
			a := one.Answer(true)
			if a.Proven != test.proven || a.Harmless != test.fit || !strings.Contains(a.Why, test.why) ||
				!strings.Contains(a.Needs, test.needs) || (a.Needs == "") != (test.proven || test.fit) {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
}

// TestContrastOfOneSlot: what was lost while no process looked is compared as a whole.
func TestContrastOfOneSlot(t *testing.T) {
	for _, test := range []struct {
		lost        int64
		proven, fit bool
	}{{180, false, false}, {0, false, true}, {3600, true, false}} {
		l, c := newLine(), NewContrast()
		l.run(c, 120, often)
		lossy := c.Begin(l.reports(), l.now)
		c.Resume(lossy, l.reports())
		l.now = l.now.Add(time.Hour)
		for _, path := range l.paths {
			r := l.results[path.ID]
			r.Sent, r.Last = r.Sent+36000, l.now
			if !path.Denied {
				r.Answered += 36000 - test.lost
			}
			l.results[path.ID] = r
		}
		c.Look(l.paths, l.reports(), nil, l.now)
		if a := c.Answer(true); a.Proven != test.proven || a.Harmless != test.fit {
			t.Errorf("%d lost: %+v", test.lost, a)
		}
	}
}

// TestContrastExcuses: losses that turn out to be excused are taken back, from the newest slots first.
func TestContrastExcuses(t *testing.T) {
	for back, sent := range map[int64]int64{100: 400, -20: 280, -350: 50} { // -350: some were counted already
		c := NewContrast()
		for _, n := range []nodeSum{{100, 5}, {100, 7}, {back, -9}, {100, 2}} {
			c.keep(map[string]nodeSum{"": n})
		}
		c.Begin(nil, time.Time{})
		if before := c.before[""]; before.sent < max(sent, before.lost) || before.sent > max(sent, 105) ||
			before.lost != 5 || before.bad != 2 {
			t.Errorf("%d: %+v", back, before)
		}
	}
}

// TestContrastOfGone: probes to a node that has left are not compared, nor do they count as answered.
func TestContrastOfGone(t *testing.T) {
	l, c := newLine(), NewContrast()
	l.run(c, 60, often)
	c.Begin(l.reports(), l.now)
	left := map[string]time.Time{"b": l.now}
	c.Look(l.paths, l.reports(), left, l.now)
	gone := v1alpha1.Gap{From: l.now.Add(time.Millisecond)}
	for range 90 {
		l.now = l.now.Add(time.Second)
		r := l.results["a>b"]
		gone.Probes, gone.Millis = gone.Probes+100, gone.Millis+1000
		open := gone
		r.Sent, r.Last, r.Open = r.Sent+100, l.now, &open
		l.results["a>b"] = r
		c.Look(l.paths, l.reports(), left, l.now)
	}
	if a := c.Answer(true); a.Proven || a.Harmless || a.Needs != "no probe was compared" {
		t.Errorf("%+v", a)
	}
}

// TestContrastClocks: a process looks on its own clock, wherever the nodes' clocks are.
func TestContrastClocks(t *testing.T) {
	for _, fast := range []time.Duration{0, time.Minute, -time.Minute} {
		l, c := newLine(), NewContrast()
		l.fast = fast
		l.run(c, 10, often)
		lossy, other := c.Begin(l.reports(), l.now), NewContrast()
		other.Resume(lossy, l.reports())
		l.run(c, 5, cutFor(100))
		other.Look(l.paths, l.reports(), nil, l.now)
		if c.Answer(true); c.lasted != 5*time.Second {
			t.Errorf("%s fast: it lasted %s", fast, c.lasted)
		}
		other.Answer(true)
		for _, one := range []*Contrast{c, other} {
			if _, since := one.sum(""); since.sent != 1000 {
				t.Errorf("%s fast: %+v", fast, since)
			}
		}
	}
}

// TestContrastLast: the last reports count, however soon they come.
func TestContrastLast(t *testing.T) {
	l, c := newLine(), NewContrast()
	l.run(c, 10, never)
	later := func() {
		l.now = l.now.Add(slotLength / 2)
		r := l.results["a>b"]
		r.Sent, r.Last = r.Sent+50, l.now
		r.Gaps = append(r.Gaps, v1alpha1.Gap{From: l.now.Add(-slotLength / 2), Millis: 500, Probes: 50})
		l.results["a>b"] = r
		c.Last(l.paths, l.reports(), nil, l.now)
	}
	later()
	if lossy := c.Begin(l.reports(), l.now); !strings.HasPrefix(lossy.String(), "50 of 2,050 probes lost") {
		t.Error(lossy)
	}
	later()
	c.Answer(true)
	if _, since := c.sum(""); since != (nodeSum{50, 50}) {
		t.Errorf("%+v", since)
	}
}

// TestLossySays: a baseline names what it lost, in all, by class and by node, and its slots are bounded.
func TestLossySays(t *testing.T) {
	l, c := newLine(), NewContrast()
	l.run(c, 60, often)
	lossy := c.Begin(l.reports(), l.now)
	if text, want := lossy.String(), "60 of 12,000 probes lost (0.5 %); by class: pod-pod 0.5 %; from or to node: "+
		"a 0.5 %, b 0.5 %"; text != want || !lossy.Lost() {
		t.Errorf("%q, want %q", text, want)
	}
	many := make([][2]int64, 1000)
	for i := range many {
		many[i] = [2]int64{100, 1}
	}
	few, sum := joined(many, 70), [2]int64{}
	for _, slot := range few {
		sum[0], sum[1] = sum[0]+slot[0], sum[1]+slot[1]
	}
	if len(few) > 70 || sum != [2]int64{100000, 1000} {
		t.Errorf("%d slots, %v", len(few), sum)
	}
}
