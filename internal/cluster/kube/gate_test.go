package kube

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// onePath stores a plan of one path, a to b.
func (w *world) onePath() {
	w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.ProbePlanSpec{
		Generation: 1,
		Paths:      []v1alpha1.Path{{ID: "a/host>b/host", Source: v1alpha1.Endpoint{Node: "a"}, IntervalMillis: 100}}}})
}

func TestGate(t *testing.T) {
	for _, test := range []struct {
		name   string
		report func(w *world, n int) // in the n-th sleep, of 250 ms
		pass   bool
		reason string
		within time.Duration
	}{
		{"fresh evidence", func(w *world, n int) { w.report(int64(n+1), int64(5*n+5), int64(5*n+5), w.now) },
			true, "", 4 * time.Second},
		{"silence", func(*world, int) {}, false, "a has", 100 * time.Second},
		{"a loss", func(w *world, n int) {
			answered := int64(5*n + 5)
			if n >= 2 {
				answered--
			}
			w.report(int64(n+1), int64(5*n+5), answered, w.now)
		}, false, "lost", 1100 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.onePath()
			w.report(1, 5, 5, w.now)
			w.slept = func(n int) { test.report(w, n) }
			gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}
			begun := w.Now()
			verdict, err := gate.Ask(context.Background(),
				step.Gate{Title: "t", Bake: step.Duration(2 * time.Second)}, goOn)
			took := w.Now().Sub(begun)
			if err != nil || verdict.Pass != test.pass || !strings.Contains(verdict.Reason, test.reason) ||
				took > test.within {
				t.Errorf("after %s: %+v, %v", took, verdict, err)
			}
			if len(gate.Since) != 1 {
				t.Error("the next gate does not count from here on")
			}
		})
	}
}

// A gate does not pass while it is in doubt whether the change is at fault: losses that do not come again pass, later.
func TestGateWatchesOn(t *testing.T) {
	w := newWorld(t, nil)
	w.onePath()
	seq, lost := int64(1), int64(0)
	w.report(seq, 5, 5, w.now)
	from := int64(math.MaxInt64)
	w.slept = func(int) {
		if seq++; seq >= from && lost < 4 {
			lost++
		}
		w.report(seq, 5*seq, 5*seq-lost, w.now)
	}
	gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}
	ask := func(changed ...string) time.Duration {
		t.Helper()
		begun := w.Now()
		verdict, err := gate.Ask(context.Background(),
			step.Gate{Title: "t", Bake: step.Duration(4 * time.Second), Changed: changed}, goOn)
		if err != nil || !verdict.Pass {
			t.Fatalf("%+v, %v", verdict, err)
		}
		return w.Now().Sub(begun)
	}
	for range 10 {
		ask()
	}
	from = seq + 10 // towards its end
	if took := ask("a"); lost == 0 || took <= 4*time.Second || took > time.Minute {
		t.Errorf("%d probes were lost, and it passed after %s", lost, took)
	}
}

// A gate that the comparison stops has counts, also while a report is missing.
func TestGateStopsWhileItWaits(t *testing.T) {
	w := newWorld(t, nil)
	nodes, slow, silent := []string{"a", "b", "c", "d"}, "", ""
	reports := map[string]*v1alpha1.ProbeReport{}
	for i, node := range nodes {
		id, next := node+"/host>"+nodes[(i+1)%len(nodes)]+"/host", nodes[(i+1)%len(nodes)]
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: v1alpha1.ProbePlanSpec{Generation: 1, Paths: []v1alpha1.Path{
				{ID: id, Source: v1alpha1.Endpoint{Node: node}, Target: v1alpha1.Endpoint{Node: next},
					IntervalMillis: 100}}}})
		reports[node] = &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: v1alpha1.ProbeReportStatus{Generation: 1,
				Paths: []v1alpha1.PathResult{{ID: id, Since: w.now, RTTCounts: make([]int64, 20)}}}}
	}
	w.slept = func(int) {
		for node, report := range reports {
			if node == silent {
				continue
			}
			report.Status.Seq, report.Status.At = report.Status.Seq+1, w.now
			result, takes := &report.Status.Paths[0], 9
			if node == slow {
				takes = 19
			}
			result.Sent, result.Answered, result.Last = result.Sent+5, result.Answered+5, w.now
			result.RTTCounts[takes] += 5
			w.put("ProbeReport", report)
		}
	}
	w.slept(0)
	gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}
	if verdict, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(25 * time.Second)}, goOn); err != nil ||
		!verdict.Pass {
		t.Fatalf("%+v, %v", verdict, err)
	}
	slow, silent = "a", "d"
	verdict, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(time.Minute), Changed: []string{"a"}}, goOn)
	if err != nil || verdict.Pass || !strings.Contains(verdict.Reason, "stop, because of a") || verdict.Sent == 0 {
		t.Errorf("%+v, %v", verdict, err)
	}
}

