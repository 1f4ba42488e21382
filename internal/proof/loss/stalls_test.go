package loss

import (
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// TestStalls: a probe is excused only if all possible responders were stalled for half of its time.
func TestStalls(t *testing.T) {
	if nodePort != path.ClassNodePort {
		t.Errorf("the class is %q", path.ClassNodePort)
	}
	from := func(node, network string) v1alpha1.Path {
		return v1alpha1.Path{Source: v1alpha1.Endpoint{Node: node, Network: network}, IntervalMillis: 100}
	}
	end := func(node, network string) v1alpha1.Endpoint {
		return v1alpha1.Endpoint{Node: node, Network: network, Address: "198.19.0.1:7001"}
	}
	span := func(from int, millis float64, probes int64) v1alpha1.Gap {
		return v1alpha1.Gap{From: after(from), Millis: millis, Probes: probes}
	}
	stalls := NewStalls(0)
	until := after(60000)
	// b/new stood still from 10.0 s for 2.5 s, b/old too, and both twice for 0.6 s; c/new never; of b/host one path was
	// late and another not; d/new was measured only later.
	for _, network := range []string{"new", "old"} {
		stalls.Add(from("b", network), start, until,
			[]v1alpha1.Gap{span(10000, 2500, 25), span(20000, 600, 6), span(21000, 600, 6)})
		stalls.Add(from("b", network), start, until,
			[]v1alpha1.Gap{span(10050, 2450, 12), span(20000, 600, 3), span(21000, 600, 3)})
	}
	stalls.Add(from("c", "new"), start, until, nil)
	seldom := from("b", "new")
	seldom.IntervalMillis = 1000
	stalls.Add(seldom, start, until, nil)
	stalls.Add(from("b", "host"), start, until, []v1alpha1.Gap{span(10000, 2500, 25)})
	stalls.Add(from("b", "host"), start, until, nil)
	stalls.Add(from("d", "old"), after(30000), until, []v1alpha1.Gap{span(10000, 2500, 25)})
	for _, test := range []struct {
		name string
		path v1alpha1.Path
		gap  v1alpha1.Gap
		want int64
	}{
		{name: "all of its time", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(10100, 400, 4), want: 4},
		{name: "from a moment before", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(9950, 100, 1), want: 1},
		{name: "the first of them too early, the last too late", path: v1alpha1.Path{Target: end("b", "new")},
			gap: span(8500, 5000, 50), want: 25},
		{name: "in two parts", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(19800, 100, 1), want: 1},
		{name: "another process", path: v1alpha1.Path{Target: end("c", "new")}, gap: span(10100, 400, 4)},
		{name: "one path alone was late", path: v1alpha1.Path{Target: end("b", "host")}, gap: span(10100, 400, 4)},
		{name: "not measured then", path: v1alpha1.Path{Target: end("d", "old")}, gap: span(10100, 400, 4)},
		{name: "nothing is known of it", path: v1alpha1.Path{Target: end("e", "old")}, gap: span(10100, 400, 4)},
		{name: "a Service of which all stood still", path: v1alpha1.Path{Target: end("", "old"), Class: "pod-service"},
			gap: span(10100, 400, 4)},
		{name: "a Service of which one ran", path: v1alpha1.Path{Target: end("", "new"), Class: "pod-service"},
			gap: span(10100, 400, 4)},
		{name: "a node port behind which one ran", path: v1alpha1.Path{Target: end("b", "new"), Class: "node-port"},
			gap: span(10100, 400, 4)},
		{name: "a name server", path: v1alpha1.Path{Target: end("", "")}, gap: span(10100, 400, 4)},
		{name: "denied", path: v1alpha1.Path{Target: end("b", "new"), Denied: true}, gap: span(10100, 400, 4)},
		{name: "refused", path: v1alpha1.Path{Target: end("b", "new")},
			gap: v1alpha1.Gap{From: after(10100), Probes: 4, Cause: "connection refused"}},
		{name: "timed out", path: v1alpha1.Path{Target: end("b", "new")},
			gap: v1alpha1.Gap{From: after(10100), Probes: 4, Cause: "read tcp: i/o timeout"}, want: 4},
	} {
		test.path.IntervalMillis = 100
		if got := stalls.Excused(test.path, test.gap); got != test.want {
			t.Errorf("%s: %d of %d probes are unheard, not %d", test.name, got, test.gap.Probes, test.want)
		}
	}
}

// TestSecond: where a path has a second responder its answers decide, whatever the first one says of itself.
func TestSecond(t *testing.T) {
	target := v1alpha1.Endpoint{Node: "b", Network: "host", Address: "192.0.2.2:7101"}
	stalls := NewStalls(0)
	stalls.Add(v1alpha1.Path{Source: target, IntervalMillis: 100}, start, after(9000),
		[]v1alpha1.Gap{{From: after(4000), Millis: 2500, Probes: 25}})
	stalls.Add(v1alpha1.Path{Source: target, IntervalMillis: 100}, after(12100), after(60000), nil)
	for range 2 {
		stalls.Gone("b", []v1alpha1.Part{{Name: "agent", Since: after(30000)},
			{Name: "host", Since: after(12000), Gone: []v1alpha1.Absence{{From: after(9000), To: after(12000)}}}})
	}
	throughout := v1alpha1.Second{Answered: 9, SilentMillis: 1000}
	for _, test := range []struct {
		name     string
		from     int
		probes   int64
		cause    string
		second   v1alpha1.Second
		none     bool // no second responder
		protocol v1alpha1.Protocol
		want     int64
	}{
		{name: "it stood still", from: 4000, probes: 10, second: throughout, want: 10},
		{name: "it stood still, and so did the second", from: 4000, probes: 10},
		{name: "it stood still, and there is no second", from: 4000, probes: 10, none: true, want: 10},
		{name: "it was gone", from: 9100, probes: 19, cause: "connection refused", second: throughout, want: 19},
		{name: "until it was back", from: 10000, probes: 30, second: throughout, want: 21},
		{name: "until a kept connection was there again", from: 11500, probes: 10, protocol: v1alpha1.TCP,
			second: throughout, want: 8},
		{name: "it was gone, and so was the second", from: 9100, probes: 19, cause: "connection refused"},
		{name: "it was gone, and the second was for a moment too long",
			from: 9100, probes: 19, second: v1alpha1.Second{Answered: 9, SilentMillis: 1001}},
		{name: "it was gone, and there is no second that was asked",
			from: 9100, probes: 19, cause: "connection refused", none: true},
		{name: "it ran", from: 7000, probes: 5, second: throughout},
		{name: "it ran later", from: 20000, probes: 5, second: throughout},
		{name: "before it began for the first time", from: -2000, probes: 5, second: throughout},
	} {
		path := v1alpha1.Path{Target: target, Protocol: test.protocol, IntervalMillis: 100, Second: "192.0.2.2:7103"}
		if test.none {
			path.Second = ""
		}
		got := stalls.Excused(path,
			v1alpha1.Gap{From: after(test.from), Probes: test.probes, Cause: test.cause, Second: test.second})
		if got != test.want {
			t.Errorf("%s: %d of %d probes are unheard, not %d", test.name, got, test.probes, test.want)
		}
	}
}

// TestSecondOfService: one member that was gone explains what a Service did not answer, where the others' second
// responders did.
func TestSecondOfService(t *testing.T) {
	stalls := NewStalls(0)
	for _, node := range []string{"a", "b"} {
		last := map[string]int{"a": 60000, "b": 9000}[node]
		stalls.Add(v1alpha1.Path{Source: v1alpha1.Endpoint{Node: node, Network: "old"}, IntervalMillis: 100},
			start, after(last), nil)
	}
	stalls.Gone("b", []v1alpha1.Part{{Name: "old", Since: after(12000),
		Gone: []v1alpha1.Absence{{From: after(9000), To: after(12000)}}}})
	service := v1alpha1.Path{Target: v1alpha1.Endpoint{Network: "old"}, Class: path.ClassPodService,
		IntervalMillis: 100, Second: "198.18.96.1:7004"}
	gap := v1alpha1.Gap{From: after(9500), Probes: 5, Cause: "connection refused",
		Second: v1alpha1.Second{Answered: 3, SilentMillis: 300}}
	if got := stalls.Excused(service, gap); got != 5 {
		t.Errorf("one of two was gone: %d", got)
	}
	gap.Second = v1alpha1.Second{}
	if got := stalls.Excused(service, gap); got != 0 {
		t.Errorf("the Service was silent: %d", got)
	}
	gap.From, gap.Second = after(3000), v1alpha1.Second{Answered: 3}
	if got := stalls.Excused(service, gap); got != 0 {
		t.Errorf("nobody was gone: %d", got)
	}
}

// TestJudgeRestart: a prober that restarts, as its node says, costs no gate anything but the time to measure anew;
// counts that begin anew without that are no evidence.
func TestJudgeRestart(t *testing.T) {
	ask := func(before, now time.Time, sent int64) Verdict {
		w := healthy()
		for i := range w.evidence.Paths {
			w.evidence.Paths[i].Source.Network = "old"
		}
		for _, report := range [][]v1alpha1.ProbeReport{w.evidence.Asked, w.evidence.Since} {
			for i := range report {
				report[i].Status.Parts = []v1alpha1.Part{{Name: "old", Since: before}}
			}
		}
		for i := range w.evidence.Now {
			w.evidence.Now[i].Status.Parts = []v1alpha1.Part{{Name: "old", Since: now}}
		}
		result := w.now(0, 0)
		result.Since, result.Sent, result.Answered = after(12000), sent, sent
		return Judge(Limits{Bake: 4 * time.Second}, w.evidence)
	}
	if got := ask(start, start, 400); got.Pass || got.Waiting ||
		!strings.Contains(got.Reason, "restarted its count at") {
		t.Errorf("no prober restarted: %+v", got)
	}
	if got := ask(start, after(11900), 400); !got.Pass || got.Restarted == 0 ||
		!strings.HasSuffix(got.Reason, "; a prober restarted, and with it the count of 1 path") {
		t.Errorf("the prober restarted: %+v", got)
	}
	if got := ask(start, after(11900), 0); got.Pass || !got.Waiting {
		t.Errorf("it has measured nothing yet: %+v", got)
	}
	if got := ask(start, after(11900), 2); got.Pass || !got.Waiting {
		t.Errorf("it has measured for a moment only: %+v", got)
	}
}

// TestJudgeGone: while a prober that does not answer may be gone a gate waits for its node to say so, and no longer.
func TestJudgeGone(t *testing.T) {
	ask := func(second v1alpha1.Second, open bool, millis float64, began ...int) Verdict {
		w := healthy()
		for i := range w.evidence.Paths {
			w.evidence.Paths[i].Source.Network = "host"
			w.evidence.Paths[i].Target = v1alpha1.Endpoint{Node: map[string]string{"a": "b",
				"b": "a"}[w.evidence.Paths[i].Source.Node], Network: "host"}
			w.evidence.Paths[i].Second = "192.0.2.2:7103"
		}
		result := w.now(0, 0)
		gap := v1alpha1.Gap{From: after(13000), Millis: millis, Probes: 50, Cause: "connection refused", Second: second}
		if result.Answered -= 50; open {
			result.Open = &gap
		} else {
			result.Gaps = []v1alpha1.Gap{gap}
		}
		for _, reports := range [][]v1alpha1.ProbeReport{w.evidence.Asked, w.evidence.Now} {
			reports[1].Status.Parts = []v1alpha1.Part{{Name: "host", Since: start.Add(-time.Minute)}}
		}
		if len(began) > 0 {
			back := w.now(1, 0)
			back.Since, back.Sent, back.Answered = after(began[0]), 250, 250
			w.evidence.Now[1].Status.Parts = []v1alpha1.Part{{Name: "host", Since: after(began[0]),
				Gone: []v1alpha1.Absence{{From: after(12900), To: after(began[0])}}}}
		}
		return Judge(Limits{Bake: 2 * time.Second}, w.evidence)
	}
	answered := v1alpha1.Second{Answered: 6, SilentMillis: 300}
	for _, test := range []struct {
		name          string
		verdict       Verdict
		pass, waiting bool
	}{
		{"it does not answer for half a second", ask(v1alpha1.Second{}, true, 500), false, true},
		{"nor does the second, for two seconds", ask(v1alpha1.Second{}, true, 2000), false, false},
		{"the second does", ask(answered, true, 2000), false, true},
		{"it answers again, and the second did meanwhile", ask(answered, false, 1500), false, true},
		{"it answers again, and the second did not", ask(v1alpha1.Second{}, false, 1500), false, false},
		{"its node says that it was gone", ask(answered, false, 1500, 14500), true, false},
		{"its node says that it was gone, and the second did not answer",
			ask(v1alpha1.Second{}, false, 1500, 14500), false, false},
	} {
		if test.verdict.Pass != test.pass || test.verdict.Waiting != test.waiting {
			t.Errorf("%s: %+v", test.name, test.verdict)
		}
	}
}

// TestCanarySecond: what a second responder answered is no evidence against a change.
func TestCanarySecond(t *testing.T) {
	for _, test := range []struct {
		second v1alpha1.Second
		lost   int64
	}{{v1alpha1.Second{Answered: 4, SilentMillis: 250}, 0}, {v1alpha1.Second{}, 20}} {
		f := newFleet(1, "a", "b", "c")
		var c Canary
		f.seconds(3, &c, []string{"a"}, all(0))
		result := f.results["b>a"]
		if result == nil {
			result = f.results["a>b"]
		}
		result.Open = &v1alpha1.Gap{From: after(f.second * 1000), Millis: 1000, Probes: 20, Second: test.second}
		result.Sent, result.Answered = result.Sent+20, result.Answered-0
		f.seconds(1, &c, []string{"a"}, all(0))
		if c.changed.Lost != test.lost {
			t.Errorf("%+v: %d lost", test.second, c.changed.Lost)
		}
	}
}

// TestJudgeStill: a gate waits for the report of a node that may have stood still, lets pass what it explains, and
// nothing else.
func TestJudgeStill(t *testing.T) {
	ask := func(change func(*world)) Verdict {
		w := healthy()
		for i := range w.evidence.Paths {
			w.evidence.Paths[i].Source.Network = "old"
			w.evidence.Paths[i].Target = v1alpha1.Endpoint{Node: map[string]string{"a": "b",
				"b": "a"}[w.evidence.Paths[i].Source.Node], Network: "old"}
		}
		w.now(0, 0).Answered, w.now(0, 0).Gaps = 1490, []v1alpha1.Gap{{From: after(11000), Millis: 100, Probes: 10}}
		change(w)
		return Judge(Limits{Bake: 4 * time.Second}, w.evidence)
	}
	still := func(w *world) { w.now(1, 0).Stalls = []v1alpha1.Gap{{From: after(11000), Millis: 2300, Probes: 230}} }
	lost := "10 of 1,000 probes lost on 1 path, longest gap 100 ms on a>b"
	if got := ask(func(*world) {}); got.Pass || got.Waiting || got.Reason != lost {
		t.Errorf("lost: %+v", got)
	}
	if got := ask(func(w *world) { w.evidence.Now[1].Status.At = after(13000) }); got.Pass ||
		!got.Waiting || got.Reason != lost {
		t.Errorf("lost, while the other node has not reported for 2 s: %+v", got)
	}
	if got := ask(func(w *world) { w.evidence.Now[1].Status.At = after(10100) }); got.Pass || got.Waiting {
		t.Errorf("lost, while the other node has not reported for 5 s: %+v", got)
	}
	want := "1,500 probes on 3 paths, none lost; 10 more were unanswered while all possible " +
		"responders were stalled (not counted)"
	if got := ask(still); !got.Pass || got.Lost != 0 || got.Excused != 10 || got.LongestGap != 0 || got.Reason != want {
		t.Errorf("unheard: %+v", got)
	}
	got := ask(func(w *world) {
		still(w)
		w.now(0, 0).Answered, w.now(0, 0).Gaps = 1489,
			append(w.now(0, 0).Gaps, v1alpha1.Gap{From: after(14000), Millis: 10, Probes: 1})
	})
	if got.Pass || got.Lost != 1 || got.Excused != 10 ||
		got.Reason != "1 of 1,000 probes lost on 1 path, longest gap 10 ms on a>b" {
		t.Errorf("one more was lost: %+v", got)
	}
}
