package loss

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// world is two nodes that measure one another, and a path that must stay shut.
type world struct{ evidence Evidence }

func report(node string, seq int64, at int, paths ...v1alpha1.PathResult) v1alpha1.ProbeReport {
	return v1alpha1.ProbeReport{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status:     v1alpha1.ProbeReportStatus{Generation: 3, Seq: seq, At: after(at), Paths: paths},
	}
}

func result(id string, sent, answered int64, last int) v1alpha1.PathResult {
	return v1alpha1.PathResult{ID: id, Sent: sent, Answered: answered, Since: start, Last: after(last)}
}

// healthy is a gate asked at 10 s and looked at at 15 s, with nothing wrong.
func healthy() *world {
	path := func(id, node string, denied bool) v1alpha1.Path {
		return v1alpha1.Path{ID: id, Source: v1alpha1.Endpoint{Node: node}, IntervalMillis: 10, Denied: denied}
	}
	return &world{Evidence{
		Generations: map[string]int64{"a": 3, "b": 3},
		Paths:       []v1alpha1.Path{path("a>b", "a", false), path("b>a", "b", false), path("a>b/denied", "a", true)},
		Asked: []v1alpha1.ProbeReport{
			report("a", 10, 10000, result("a>b", 1000, 1000, 10000), result("a>b/denied", 900, 0, 9000)),
			report("b", 20, 10000, result("b>a", 1000, 1000, 10000))},
		Now: []v1alpha1.ProbeReport{
			report("a", 15, 15000, result("a>b", 1500, 1500, 15000), result("a>b/denied", 1400, 0, 14000)),
			report("b", 25, 15000, result("b>a", 1500, 1500, 15000))},
	}}
}

func (w *world) now(node, path int) *v1alpha1.PathResult {
	return &w.evidence.Now[node].Status.Paths[path]
}

