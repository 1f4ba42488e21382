package loss

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// ring is a cluster whose nodes measure the next one each.
func ring(n int) (paths []v1alpha1.Path) {
	for i := range n {
		from, to := fmt.Sprintf("node-%d", i), fmt.Sprintf("node-%d", (i+1)%n)
		paths = append(paths, v1alpha1.Path{ID: from + ">" + to, IntervalMillis: 100,
			Source: v1alpha1.Endpoint{Node: from}, Target: v1alpha1.Endpoint{Node: to}})
	}
	return paths
}

func TestConcerned(t *testing.T) {
	paths := ring(500)
	got := Concerned(paths, []string{"node-7", "node-8"}, "wave-3/node-7/adopt")
	for _, node := range []string{"node-6", "node-7", "node-8", "node-9"} {
		if !got[node] {
			t.Errorf("%s is not asked", node)
		}
	}
	if len(got) != 4+Sample {
		t.Errorf("%d nodes are asked, not 4 and a sample", len(got))
	}
	if !maps.Equal(got, Concerned(paths, []string{"node-7", "node-8"}, "wave-3/node-7/adopt")) {
		t.Error("the sample depends on more than the step")
	}
	other := Concerned(paths, []string{"node-7", "node-8"}, "wave-3/node-7/switch")
	same := 0
	for node := range got {
		if other[node] {
			same++
		}
	}
	if same > 4+Sample/2 {
		t.Errorf("two steps ask %d of the same %d nodes", same, len(got))
	}
	for name, all := range map[string]map[string]bool{
		"nobody is changed": Concerned(paths, nil, "x"),
		"most are asked":    Concerned(ring(2*(Sample+3)-1), []string{"node-0"}, "x"),
	} {
		if all != nil {
			t.Errorf("%s: only %d nodes are asked", name, len(all))
		}
	}
	if Concerned(ring(2*(Sample+3)), []string{"node-0"}, "x") == nil {
		t.Error("all nodes are asked where half are enough")
	}
}

func TestHearing(t *testing.T) {
	var h Hearing
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	if h.Silent("a", at(0)) != longAgo {
		t.Error("a node that was never heard of is not silent")
	}
	h.Look([]v1alpha1.ProbeReport{report("a", 7, 0)}, at(0))
	if h.Silent("a", at(1)) != longAgo {
		t.Error("a single report has an age, though it may be of any")
	}
	h.Look([]v1alpha1.ProbeReport{report("a", 8, 0)}, at(5))
	h.Look([]v1alpha1.ProbeReport{report("a", 8, 0)}, at(9))
	if got := h.Silent("a", at(12)); got != 12*time.Second { // it may have written at once after the first look
		t.Errorf("silent for %s, not 12 s", got)
	}
	h.Look([]v1alpha1.ProbeReport{report("a", 2, 0)}, at(13)) // an agent whose report was deleted begins again
	if got := h.Silent("a", at(13)); got != 4*time.Second {
		t.Errorf("silent for %s after a new report", got)
	}
}

// near is a gate of 100 nodes, asked at 10 s, that asks node-1 and those next to it. Losses count from 5 s on.
type near struct {
	*testing.T
	watch   *Watch
	heard   Hearing
	now     []v1alpha1.ProbeReport
	clock   time.Time
	started []v1alpha1.ProbeReport
}

const quiet = 30 * time.Second

func newNear(t *testing.T, all bool, limits Limits) *near {
	n := &near{T: t, clock: start.Add(10 * time.Second)}
	limits.Quiet = cmp.Or(limits.Quiet, quiet)
	paths, generations := ring(100), map[string]int64{}
	for i := range paths {
		one := report(paths[i].Source.Node, 10, 10000, result(paths[i].ID, 100, 100, 10000))
		n.now = append(n.now, one)
		generations[one.Name] = 3
	}
	n.started = slices.Clone(n.now)
	n.heard.Look(before(n.now), n.clock)
	n.heard.Look(n.now, n.clock)
	n.watch = NewWatch(limits, Evidence{Generations: generations, Paths: paths, Since: n.started, Asked: n.started,
		Every: 10 * time.Second})
	if all {
		n.watch.Concern(nil)
	} else {
		n.watch.Concern(map[string]bool{"node-0": true, "node-1": true, "node-2": true})
	}
	return n
}

// before are the reports before some.
func before(reports []v1alpha1.ProbeReport) []v1alpha1.ProbeReport {
	reports = slices.Clone(reports)
	for i := range reports {
		reports[i].Status.Seq--
	}
	return reports
}

