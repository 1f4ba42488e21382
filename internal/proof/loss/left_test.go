package loss

import (
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestLeft: what the paths of a node lose since it began to leave is no loss, and it need not report. What they lost
// before is a loss, and so is what other paths lose, what a node loses that did not leave, and a leak. Until it left,
// it must have been measured without a break.
func TestLeft(t *testing.T) {
	loses := func(w *world, path int, from int, probes int64) {
		one := w.now(0, path)
		one.Answered -= probes
		one.Open = &v1alpha1.Gap{From: after(from), Millis: float64(15000 - from), Probes: probes}
	}
	for name, test := range map[string]struct {
		left         map[string]time.Time
		change       func(*world)
		pass         bool
		lost, leaked int64
		gone         int64
		reason       string
	}{
		"it goes": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			loses(w, 0, 12500, 250)
		}, true, 0, 0, 250, "250 more were lost because nodes left the cluster (not counted)"},
		"it goes, and so do its results": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			w.evidence.Now = w.evidence.Now[:1]
		}, false, 0, 0, 0, "not enough evidence: b>a has no result"},
		"it left before it was measured": {map[string]time.Time{"b": after(9000)}, func(w *world) {
			w.evidence.Now = w.evidence.Now[:1]
		}, true, 0, 0, 0, "none lost"},
		"its prober restarts before": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			*w.now(1, 0) = result("b>a", 90, 90, 12000)
			w.now(1, 0).Since = after(11000)
		}, false, 0, 0, 0, "b>a restarted its count"},
		"its prober restarts later": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			*w.now(1, 0) = result("b>a", 90, 90, 13500)
			w.now(1, 0).Since = after(12500)
		}, false, 0, 0, 0, "b>a restarted its count"}, // what it lost until 12,000 is not known either
		"its prober restarts, and it left long before": {map[string]time.Time{"b": after(9000)}, func(w *world) {
			*w.now(1, 0) = result("b>a", 90, 90, 12000)
			w.now(1, 0).Since = after(11000)
		}, true, 0, 0, 0, "none lost"},
		"it is stalled before": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			w.now(1, 0).Stalls = []v1alpha1.Gap{{From: after(11000), Millis: 6000}}
		}, false, 0, 0, 0, "1 path was not measured for up to 6.0 s"},
		"it is stalled later": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			w.now(1, 0).Stalls = []v1alpha1.Gap{{From: after(12001), Millis: 6000}}
		}, true, 0, 0, 0, "none lost"},
		"it goes, and its last report is old": {map[string]time.Time{"b": after(12000)}, func(w *world) {
			loses(w, 0, 12500, 250)
			w.evidence.Now[1] = w.evidence.Asked[1]
		}, true, 0, 0, 250, ""},
		"it loses before": {map[string]time.Time{"b": after(12000)}, func(w *world) { loses(w, 0, 11900, 310) },
			false, 310, 0, 0, "310 of "},
		"it does not leave": {nil, func(w *world) { loses(w, 0, 12500, 250) }, false, 250, 0, 0, "250 of "},
		"another leaves": {map[string]time.Time{"c": after(12000)}, func(w *world) { loses(w, 0, 12500, 250) },
			false, 250, 0, 0, "250 of "},
		"it leaks": {map[string]time.Time{"b": after(12000)}, func(w *world) { w.now(0, 1).Answered = 3 },
			false, 0, 3, 0, "got through"},
		"all leave": {map[string]time.Time{"a": after(12000), "b": after(12000)}, func(*world) {},
			false, 0, 0, 0, "every node that measured has left"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy()
			for i := range w.evidence.Paths { // ends as Build has them
				if w.evidence.Paths[i].Target.Node = "b"; w.evidence.Paths[i].Source.Node == "b" {
					w.evidence.Paths[i].Target.Node = "a"
				}
			}
			test.change(w)
			w.evidence.Left = test.left
			got := Judge(Limits{Bake: 4 * time.Second, Whole: true}, w.evidence)
			if got.Pass != test.pass || got.Lost != test.lost || got.Leaked != test.leaked || got.Left != test.gone ||
				!strings.Contains(got.Reason, test.reason) {
				t.Errorf("%+v", got)
			}
			w.evidence.Left = nil
			watch := NewWatch(Limits{Bake: 4 * time.Second, Whole: true}, w.evidence)
			watch.Leave(map[string]time.Time{"a": after(0), "b": after(0)}) // they come back
			watch.Leave(test.left)
			if again := watch.Look(w.evidence.Now); again.Pass != got.Pass || again.Reason != got.Reason {
				t.Errorf("a watch says %+v, not %+v", again, got)
			}
		})
	}
}

// TestLeftService: a path with one flow through a Service may be silent once, and shortly, for each node that leaves,
// since its flow may have been bound to a pod there. Other losses through a Service count.
func TestLeftService(t *testing.T) {
	gap := func(from, millis int) v1alpha1.Gap {
		return v1alpha1.Gap{From: after(from), Millis: float64(millis), Probes: int64(millis / 100)}
	}
	one, two := map[string]time.Time{"b": after(2000)}, map[string]time.Time{"b": after(2000), "c": after(6000)}
	for name, test := range map[string]struct {
		left     map[string]time.Time
		protocol v1alpha1.Protocol
		target   string
		gaps     []v1alpha1.Gap
		counts   int64 // lost
	}{
		"nobody leaves":          {nil, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 1500)}, 15},
		"one leaves":             {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 1500)}, 0},
		"a TCP connection":       {one, v1alpha1.TCP, "", []v1alpha1.Gap{gap(3000, 300)}, 0},
		"before it leaves":       {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(1900, 1500)}, 15},
		"too long":               {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 3100)}, 31},
		"as long as may be":      {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 3000)}, 0},
		"once more":              {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 1500), gap(7000, 200)}, 2},
		"two leave":              {two, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 1500), gap(7000, 200)}, 0},
		"the second stays until": {two, v1alpha1.UDP, "", []v1alpha1.Gap{gap(3000, 1500), gap(5000, 200)}, 2},
		"just soon enough":       {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(602000, 1500)}, 0},
		"long after it left":     {one, v1alpha1.UDP, "", []v1alpha1.Gap{gap(602100, 1500)}, 15},
		"the second, later":      {two, v1alpha1.UDP, "", []v1alpha1.Gap{gap(606000, 1500)}, 0},
		"a new connection":       {one, v1alpha1.TCPConnect, "", []v1alpha1.Gap{gap(3000, 1500)}, 15},
		"another node's pod":     {one, v1alpha1.UDP, "c", []v1alpha1.Gap{gap(3000, 1500)}, 15},
	} {
		path := v1alpha1.Path{ID: "a>s", Source: v1alpha1.Endpoint{Node: "a"}, Protocol: test.protocol,
			Target: v1alpha1.Endpoint{Node: test.target}, IntervalMillis: 100}
		var all int64
		for _, g := range test.gaps {
			all += g.Probes
		}
		measured := result("a>s", 10000, 10000-all, 1000000)
		measured.Gaps = test.gaps
		account := NewAccount([]v1alpha1.Path{path}, nil, []v1alpha1.ProbeReport{report("a", 1, 1000000, measured)}, 0)
		account.Leave(test.left)
		if got := account[0]; got.Lost != test.counts || got.Left != all-test.counts ||
			(len(got.Gaps) > 0) != (test.counts > 0) {
			t.Errorf("%s: lost %d, left %d, gaps %+v", name, got.Lost, got.Left, got.Gaps)
		}
	}
}