// A gate that is to compare nodes and is not told which does not pass.
func TestGateComparesKnownNodes(t *testing.T) {
	w := newWorld(t, nil)
	verdict, err := (&Gate{Actor: w.Actor}).Ask(t.Context(), step.Gate{Compare: true}, goOn)
	if err != nil || verdict.Pass || !strings.Contains(verdict.Reason, "the nodes with the change are missing") {
		t.Errorf("%+v, %v", verdict, err)
	}
}

// What a comparison needs is only kept if a gate of the plan compares, or this one does.
func TestGateLearns(t *testing.T) {
	for _, test := range []struct {
		none    bool
		changed []string
		learns  bool
	}{{false, nil, true}, {true, nil, false}, {true, []string{"a"}, true}} {
		w := newWorld(t, nil)
		w.onePath()
		w.report(1, 5, 5, w.now)
		w.slept = func(n int) { w.report(int64(n+1), int64(5*n+5), int64(5*n+5), w.now) }
		gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}, NoneCompares: test.none}
		if _, err := gate.Ask(t.Context(), step.Gate{Bake: step.Duration(2 * time.Second), Changed: test.changed},
			goOn); err != nil {
			t.Fatal(err)
		}
		if learns := !reflect.DeepEqual(gate.canary, loss.Canary{}); learns != test.learns {
			t.Errorf("%+v: it learns: %v", test, learns)
		}
	}
}

// Losses between two gates count, the caller; those that a person has seen do not.
func TestGateCountsFromTheOneBefore(t *testing.T) {
	for name, seen := range map[string]bool{"not seen": false, "seen by a person": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.onePath()
			w.report(1, 100, 90, w.now)
			w.slept = func(n int) { w.report(int64(n+1), int64(5*n+100), int64(5*n+90), w.now) }
			gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}
			if seen {
				gate.Since = nil
			}
			verdict, err := gate.Ask(context.Background(), step.Gate{Bake: step.Duration(time.Second)}, goOn)
			if err != nil || verdict.Pass != seen {
				t.Errorf("%+v, %v", verdict, err)
			}
		})
	}
}

func TestGateWithoutAPlan(t *testing.T) {
	w := newWorld(t, nil)
	verdict, err := (&Gate{Actor: w.Actor}).Ask(context.Background(), step.Gate{}, goOn)
	if err != nil || verdict.Pass || verdict.Reason != "no path is measured: there is no ProbePlan" {
		t.Errorf("%+v, %v", verdict, err)
	}
}

func TestGateInterrupted(t *testing.T) {
	w := newWorld(t, nil)
	w.onePath()
	_, err := (&Gate{Actor: w.Actor}).Ask(w.end(2), step.Gate{}, goOn)
	wantError(t, err, "context canceled")
}

// What is asked of the run ends a bake, however long that is.
func TestGateLeft(t *testing.T) {
	w := newWorld(t, nil)
	w.onePath()
	w.report(1, 5, 5, w.now)
	w.slept = func(n int) { w.report(int64(n+1), int64(5*n+5), int64(5*n+5), w.now) }
	looks, paused := 0, errors.New("paused")
	_, err := (&Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}).Ask(context.Background(),
		step.Gate{Bake: step.Duration(time.Hour)}, func(context.Context) error {
			if looks++; looks == 3 {
				return paused
			}
			return nil
		})
	if !errors.Is(err, paused) || looks != 3 {
		t.Errorf("%v after %d looks", err, looks)
	}
}

// TestGateLook: a look does not wait, counts since the gate before, and tells which sources report.
func TestGateLook(t *testing.T) {
	w := newWorld(t, nil)
	w.onePath()
	w.report(1, 100, 100, w.now)
	gate := &Gate{Actor: w.Actor}
	if glance, err := gate.Look(context.Background(), 0); err != nil || glance.Proven ||
		glance.Reports["a"] != 1 || glance.Every <= 0 {
		t.Errorf("at first: %+v, %v", glance, err)
	}
	w.report(2, 120, 117, w.now)
	begun := w.Now()
	if glance, err := gate.Look(context.Background(), 0); err != nil || !glance.Proven || glance.Lost != 3 ||
		glance.Reports["a"] != 2 || w.Now() != begun {
		t.Errorf("after losses: %+v, %v", glance, err)
	}
	if glance, err := gate.Look(context.Background(), 3); err != nil || glance.Proven {
		t.Errorf("with as many allowed: %+v, %v", glance, err)
	}
}