func TestJudge(t *testing.T) {
	gap := func(from int, millis float64, probes int64) v1alpha1.Gap {
		return v1alpha1.Gap{From: after(from), Millis: millis, Probes: probes}
	}
	bake := Limits{Bake: 4 * time.Second}
	for _, test := range []struct {
		name    string
		limits  Limits
		change  func(*world)
		pass    bool
		waiting bool
		reason  string
	}{
		{name: "all is well", limits: bake, change: func(*world) {}, pass: true,
			reason: "1,500 probes on 3 paths, none lost"},
		{name: "no paths", change: func(w *world) { w.evidence.Paths = nil }, waiting: true,
			reason: "no paths are measured: no data is no pass"},
		{name: "no reports", change: func(w *world) { w.evidence.Now = nil }, waiting: true,
			reason: "no fresh evidence: a has not reported (and 1 node more)"},
		{name: "one node is silent", change: func(w *world) { w.evidence.Now = w.evidence.Now[:1] }, waiting: true,
			reason: "no fresh evidence: b has not reported"},
		{name: "another plan", change: func(w *world) { w.evidence.Generations = map[string]int64{"a": 4, "b": 4} },
			waiting: true, reason: "no fresh evidence: a reports on plan 3 instead of 4 (and 1 node more)"},
		{name: "one publication is not enough", change: func(w *world) { w.evidence.Now[1].Status.Seq = 21 },
			waiting: true, reason: "no fresh evidence: b has published 1 of 2 fresh reports"},
		{name: "an old report again", change: func(w *world) { w.evidence.Now[1].Status.Seq = 19 }, waiting: true,
			reason: "b has published 0 of 2"},
		{name: "not baked yet", limits: Limits{Bake: 10 * time.Second}, change: func(*world) {}, waiting: true,
			reason: "no fresh evidence: a has measured for 5s of 10s (and 1 node more)"},
		{name: "a path without a result", change: func(w *world) { w.now(1, 0).ID = "other" }, waiting: true,
			reason: "not enough evidence: b>a has no result"},
		{name: "a path that hardly sends", limits: bake, change: func(w *world) {
			w.now(1, 0).Sent, w.now(1, 0).Answered = 1010, 1010
		}, waiting: true, reason: "not enough evidence: b>a sent 10 of at least 200 new probes"},
		{name: "a path that stopped", change: func(w *world) { w.now(1, 0).Sent, w.now(1, 0).Answered = 1000, 1000 },
			waiting: true, reason: "not enough evidence: b>a sent 0 of at least 1 new probes"},
		{name: "a prober that hangs after a new probe", change: func(w *world) {
			w.now(1, 0).Sent, w.now(1, 0).Answered, w.now(1, 0).Last = 1001, 1001, after(11969)
		}, waiting: true, reason: "not enough evidence: b>a was last measured at"},
		{name: "a prober whose counts are late", change: func(w *world) { w.now(1, 0).Last = after(11970) }, pass: true,
			reason: "none lost"},
		{name: "a denied path that stopped", change: func(w *world) { w.now(0, 1).Last = after(11969) }, waiting: true,
			reason: "not enough evidence: a>b/denied was last measured at"},
		{name: "a denied path whose counts are late", change: func(w *world) { w.now(0, 1).Last = after(11970) },
			pass: true, reason: "none lost"},
		{name: "a lost probe that is not decided yet", limits: Limits{MaxLost: 1},
			change: func(w *world) { w.now(1, 0).Last = after(11970) }, pass: true, reason: "none lost"},
		{name: "a prober that hangs where loss is allowed", limits: Limits{MaxLost: 1},
			change: func(w *world) { w.now(1, 0).Last = after(11969) }, waiting: true,
			reason: "not enough evidence: b>a was last measured at"},
		{
			name:   "no answer is no pass even where loss is allowed",
			limits: Limits{MaxLost: 1000}, change: func(w *world) { w.now(1, 0).Answered = 1000 }, waiting: true,
			reason: "not enough evidence: b>a got no answer at all",
		}, {
			name: "loss", change: func(w *world) {
				w.now(0, 0).Answered, w.now(0, 0).Gaps = 1488, []v1alpha1.Gap{gap(12000, 120, 12)}
				w.now(1, 0).Answered, w.now(1, 0).Gaps = 1499, []v1alpha1.Gap{gap(12000, 10, 1)}
			}, reason: "13 of 1,000 probes lost on 2 paths, longest gap 120 ms on a>b",
		}, {
			name: "loss tells before the evidence is whole", limits: Limits{Bake: time.Hour},
			change: func(w *world) { w.now(0, 0).Answered-- },
			reason: "1 of 1,000 probes lost on 1 path, longest gap 0 ms on a>b",
		}, {
			name: "loss that is going on", change: func(w *world) {
				w.now(0, 0).Answered, w.now(0, 0).Open = 1400,
					&v1alpha1.Gap{From: after(14000), Millis: 990, Probes: 100}
			}, reason: "100 of 1,000 probes lost on 1 path, longest gap 990 ms on a>b",
		}, {
			name: "old gaps do not count again", change: func(w *world) {
				w.now(0, 0).Gaps = []v1alpha1.Gap{gap(5000, 4000, 400)}
			}, pass: true, reason: "none lost",
		}, {
			name: "a gap that was open when asked counts whole", change: func(w *world) {
				w.evidence.Asked[0].Status.Paths[0].Open = &v1alpha1.Gap{From: after(9000), Probes: 100}
				w.now(0, 0).Answered = 1450
				w.now(0, 0).Gaps = []v1alpha1.Gap{gap(9000, 1500, 150)}
			}, reason: "50 of 1,000 probes lost on 1 path, longest gap 1.5 s on a>b",
		}, {
			name: "within what is allowed", limits: Limits{MaxLost: 5, MaxGap: 50 * time.Millisecond},
			change: func(w *world) {
				w.now(0, 0).Answered, w.now(0, 0).Gaps = 1498, []v1alpha1.Gap{gap(12000, 20, 2)}
			}, pass: true, reason: "1,500 probes on 3 paths, 2 lost, which is allowed, longest gap 20 ms",
		}, {
			name: "few lost in too long a gap", limits: Limits{MaxLost: 5, MaxGap: 50 * time.Millisecond},
			change: func(w *world) {
				w.now(0, 0).Answered, w.now(0, 0).Gaps = 1498, []v1alpha1.Gap{gap(12000, 60, 2)}
			}, reason: "2 of 1,000 probes lost on 1 path, longest gap 60 ms on a>b; at most 50 ms is allowed",
		}, {
			name: "a short gap excuses no loss", limits: Limits{MaxGap: time.Hour},
			change: func(w *world) { w.now(0, 0).Answered-- }, reason: "1 of 1,000 probes lost",
		}, {
			name: "a leak", limits: Limits{MaxLost: 1000}, change: func(w *world) {
				w.now(0, 1).Answered, w.now(0, 1).Open = 7, &v1alpha1.Gap{From: after(13930), Millis: 70, Probes: 7}
			}, reason: "7 of 500 probes got through on 1 path that policy must block, longest for 70 ms on a>b/denied",
		}, {
			name: "counts begun anew", change: func(w *world) {
				w.now(0, 0).Since, w.now(0, 0).Sent, w.now(0, 0).Answered = after(12000), 300, 300
			}, reason: "a>b restarted its count at 03:04:17: earlier losses are unknown",
		}, {
			name: "counts begun anew after the clock was set back", change: func(w *world) {
				w.now(0, 0).Since = after(-60000)
			}, reason: "a>b restarted its count at 03:03:05: earlier losses are unknown",
		}, {
			name: "more gaps than the report holds", change: func(w *world) { w.now(0, 0).Dropped = 2 },
			reason: "a>b had 2 more gaps than its report holds",
		}, {
			name:   "more gaps than the report holds, all of them short",
			limits: Limits{MaxLost: 5, MaxGap: 50 * time.Millisecond}, change: func(w *world) {
				w.now(0, 0).Answered, w.now(0, 0).Dropped, w.now(0, 0).Gaps = 1495, 2, []v1alpha1.Gap{gap(12000, 30, 3)}
			}, pass: true, reason: "5 lost, which is allowed",
		}, {
			name: "losses count since the gate before", change: func(w *world) {
				w.evidence.Since = []v1alpha1.ProbeReport{report("a", 1, 5000, result("a>b", 500, 500, 5000),
					result("a>b/denied", 0, 0, 0)), report("b", 1, 5000, result("b>a", 500, 500, 5000))}
				w.evidence.Asked[0].Status.Paths[0].Answered = 990
				w.now(0, 0).Answered, w.now(0, 0).Gaps = 1490, []v1alpha1.Gap{gap(7000, 100, 10)}
			}, reason: "10 of 2,000 probes lost on 1 path, longest gap 100 ms on a>b",
		}, {
			name: "a path established since then counts from there", change: func(w *world) {
				w.evidence.Since = []v1alpha1.ProbeReport{report("b", 1, 5000, result("b>a", 500, 500, 5000))}
				w.evidence.Asked[0].Status.Paths[0].Answered = 990
				w.now(0, 0).Answered, w.now(0, 0).Gaps = 1490, []v1alpha1.Gap{gap(7000, 100, 10)}
			}, reason: "10 of 2,500 probes lost",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := healthy()
			test.change(w)
			verdict := Judge(test.limits, w.evidence)
			if verdict.Pass != test.pass || verdict.Waiting != test.waiting ||
				!strings.Contains(verdict.Reason, test.reason) {
				t.Errorf("got pass %v, waiting %v: %s\nwant pass %v, waiting %v: ...%s",
					verdict.Pass, verdict.Waiting, verdict.Reason, test.pass, test.waiting, test.reason)
			}
			if verdict.Pass && verdict.Waiting {
				t.Error("passes while it waits")
			}
			if (verdict.Lost > 0 || verdict.Leaked > 0) != (len(verdict.Bad) > 0) &&
				!strings.Contains(test.name, "anew") && !strings.Contains(test.name, "holds") {
				t.Errorf("%d lost, %d leaked, bad paths %q", verdict.Lost, verdict.Leaked, verdict.Bad)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 41200: "41,200",
		1234567: "1,234,567", -1000: "-1,000"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestJudgeWhole: where paths must be measured without a break, a prober that restarted or did not run is no pass, and
// no loss.
func TestJudgeWhole(t *testing.T) {
	stalled := func(from int, millis float64) func(*world) {
		return func(w *world) { w.now(1, 0).Stalls = []v1alpha1.Gap{{From: after(from), Millis: millis}} }
	}
	often := func(n int, from int, millis float64) func(*world) {
		return func(w *world) {
			for i := range n {
				w.now(1, 0).Stalls = append(w.now(1, 0).Stalls, v1alpha1.Gap{From: after(from + i), Millis: millis})
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*world)
		whole  bool
		pass   bool
		reason string
	}{
		{"no break", func(*world) {}, true, true, "none lost"},
		{"a long stall", stalled(10500, 6000), true, false, "1 path was not measured for up to 6.0 s, such as b>a"},
		{"a long stall, where that is allowed", stalled(10500, 6000), false, true, "none lost"},
		{"a short stall", stalled(10500, 900), true, true, "none lost"},
		{"a stall of before", stalled(500, 6000), true, true, "none lost"},
		{"two stalls", often(2, 10500, 2000), true, true, "none lost"},
		{"many stalls", often(3, 10500, 2000), true, false,
			"1 path was not measured for 6.0 s in all, such as b>a, since a prober did not run again and again"},
		{"many short stalls", often(31, 10500, 900), true, true, "none lost"},
		{"more stalls than a report holds", often(DefaultMaxGaps, 10500, 1000), true, false, "at least 32.0 s in all"},
		{"many stalls of before", often(31, 500, 2000), true, true, "none lost"},
		{"many stalls, in three days", func(w *world) {
			often(31, 20000, 2000)(w)
			w.now(1, 0).Last = after(10000).Add(72 * time.Hour)
		}, true, true, "none lost"},
		{"a prober that restarted since the baseline", func(w *world) {
			w.evidence.Since = w.evidence.Asked
			w.evidence.Since[1].Status.Parts = []v1alpha1.Part{{Name: "old", Since: after(0)}}
			w.evidence.Paths[1].Source.Network = "old"
			w.evidence.Since = Baseline(w.evidence.Since)
			w.evidence.Now[1].Status.Parts = []v1alpha1.Part{{Name: "old", Since: after(11000)}}
			*w.now(1, 0) = v1alpha1.PathResult{ID: "b>a", Sent: 300, Answered: 300,
				Since: after(12000), Last: after(15000)}
		}, true, false, "a prober restarted, so 1 path was not measured for a moment"},
	} {
		w := healthy()
		test.change(w)
		verdict := Judge(Limits{Whole: test.whole}, w.evidence)
		if verdict.Pass != test.pass || verdict.Waiting || verdict.Lost > 0 ||
			!strings.Contains(verdict.Reason, test.reason) {
			t.Errorf("%s: %+v", test.name, verdict)
		}
	}
}

// TestJudgeDisplaced: losses whose gaps were dropped may be excused, so alone they prove nothing, and pass nothing.
func TestJudgeDisplaced(t *testing.T) {
	twelve := []v1alpha1.Gap{{From: after(12000), Millis: 120, Probes: 12}}
	for name, test := range map[string]struct {
		maxLost, answered int64
		gaps              []v1alpha1.Gap
		lost, displaced   int64
		pass              bool
	}{
		"they alone":              {0, 1490, nil, 0, 10, false},
		"with few others":         {12, 1478, twelve, 12, 10, false},
		"the others are too many": {0, 1478, twelve, 22, 0, false},
		"all are allowed":         {22, 1478, twelve, 22, 0, true},
	} {
		w := healthy()
		w.now(0, 0).Answered, w.now(0, 0).Gaps, w.now(0, 0).Dropped = test.answered, test.gaps, 3
		verdict := Judge(Limits{MaxLost: test.maxLost}, w.evidence)
		if verdict.Lost != test.lost || verdict.Displaced != test.displaced ||
			verdict.Pass != test.pass || verdict.Waiting ||
			strings.Contains(verdict.Reason,
				"10 lost probes are in gaps that the reports do not hold") != (test.displaced > 0) {
			t.Errorf("%s: %+v", name, verdict)
		}
	}
}

// TestSuspect: the node that all paths with losses have in common is named, if it is one.
func TestSuspect(t *testing.T) {
	lost := func(from, to string, lost int64, denied bool) delta {
		return delta{PathAccount: &PathAccount{Path: v1alpha1.Path{ID: from + ">" + to, Denied: denied,
			Source: v1alpha1.Endpoint{Node: from}, Target: v1alpha1.Endpoint{Node: to}},
			Counts: Counts{Sent: 10, Lost: lost}}}
	}
	for _, test := range []struct {
		deltas []delta
		want   string
	}{
		{nil, ""},
		{[]delta{lost("a", "b", 1, false)}, ""},
		{[]delta{lost("a", "b", 1, false), lost("b", "a", 1, false)}, ""},
		{[]delta{lost("a", "b", 1, false), lost("b", "c", 1, false), lost("c", "a", 0, false)},
			", 2 of them from or to b"},
		{[]delta{lost("a", "b", 1, false), lost("b", "c", 1, false), lost("c", "a", 1, false)}, ""},
		{[]delta{lost("a", "b", 1, false), lost("c", "b", 1, false), lost("a", "", 1, false), lost("c", "a", 1, true)},
			", 2 of them from or to b"},
	} {
		if got := suspect(test.deltas); got != test.want {
			t.Errorf("%q, not %q", got, test.want)
		}
	}
	want := "2 of 20 probes lost on 2 paths, 2 of them from or to 100%s, longest gap 0 ms on a>100%s"
	if got := wrongs([]delta{lost("a", "100%s", 1, false), lost("100%s", "b", 1, false)}, false); got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// TestJudgeBehind: a gate waits for the next report of a node only if losses that are newer than its last one, or
// hardly older, are needed to be beyond the limits.
func TestJudgeBehind(t *testing.T) {
	const lost = " probes lost on 1 path"
	gap := func(from int, probes int64) v1alpha1.Gap {
		return v1alpha1.Gap{From: after(from), Millis: float64(10 * probes), Probes: probes}
	}
	for _, test := range []struct {
		name    string
		reports int // when the other node has last reported
		every   time.Duration
		latest  int // when the node with the losses has, if not at 15000
		limits  Limits
		gaps    []v1alpha1.Gap
		waiting bool
	}{
		{name: "well before its report", reports: 12500, gaps: []v1alpha1.Gap{gap(10499, 5)}},
		{name: "shortly before its report", reports: 12500, gaps: []v1alpha1.Gap{gap(10500, 5)}, waiting: true},
		{name: "after its report", reports: 12500, gaps: []v1alpha1.Gap{gap(13000, 5)}, waiting: true},
		{name: "after its report, which is not old", reports: 14000, gaps: []v1alpha1.Gap{gap(14500, 5)}},
		{name: "before and after, too many in each", reports: 12500, limits: Limits{MaxLost: 4},
			gaps: []v1alpha1.Gap{gap(10200, 5), gap(13000, 5)}},
		{name: "before and after, too many in both", reports: 12500, limits: Limits{MaxLost: 5},
			gaps: []v1alpha1.Gap{gap(10200, 5), gap(13000, 5)}, waiting: true},
		{name: "too long a gap before its report", reports: 12500,
			limits: Limits{MaxLost: 9, MaxGap: 40 * time.Millisecond}, gaps: []v1alpha1.Gap{gap(10200, 5)}},
		{name: "too long a gap after its report", reports: 12500,
			limits: Limits{MaxLost: 9, MaxGap: 40 * time.Millisecond}, gaps: []v1alpha1.Gap{gap(13000, 5)},
			waiting: true},
		{name: "its report is late", reports: 11000, gaps: []v1alpha1.Gap{gap(13000, 5)}},
		{name: "it reports seldom", reports: 11000, every: 10 * time.Millisecond, gaps: []v1alpha1.Gap{gap(13000, 5)},
			waiting: true},
		{name: "it reports seldom, and would have told news by now", reports: 11000, every: 200 * time.Second,
			latest: 20000, gaps: []v1alpha1.Gap{gap(12900, 5)}},
		{name: "it reports seldom, and may tell news yet", reports: 11000, every: 200 * time.Second,
			latest: 20000, gaps: []v1alpha1.Gap{gap(13100, 5)}, waiting: true},
	} {
		w := healthy()
		w.evidence.Every, w.evidence.Now[1].Status.At = test.every, after(test.reports)
		if test.latest > 0 {
			w.evidence.News, w.evidence.Now[0].Status.At = time.Second, after(test.latest)
		}
		for _, gap := range test.gaps {
			w.now(0, 0).Answered -= gap.Probes
		}
		w.now(0, 0).Gaps = test.gaps
		verdict := Judge(test.limits, w.evidence)
		if verdict.Pass || verdict.Waiting != test.waiting || !strings.Contains(verdict.Reason, lost) {
			t.Errorf("%s: %+v", test.name, verdict)
		}
	}
}

// TestProberHangs: where gates ask no question, the report at hand may be a second old, and a prober that sent one
// probe since the gate's beginning, and then hangs, is no evidence, however long its agent goes on. A gate of probers
// that go on passes with the report that it passed with before that was demanded: the third.
func TestProberHangs(t *testing.T) {
	for name, hangs := range map[string]time.Duration{"it goes on": time.Hour, "it hangs": time.Second} {
		w := healthy()
		watch := NewWatch(Limits{}, w.evidence)
		for second := 1; second <= 60; second++ {
			var now []v1alpha1.ProbeReport
			for _, one := range w.evidence.Asked {
				at := time.Duration(second) * time.Second
				results := slices.Clone(one.Status.Paths)
				for i := range results {
					result, last := &results[i], at
					if one.Name == "b" { // it writes twice a second; the gate began a second after the report
						last = min(at-400*time.Millisecond, hangs+100*time.Millisecond)
					}
					result.Last = result.Last.Add(last)
					sent := last.Milliseconds() / 10
					if result.Sent += sent; result.Answered > 0 {
						result.Answered += sent
					}
				}
				one.Status.Seq, one.Status.At = one.Status.Seq+int64(second), one.Status.At.Add(at)
				one.Status.Paths = results
				now = append(now, one)
			}
			got := watch.Look(now)
			if want := hangs > time.Minute && second >= 3; got.Pass != want || !got.Pass && !got.Waiting {
				t.Errorf("%s, after %d s: %+v", name, second, got)
			}
			if got.Pass {
				break
			}
		}
	}
}

// TestSlowPath: a path whose answers take longer than a second, or whose agent takes long to write its report, has
// enough evidence a report later, and keeps it.
func TestSlowPath(t *testing.T) {
	w := healthy()
	watch := NewWatch(Limits{}, w.evidence)
	for second := 1; second <= 10; second++ {
		now := slices.Clone(w.evidence.Asked)
		at := time.Duration(second) * time.Second
		for i := range now {
			one := &now[i].Status
			one.Seq, one.At, one.Paths = one.Seq+int64(second), one.At.Add(at), slices.Clone(one.Paths)
			for j := range one.Paths {
				result := &one.Paths[j]
				last := at
				if result.ID == "b>a" {
					last -= 1900 * time.Millisecond
				}
				sent := max(0, last.Milliseconds()/10)
				result.Sent, result.Last = result.Sent+sent, result.Last.Add(max(0, last))
				if result.Answered > 0 {
					result.Answered += sent
				}
			}
		}
		if got := watch.Look(now); got.Pass != (second >= 4) || !got.Pass && !got.Waiting {
			t.Errorf("after %d s: %+v", second, got)
		}
	}
}