// report lets a node report at a second, when it has lost so many more probes.
func (n *near) report(node, second int, lost int64) {
	status := &n.now[node].Status
	status.Seq++
	status.At = after(second * 1000)
	last := status.Paths[0]
	sent := int64(second * 10)
	now := result(last.ID, sent, last.Answered+sent-last.Sent-lost, second*1000)
	now.Gaps = slices.Clone(last.Gaps)
	if lost > 0 {
		now.Gaps = append(now.Gaps,
			v1alpha1.Gap{From: after(second*1000 - 500), Millis: float64(lost * 100), Probes: lost})
	}
	status.Paths = []v1alpha1.PathResult{now}
	n.now[node].ResourceVersion = fmt.Sprint(status.Seq)
}

// look is a look at a second.
func (n *near) look(second int) Verdict {
	n.clock = start.Add(time.Duration(second) * time.Second)
	n.heard.Look(n.now, n.clock)
	n.watch.Hear(&n.heard, n.clock)
	got := n.watch.Look(slices.Clone(n.now))
	if all := n.watch.Judge(slices.Clone(n.now)); all.Pass != got.Pass || all.Waiting != got.Waiting {
		n.Errorf("a look says %+v, but the judge %+v", got, all)
	}
	return got
}

// asked lets the nodes that are asked report at seconds.
func (n *near) asked(seconds ...int) {
	for _, second := range seconds {
		for node := range 3 {
			n.report(node, second, 0)
		}
	}
}

func (n *near) must(got Verdict, pass, waiting bool, words string) {
	n.Helper()
	if got.Pass != pass || got.Waiting != waiting || !strings.Contains(got.Reason, words) {
		n.Errorf("%+v, want pass %t, waiting %t, %q", got, pass, waiting, words)
	}
}