// TestGateContrasts: the gate of a baseline that may lose probes says what it lost, and that of the result compares.
func TestGateContrasts(t *testing.T) {
	for _, test := range []struct {
		lost             int64 // of 25 probes in 250 ms
		proven, harmless bool
	}{{0, false, true}, {10, true, false}} {
		w := newWorld(t, nil)
		w.onePath()
		w.report(1, 25, 25, w.now)
		seq, sent, answered, lost := int64(1), int64(25), int64(25), int64(0)
		w.slept = func(int) {
			seq++
			sent += 25
			if answered += 25 - lost; seq%8 == 0 {
				answered--
			}
			w.report(seq, sent, answered, w.now)
		}
		gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}, Contrast: loss.NewContrast()}
		ask := func(one step.Gate) engine.Verdict {
			t.Helper()
			one.MaxLost, one.Bake = 1<<40, step.Duration(30*time.Second)
			verdict, err := gate.Ask(context.Background(), one, goOn)
			if err != nil || !verdict.Pass {
				t.Fatalf("%+v, %v", verdict, err)
			}
			return verdict
		}
		if before := ask(step.Gate{Baseline: true}); before.Lossy == nil || !before.Lossy.Lost() ||
			before.Against != nil {
			t.Errorf("the baseline: %+v", before)
		}
		if lost = test.lost; lost == 0 { // not even the one in each two seconds
			w.slept = func(int) {
				seq, sent, answered = seq+1, sent+25, answered+25
				w.report(seq, sent, answered, w.now)
			}
		}
		if after := ask(step.Gate{Result: true}); after.Against == nil || after.Against.Proven != test.proven ||
			after.Against.Harmless != test.harmless || after.Lossy != nil {
			t.Errorf("%d lost: %+v", test.lost, after.Against)
		}
	}
}

// TestGateContrastsLast: what the last reports of a gate lose is compared, in the baseline and in the result. What a
// node loses that is about to leave is no part of the baseline.
func TestGateContrastsLast(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		w := newWorld(t, nil)
		w.onePath()
		w.report(1, 25, 25, w.now)
		seq, sent, answered := int64(1), int64(25), int64(25)
		begun, gaps := w.now, []v1alpha1.Gap{}
		w.slept = func(int) {
			seq, sent, answered = seq+1, sent+25, answered+25
			if w.now.Sub(begun) >= 10500*time.Millisecond {
				answered, gaps = answered-20, append(gaps, v1alpha1.Gap{From: w.now, Probes: 20})
			}
			w.put("ProbeReport", &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Status: v1alpha1.ProbeReportStatus{Generation: 1, Seq: seq, At: w.now, Paths: []v1alpha1.PathResult{{
					ID: "a/host>b/host", Sent: sent, Answered: answered, Since: time.Unix(1_800_000_000, 0).UTC(),
					Last: w.now, Gaps: gaps}}}})
		}
		gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}, Contrast: loss.NewContrast()}
		if leaves {
			gate.Leaves = func() (left, away map[string]time.Time) { return nil, map[string]time.Time{"a": begun} }
		}
		for _, one := range []step.Gate{{Baseline: true}, {Result: true}} {
			one.MaxLost, one.Bake, begun = 1<<40, step.Duration(10500*time.Millisecond), w.now
			verdict, err := gate.Ask(t.Context(), one, goOn)
			switch {
			case err != nil || verdict.Lost == 0:
				t.Errorf("%+v, %v", verdict, err)
			case one.Baseline && !strings.HasPrefix(verdict.Lossy.String(), "20 of ") != leaves:
				t.Errorf("the baseline: %s", verdict.Lossy)
			case one.Result && !strings.Contains(verdict.Against.Why, "; 20 of "):
				t.Errorf("the result: %+v", verdict.Against)
			}
		}
	}
}

func goOn(context.Context) error { return nil }

// The result of a plan is no pass if a path of its baseline is no longer measured: what that path has lost is not
// known.
func TestGateMissesAPath(t *testing.T) {
	for id, sent := range map[string]int64{"a/host>b/host": 5, "a/host>c/host": 5, "a/host>d/host": 0} {
		pass := id == "a/host>b/host" || sent == 0 // a path that never answered was left out
		w := newWorld(t, nil)
		w.onePath()
		w.report(1, 5, 5, w.now)
		w.slept = func(n int) { w.report(int64(n+1), int64(5*n+5), int64(5*n+5), w.now) }
		gate := &Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: v1alpha1.ProbeReportStatus{Paths: []v1alpha1.PathResult{{ID: id, Sent: sent, Answered: sent,
				Since: time.Unix(1_800_000_000, 0).UTC(), Last: w.now}}}}}}
		verdict, err := gate.Ask(t.Context(), step.Gate{Result: true, Bake: step.Duration(time.Second)}, goOn)
		if err != nil || verdict.Pass != pass ||
			strings.Contains(verdict.Reason, "1 path of the baseline are no longer measured, such as "+id) == pass {
			t.Errorf("%s: %+v, %v", id, verdict, err)
		}
	}
}

