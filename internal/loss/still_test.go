package loss

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/path"
)

// TestStills: a probe is unheard only where all that may answer on its path stood still for half of its time.
func TestStills(t *testing.T) {
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
	stills := NewStills(0)
	until := after(60000)
	// b/new stood still from 10.0 s for 2.5 s, b/old too, and both twice for 0.6 s; c/new never; of b/host one path was late
	// and another not; d/new was measured only later.
	for _, network := range []string{"new", "old"} {
		stills.Add(from("b", network), start, until, []v1alpha1.Gap{span(10000, 2500, 25), span(20000, 600, 6), span(21000, 600, 6)})
		stills.Add(from("b", network), start, until, []v1alpha1.Gap{span(10050, 2450, 12), span(20000, 600, 3), span(21000, 600, 3)})
	}
	stills.Add(from("c", "new"), start, until, nil)
	seldom := from("b", "new")
	seldom.IntervalMillis = 1000
	stills.Add(seldom, start, until, nil)
	stills.Add(from("b", "host"), start, until, []v1alpha1.Gap{span(10000, 2500, 25)})
	stills.Add(from("b", "host"), start, until, nil)
	stills.Add(from("d", "old"), after(30000), until, []v1alpha1.Gap{span(10000, 2500, 25)})
	for _, test := range []struct {
		name string
		path v1alpha1.Path
		gap  v1alpha1.Gap
		want int64
	}{
		{name: "all of its time", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(10100, 400, 4), want: 4},
		{name: "from a moment before", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(9950, 100, 1), want: 1},
		{name: "the first of them too early, the last too late", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(8500, 5000, 50), want: 25},
		{name: "in two parts", path: v1alpha1.Path{Target: end("b", "new")}, gap: span(19800, 100, 1), want: 1},
		{name: "another process", path: v1alpha1.Path{Target: end("c", "new")}, gap: span(10100, 400, 4)},
		{name: "one path alone was late", path: v1alpha1.Path{Target: end("b", "host")}, gap: span(10100, 400, 4)},
		{name: "not measured then", path: v1alpha1.Path{Target: end("d", "old")}, gap: span(10100, 400, 4)},
		{name: "nothing is known of it", path: v1alpha1.Path{Target: end("e", "old")}, gap: span(10100, 400, 4)},
		{name: "a Service of which all stood still", path: v1alpha1.Path{Target: end("", "old"), Class: "pod-service"}, gap: span(10100, 400, 4)},
		{name: "a Service of which one ran", path: v1alpha1.Path{Target: end("", "new"), Class: "pod-service"}, gap: span(10100, 400, 4)},
		{name: "a node port behind which one ran", path: v1alpha1.Path{Target: end("b", "new"), Class: "node-port"}, gap: span(10100, 400, 4)},
		{name: "a name server", path: v1alpha1.Path{Target: end("", "")}, gap: span(10100, 400, 4)},
		{name: "denied", path: v1alpha1.Path{Target: end("b", "new"), Denied: true}, gap: span(10100, 400, 4)},
		{name: "refused", path: v1alpha1.Path{Target: end("b", "new")}, gap: v1alpha1.Gap{From: after(10100), Probes: 4, Cause: "connection refused"}},
		{name: "timed out", path: v1alpha1.Path{Target: end("b", "new")}, gap: v1alpha1.Gap{From: after(10100), Probes: 4, Cause: "read tcp: i/o timeout"}, want: 4},
	} {
		test.path.IntervalMillis = 100
		if got := stills.Unheard(test.path, test.gap); got != test.want {
			t.Errorf("%s: %d of %d probes are unheard, not %d", test.name, got, test.gap.Probes, test.want)
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
			w.evidence.Paths[i].Target = v1alpha1.Endpoint{Node: map[string]string{"a": "b", "b": "a"}[w.evidence.Paths[i].Source.Node], Network: "old"}
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
	if got := ask(func(w *world) { w.evidence.Now[1].Status.At = after(13000) }); got.Pass || !got.Waiting || got.Reason != lost {
		t.Errorf("lost, while the other node has not reported for 2 s: %+v", got)
	}
	if got := ask(func(w *world) { w.evidence.Now[1].Status.At = after(10100) }); got.Pass || got.Waiting {
		t.Errorf("lost, while the other node has not reported for 5 s: %+v", got)
	}
	want := "1,500 probes on 3 paths, none lost; 10 more had no answer while nobody ran who could give it"
	if got := ask(still); !got.Pass || got.Lost != 0 || got.Unheard != 10 || got.LongestGap != 0 || got.Reason != want {
		t.Errorf("unheard: %+v", got)
	}
	got := ask(func(w *world) {
		still(w)
		w.now(0, 0).Answered, w.now(0, 0).Gaps = 1489, append(w.now(0, 0).Gaps, v1alpha1.Gap{From: after(14000), Millis: 10, Probes: 1})
	})
	if got.Pass || got.Lost != 1 || got.Unheard != 10 || got.Reason != "1 of 1,000 probes lost on 1 path, longest gap 10 ms on a>b" {
		t.Errorf("one more was lost: %+v", got)
	}
}