func TestConcern(t *testing.T) {
	t.Run("all is well", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		n.must(n.look(11), false, true, "node-0 has published 0 of 2")
		n.asked(11)
		n.must(n.look(11), false, true, "node-0 has published 1 of 2")
		n.asked(12)
		n.must(n.look(12), false, true, "node-0 has measured for 0s of 2.5s") // the first may have been under way
		n.asked(13, 14)
		n.must(n.look(14), false, true, "node-0 has measured for 2s of 2.5s")
		n.asked(15)
		n.must(n.look(15), true, false, "none lost")
	})
	t.Run("a bake counts from the first report that was asked for", func(t *testing.T) {
		n := newNear(t, false, Limits{Bake: 5 * time.Second})
		n.asked(13, 14)
		n.look(14)
		n.asked(18)
		n.must(n.look(18), false, true, "measured for 4s of 5s")
		n.asked(19)
		n.must(n.look(19), true, false, "")
	})
	t.Run("a node that is asked is silent", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		for _, second := range []int{11, 12, 15} {
			n.report(0, second, 0)
			n.report(1, second, 0)
			n.look(second)
		}
		n.must(n.look(15), false, true, "node-2 has published 0 of 2")
	})
	t.Run("a path that is asked does not send", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		for _, second := range []int{11, 12, 15} {
			n.asked(second)
			n.now[1].Status.Paths = n.started[1].Status.Paths
			n.look(second)
		}
		n.must(n.look(15), false, true, "node-1>node-2 sent 0 of at least 1")
	})
	t.Run("a loss elsewhere fails as soon as it is known", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		n.report(51, 11, 0)
		n.report(50, 11, 3)
		n.must(n.look(11), false, false, "3 of 20 probes lost")
	})
	t.Run("a loss elsewhere that comes later fails the next gate", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		n.asked(11, 12)
		n.look(12)
		n.asked(14)
		n.look(14)
		n.asked(15)
		n.must(n.look(15), true, false, "none lost")
		until := slices.Clone(n.now)
		n.report(50, 20, 3)
		n.report(51, 20, 0)
		next := NewWatch(Limits{}, Evidence{Generations: n.watch.evidence.Generations,
			Paths: n.watch.evidence.Paths, Since: until, Asked: slices.Clone(n.now)})
		next.Concern(map[string]bool{"node-9": true})
		n.must(next.Look(n.now), false, false, "3 of")
	})
	t.Run("silence elsewhere", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		for second := 11; second <= 40; second++ {
			n.asked(second)
			for node := 3; node < 100; node++ {
				if node != 60 && second%10 == 0 {
					n.report(node, second, 0)
				}
			}
			n.look(second)
		}
		n.must(n.look(40), true, false, "") // for 30 s, which is allowed
		n.asked(41)
		n.must(n.look(41), false, true, "node-60 has not reported for 31s")
		n.report(60, 41, 0)
		n.must(n.look(41), true, false, "")
	})
	t.Run("a node elsewhere that was never seen to report", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		n.heard = Hearing{}
		n.heard.Look(n.now, n.clock) // a run that has just been resumed
		n.asked(11, 12)
		n.look(12)
		n.asked(15)
		n.must(n.look(15), false, true, "node-10 was not seen to report yet (and 96 nodes more)")
		for node := 3; node < 100; node++ {
			n.report(node, 15, 0)
		}
		n.must(n.look(15), true, false, "")
	})
	t.Run("another plan elsewhere", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		n.watch.evidence.Generations["node-60"] = 4
		n.asked(11, 12)
		n.look(12)
		n.asked(15)
		n.must(n.look(15), false, true, "node-60 reports on plan 3 instead of 4")
	})
	t.Run("a path elsewhere without a result", func(t *testing.T) {
		n := newNear(t, false, Limits{})
		n.now[60].Status.Paths = nil
		n.asked(11, 12)
		n.look(12)
		n.asked(15)
		n.must(n.look(15), false, true, "node-60>node-61 has no result")
	})
	for _, nodesMayBeSilent := range []time.Duration{quiet, 20 * quiet} { // a prober may not hang for longer
		t.Run("a prober elsewhere hangs, and its agent reports", func(t *testing.T) {
			n := newNear(t, false, Limits{Quiet: nodesMayBeSilent})
			n.asked(11, 12)
			n.look(12)
			for second := 15; second <= 45; second += 10 {
				n.asked(second)
				for node := 3; node < 100; node++ {
					n.report(node, second, 0)
				}
				hung := &n.now[60].Status.Paths[0]
				hung.Last, hung.Sent, hung.Answered = after(10000), 100, 100
				n.look(second)
			}
			n.must(n.look(45), false, true, "node-60>node-61 was last measured at ")
		})
	}
	t.Run("all are asked", func(t *testing.T) {
		n := newNear(t, true, Limits{})
		n.asked(11, 12)
		n.look(12)
		n.asked(15)
		n.must(n.look(15), false, true, "node-10 has published 0 of 2 fresh reports (and 96 nodes more)")
		for _, second := range []int{15, 16, 17, 18} {
			for node := 3; node < 100; node++ {
				n.report(node, second, 0)
			}
			n.look(second)
		}
		n.must(n.look(18), false, true, "has measured for 2s of 2.5s")
		for node := 3; node < 100; node++ {
			n.report(node, 19, 0)
		}
		n.must(n.look(19), true, false, "")
	})
	t.Run("all are asked, and one lost", func(t *testing.T) {
		n := newNear(t, true, Limits{})
		n.report(77, 12, 1)
		n.must(n.look(12), false, true, "1 of") // its peer may know why
		n.report(50, 12, 0)
		n.must(n.look(12), false, true, "1 of") // and none but it
		n.report(78, 12, 0)
		n.must(n.look(12), false, false, "1 of")
	})
	t.Run("a loss whose other end is silent", func(t *testing.T) {
		n := newNear(t, true, Limits{})
		n.report(77, 23, 1)
		n.must(n.look(23), false, true, "1 of")
		n.report(77, 24, 0)
		n.must(n.look(24), false, false, "1 of") // its report is late by more than twice the timeout
	})
	t.Run("a loss at a port of all nodes", func(t *testing.T) {
		n := newNear(t, true, Limits{})
		n.watch.evidence.Paths[77].Class = nodePort
		n.report(77, 12, 1)
		n.report(78, 12, 0)
		n.must(n.look(12), false, true, "1 of") // any node may have answered
	})
	t.Run("a loss behind a Service", func(t *testing.T) {
		n := newNear(t, true, Limits{})
		n.watch.evidence.Paths[77].Target.Node = ""
		n.report(77, 12, 1)
		n.report(78, 12, 0)
		n.must(n.look(12), false, true, "1 of") // any node may have answered
		for node := range 100 {
			if node != 50 && node != 77 {
				n.report(node, 16, 0)
			}
		}
		n.must(n.look(16), false, true, "1 of") // and this one has not reported since
		n.report(50, 16, 0)
		n.report(77, 20, 0)
		n.must(n.look(20), false, false, "1 of") // though most lag by 4 s
	})
}

// A node that has never reported is missing whoever is asked.
func TestConcernWithoutReport(t *testing.T) {
	paths := ring(100)
	w := NewWatch(Limits{}, Evidence{Generations: map[string]int64{}, Paths: paths})
	w.Concern(map[string]bool{"node-1": true})
	got := w.Look([]v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}})
	if got.Pass || !strings.Contains(got.Reason, "has not reported") {
		t.Errorf("%+v", got)
	}
}