// TestGateLeaves: what the paths of a node lose since it began to leave counts if the node stays, and not before the
// result is asked for. A node that has left need not report.
func TestGateLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		leaving, left         bool
		proven, reports, pass bool
	}{
		"stays":   {false, false, true, true, false},
		"leaving": {true, false, false, true, false},
		"left":    {false, true, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			for from, to := range map[string]string{"a": "b", "b": "a"} {
				one := v1alpha1.Path{ID: from + "/host>" + to + "/host", Source: v1alpha1.Endpoint{Node: from},
					Target: v1alpha1.Endpoint{Node: to}, IntervalMillis: 100}
				w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: from},
					Spec: v1alpha1.ProbePlanSpec{Generation: 1, Paths: []v1alpha1.Path{one}}})
			}
			w.report(1, 100, 100, w.now)
			gone := map[string]time.Time{"b": w.now}
			gate := &Gate{Actor: w.Actor, Leaves: func() (left, away map[string]time.Time) {
				if test.left {
					left = gone
				}
				if test.left || test.leaving {
					away = gone
				}
				return left, away
			}}
			if _, err := gate.Look(t.Context(), 0); err != nil { // from here on
				t.Fatal(err)
			}
			lost := func(n int) { // a loses what it sends, and b reports no more
				w.put("ProbeReport", &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"},
					Status: v1alpha1.ProbeReportStatus{Generation: 1, Seq: int64(2 + n), At: w.now,
						Paths: []v1alpha1.PathResult{{ID: "a/host>b/host", Sent: int64(120 + n), Answered: 100,
							Since: time.Unix(1_800_000_000, 0).UTC(), Last: w.now, Open: &v1alpha1.Gap{
								From: gone["b"].Add(time.Second), Probes: int64(20 + n), Millis: 2000}}}}})
			}
			lost(0)
			glance, err := gate.Look(t.Context(), 0)
			_, reports := glance.Reports["b"]
			if err != nil || glance.Proven != test.proven || reports != test.reports {
				t.Errorf("%+v, %v", glance, err)
			}
			w.slept = lost
			verdict, err := gate.Ask(t.Context(), step.Gate{Result: true, Bake: step.Duration(time.Second)}, goOn)
			if err != nil || verdict.Pass != test.pass || (verdict.Lost == 0) != test.pass {
				t.Errorf("%+v, %v", verdict, err)
			}
		})
	}
}

// TestGateAwaitsReports: a report is late only when its node should have written it, and twice the probes' timeout more
// are over.
func TestGateAwaitsReports(t *testing.T) {
	w := newWorld(t, nil)
	for from, to := range map[string]string{"a": "b", "b": "a"} {
		one := v1alpha1.Path{ID: from + "/host>" + to + "/host", Source: v1alpha1.Endpoint{Node: from},
			Target: v1alpha1.Endpoint{Node: to}, IntervalMillis: 100}
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: from},
			Spec: v1alpha1.ProbePlanSpec{Generation: 1, Paths: []v1alpha1.Path{one}}})
	}
	w.report(1, 100, 100, w.now)
	gate := &Gate{Actor: w.Actor}
	if _, err := gate.Look(t.Context(), 0); err != nil { // from here on
		t.Fatal(err)
	}
	w.now = w.now.Add(10 * time.Second)
	now := w.now
	says := func(node, id string, answered int64, at time.Time, gaps ...v1alpha1.Gap) {
		w.put("ProbeReport", &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: v1alpha1.ProbeReportStatus{Generation: 1, Seq: 9, At: at, Paths: []v1alpha1.PathResult{{
				ID: id, Sent: 200, Answered: answered, Since: time.Unix(1_800_000_000, 0).UTC(), Last: at,
				Gaps: gaps}}}})
	}
	says("a", "a/host>b/host", 190, now, v1alpha1.Gap{From: now.Add(-3 * time.Second), Millis: 1000, Probes: 10})
	says("b", "b/host>a/host", 200, now.Add(-4500*time.Millisecond)) // within a second and twice two seconds
	since := gate.Since
	if glance, err := gate.Look(t.Context(), 0); err != nil || glance.Proven {
		t.Errorf("while b may explain it: %+v, %v", glance, err)
	}
	gate.Since = since
	w.slept = func(int) { says("b", "b/host>a/host", 200, now) }
	verdict, err := gate.Ask(t.Context(), step.Gate{}, goOn)
	if err != nil || verdict.Pass || verdict.Lost != 10 || w.sleeps != 1 {
		t.Errorf("%+v, %v, after %d looks", verdict, err, w.sleeps+1)
	}
	gate.Since = since
	if glance, err := gate.Look(t.Context(), 0); err != nil || !glance.Proven {
		t.Errorf("b has not explained it: %+v, %v", glance, err)
	}
}
