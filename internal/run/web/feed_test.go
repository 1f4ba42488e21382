package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// lossy is a run of five nodes in which one node's pods lose their Service for a while.
func lossy(t *testing.T) (*webtest.Run, time.Time) {
	r := webtest.New(t, 5)
	at := r.Begin.Add(30 * time.Second)
	r.Losses = []webtest.Loss{{Node: "worker-002", Class: "pod-pod", From: at, Lasts: 4 * time.Second}}
	return r, at
}

// TestDeltasCompose: a viewer that gets every delta, one that gets every fifth state, and one that comes late all have
// the whole state, at every moment of a run.
func TestDeltasCompose(t *testing.T) {
	r, _ := lossy(t)
	feed := web.NewFeed(r.Plan)
	type viewer struct {
		every int
		has   web.State
		last  *web.State
	}
	viewers := []*viewer{{every: 1}, {every: 5}}
	shown, end := 0, r.Records[len(r.Records)-1].At.Add(2*time.Second)
	for i, at := 0, r.Begin; at.Before(end); i, at = i+1, at.Add(time.Second) {
		shown = r.Show(feed, shown, at)
		if i == 20 {
			viewers = append(viewers, &viewer{every: 1})
		}
		for k, v := range viewers {
			if i%v.every != 0 {
				continue
			}
			d, state, err := feed.Next(t.Context(), v.last)
			if err != nil {
				t.Fatal(err)
			}
			v.has, v.last = v.has.Apply(d), state
			if got, want := text(t, v.has), text(t, state); got != want {
				t.Fatalf("viewer %d at %s has\n%s\nnot\n%s", k, at, got, want)
			}
			if d.Full != (v.last != nil && i == 0 || i == 20 && k == 2) {
				t.Errorf("viewer %d at %s: full is %t", k, at, d.Full)
			}
		}
	}
	last := feed.State()
	if last.Now.DoneNodes != 5 || last.Now.DoneSteps != len(r.Plan.Steps) || !last.Now.Over {
		t.Errorf("at the end: %+v", last.Now)
	}
}

// TestSentenceOfLossyBaseline: where losses before the change were accepted, a loss is said, and is no bad news by
// itself.
func TestSentenceOfLossyBaseline(t *testing.T) {
	r, lost := lossy(t)
	r.Plan.Guarded = &kind.Guard{LossyBefore: true}
	feed := web.NewFeed(r.Plan)
	r.Show(feed, r.Show(feed, 0, lost.Add(2*time.Second)), lost.Add(3*time.Second))
	state := feed.State()
	if got := state.Now.Tone + ": " + state.Now.Loss; got !=
		"fair: Probes are being lost now, as they may be in the baseline: pod-pod" {
		t.Error(got)
	}
	moments := 0
	for _, one := range state.Timeline.Moments {
		if one.Kind == "loss" {
			if moments++; one.Bad {
				t.Errorf("%+v", one)
			}
		}
	}
	var plan web.Plan
	feed.On(func(b *web.Board) { plan = b.Plan() })
	if moments == 0 || !plan.Compared {
		t.Errorf("%d losses on the timeline, %+v", moments, plan)
	}
}

// TestSentence: the page says at every moment whether anything is being lost, and calls nothing good that is not
// measured.
func TestSentence(t *testing.T) {
	r, lost := lossy(t)
	feed := web.NewFeed(r.Plan)
	if now := feed.State().Now; now.Tone != "none" || now.Loss != "Nothing is measured yet" {
		t.Errorf("before the run: %+v", now)
	}
	shown := 0
	for at := r.Begin; at.Before(lost.Add(40 * time.Second)); at = at.Add(time.Second) {
		shown = r.Show(feed, shown, at)
		now, since := feed.State().Now, at.Sub(lost)
		want := "good: Nothing is being lost"
		switch {
		case at.Sub(r.Begin) <= 4*time.Second:
			want = "none: Nothing is measured yet"
		case at.Sub(r.Begin) <= 5*time.Second: // the first results may be old
			want = "none: Nothing is measured at the moment"
		case since > 0 && since < 4*time.Second+15*time.Second:
			want = "bad: Probes are being lost now: pod-pod"
		case at.After(r.Records[len(r.Records)-1].At):
			want = "fair: The run has ended; there were losses"
		case since > 0:
			want = "fair: Nothing is being lost now, but there were losses"
		}
		if got := now.Tone + ": " + now.Loss; got != want {
			t.Errorf("%s after the loss began: %q, want %q", since, got, want)
		}
	}
	now := feed.State().Now
	if want := "The last loss ended at " + lost.Add(4*time.Second).Format(time.TimeOnly) +
		" UTC."; !slices.Contains(now.Remarks, want) {
		t.Errorf("%q is not in %q", want, now.Remarks)
	}
	// The reports stop: that is not good news.
	feed = web.NewFeed(r.Plan)
	r.Show(feed, r.Show(feed, 0, r.Begin.Add(19*time.Second)), r.Begin.Add(20*time.Second))
	stopped := r.Begin.Add(40 * time.Second)
	feed.Publish(web.About{Held: true}, stopped, nil)
	if now := feed.State().Now; now.Tone != "none" || now.Loss != "Nothing is measured at the moment" {
		t.Errorf("without reports: %+v", now)
	}
}

// TestSilentNode: a node whose results do not grow is not called good by those of the others.
func TestSilentNode(t *testing.T) {
	r := webtest.New(t, 5)
	feed := web.NewFeed(r.Plan)
	at := r.Begin.Add(20 * time.Second)
	shown := r.Show(feed, r.Show(feed, 0, at.Add(-time.Second)), at)
	later := at.Add(20 * time.Second)
	silent, evidence := r.Evidence(at), r.Evidence(later)
	for i := range evidence.Results {
		if strings.HasPrefix(evidence.Results[i].ID, "worker-003/") {
			evidence.Results[i] = silent.Results[i]
		}
	}
	feed.Publish(web.About{Held: true}, later, func(b *web.Board) { b.Measure(evidence, r.Paths, later) })
	own := 0
	for _, one := range r.Paths {
		if one.Source.Node == "worker-003" {
			own++
		}
	}
	now := feed.State().Now
	if now.Tone != "none" || now.Loss != fmt.Sprintf("Not known for %d of %d paths", own, len(r.Paths)) ||
		!slices.Contains(now.Remarks, "Paths without new results start on worker-003.") {
		t.Errorf("%d records: %+v", shown, now)
	}
}

// measure shows evidence at times of a run, after a change of what it has.
func measure(r *webtest.Run, feed *web.Feed, at time.Time, change func(*kube.Collected)) web.Now {
	evidence := r.Evidence(at)
	if change != nil {
		change(&evidence)
	}
	feed.Publish(web.About{Held: true}, at, func(b *web.Board) { b.Measure(evidence, r.Paths, at) })
	return feed.State().Now
}

// TestOnePath: one path without results is not called good by the others of its node, nor is one whose results do not
// grow.
func TestOnePath(t *testing.T) {
	r := webtest.New(t, 3)
	denied := slices.IndexFunc(r.Paths, func(one v1alpha1.Path) bool { return one.Denied })
	for name, test := range map[string]struct {
		path   int
		change func(*v1alpha1.PathResult)
		at     []int // seconds at which the page says that it does not know
		good   []int
	}{
		"no probe was sent": {0, func(p *v1alpha1.PathResult) { p.Sent, p.Answered = 0, 0 }, []int{12, 13, 40}, nil},
		"it has stopped":    {0, func(p *v1alpha1.PathResult) { p.Sent, p.Answered = 7, 7 }, []int{12, 13, 40}, nil},
		"a denied one is new": {denied, func(p *v1alpha1.PathResult) { p.Sent, p.Answered = 0, 0 },
			[]int{40}, []int{12, 13}},
		"a denied one has stopped": {denied, func(p *v1alpha1.PathResult) { p.Sent, p.Answered = 7, 0 },
			[]int{12, 13, 40}, nil},
		"it began again": {0, func(p *v1alpha1.PathResult) { p.Since = p.Last.Add(-time.Second) },
			nil, []int{12, 13, 40}},
	} {
		t.Run(name, func(t *testing.T) {
			feed := web.NewFeed(r.Plan)
			for second := 10; second <= 40; second++ {
				now := measure(r, feed, r.Begin.Add(time.Duration(second)*time.Second), func(c *kube.Collected) {
					test.change(&c.Results[test.path])
				})
				got := now.Tone + ": " + now.Loss
				if slices.Contains(test.at, second) && got != fmt.Sprintf("none: Not known for 1 of %d paths",
					len(r.Paths)) ||
					slices.Contains(test.good, second) && got != "good: Nothing is being lost" {
					t.Errorf("at %d s: %s %q", second, got, now.Remarks)
				}
			}
		})
	}
	t.Run("no results at all", func(t *testing.T) {
		feed := web.NewFeed(r.Plan)
		for second := 10; second < 14; second++ {
			measure(r, feed, r.Begin.Add(time.Duration(second)*time.Second), func(c *kube.Collected) {
				c.Results = slices.DeleteFunc(c.Results, func(p v1alpha1.PathResult) bool {
					return strings.HasPrefix(p.ID, "worker-002/")
				})
			})
		}
		if now := feed.State().Now; now.Tone != "none" || !strings.HasPrefix(now.Loss, "Not known for ") {
			t.Errorf("%+v", now)
		}
	})
}

// TestOldResults: the first results may be of hours ago, with a gap that was open then.
func TestOldResults(t *testing.T) {
	r, lost := lossy(t)
	feed := web.NewFeed(r.Plan)
	old := r.Evidence(lost.Add(2 * time.Second))
	for _, after := range []time.Duration{3 * time.Hour, 3*time.Hour + time.Minute} {
		at := lost.Add(after)
		feed.Publish(web.About{Held: true}, at, func(b *web.Board) { b.Measure(old, r.Paths, at) })
		if now := feed.State().Now; now.Tone != "none" || now.Loss != "Nothing is measured at the moment" ||
			!now.Measured.IsZero() {
			t.Errorf("%+v", now)
		}
	}
}

// TestOpenForever: a gap that was open when its agent was killed is not a loss of now, once a newer counter measures
// the path.
func TestOpenForever(t *testing.T) {
	r, lost := lossy(t)
	feed := web.NewFeed(r.Plan)
	killed := r.Evidence(lost.Add(2 * time.Second))
	r.Losses = nil
	for second := 1; second <= 60; second++ {
		at := lost.Add(time.Duration(second) * time.Second)
		now := measure(r, feed, at, func(c *kube.Collected) {
			if second < 3 {
				*c = killed
				for i := range c.Results {
					c.Results[i].Sent += int64(second) // it goes on
				}
				return
			}
			for i := range c.Results {
				c.Results[i].Since = lost.Add(2 * time.Second)
			}
			for _, one := range killed.Results {
				if one.Open != nil {
					c.Results = append(c.Results, one)
				}
			}
		})
		if want := "fair: Nothing is being lost now, but there were losses"; second > 20 &&
			now.Tone+": "+now.Loss != want {
			t.Fatalf("after %d s: %s: %s", second, now.Tone, now.Loss)
		}
		if second == 2 && now.Tone != "bad" {
			t.Errorf("while it is open: %+v", now)
		}
	}
}

// TestSlowCount: where results are counted every 20 s, a path counts as measured until they should have been counted
// twice.
func TestSlowCount(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	about := web.About{Held: true, CountEvery: 20 * time.Second}
	for second := 10; second < 110; second++ {
		at := r.Begin.Add(time.Duration(second) * time.Second)
		feed.Publish(about, at, func(b *web.Board) {
			if second%20 == 10 && second < 60 {
				b.Measure(r.Evidence(at), r.Paths, at)
			}
		})
		want := "good"
		if second < 30 || second >= 90 {
			want = "none"
		}
		if now := feed.State().Now; now.Tone != want {
			t.Errorf("at %d s: %s: %s", second, now.Tone, now.Loss)
		}
	}
}

// TestSeldomReports: in a cluster whose nodes report every 20 s, paths that lose nothing count as measured all the
// time, and those of a node that says nothing for half as long again do not.
func TestSeldomReports(t *testing.T) {
	r := webtest.New(t, 3)
	for len(r.Plan.Cluster.Nodes) < 500 {
		r.Plan.Cluster.Nodes = append(r.Plan.Cluster.Nodes, r.Plan.Cluster.Nodes[0])
	}
	feed := web.NewFeed(r.Plan)
	for second := 10; second < 110; second++ {
		at := r.Begin.Add(time.Duration(second) * time.Second)
		feed.Publish(web.About{Held: true}, at, func(b *web.Board) {
			if second%20 == 10 && second < 60 {
				b.Measure(r.Evidence(at), r.Paths, at)
			}
		})
		want := "good"
		if second < 30 || second >= 80 {
			want = "none"
		}
		if now := feed.State().Now; now.Tone != want {
			t.Errorf("at %d s: %s: %s", second, now.Tone, now.Loss)
		}
	}
}

// TestDenied: answers on a denied path are called by their name.
func TestDenied(t *testing.T) {
	r := webtest.New(t, 3)
	at := r.Begin.Add(20 * time.Second)
	for _, one := range r.Paths {
		if one.Denied {
			r.Losses = []webtest.Loss{{Node: one.Source.Node, Class: one.Class, From: at, Lasts: time.Minute}}
		}
	}
	if r.Losses[0].Class != path.ClassDenied {
		t.Fatal("denied paths have another class")
	}
	feed := web.NewFeed(r.Plan)
	r.Show(feed, r.Show(feed, 0, at), at.Add(2*time.Second))
	if now := feed.State().Now; now.Tone != "bad" ||
		!strings.HasPrefix(now.Loss, "Traffic that policy denies gets through now: ") || now.Seen.Leaked == 0 {
		t.Errorf("%+v", now)
	}
}

// TestStale: while the cluster cannot be read, the page keeps what it knew, and says since when.
func TestStale(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	at := r.Begin.Add(20 * time.Second)
	r.Show(feed, r.Show(feed, 0, at.Add(-time.Second)), at)
	for i := range 3 {
		feed.Stale("connection refused", at.Add(time.Duration(i+1)*time.Second))
	}
	now := feed.State().Now
	if !now.Since.Equal(at) || now.Why != "connection refused" || now.Loss != "Nothing is being lost" {
		t.Errorf("%+v", now)
	}
	feed.Publish(web.About{Held: true}, at.Add(5*time.Second), nil)
	if now := feed.State().Now; !now.Since.IsZero() || now.Why != "" {
		t.Errorf("after it came back: %+v", now)
	}
}

// TestWaits: a viewer that has everything waits, and ends with its context.
func TestWaits(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	_, state, err := feed.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := feed.Next(ctx, state); err == nil {
		t.Error("there was nothing to send")
	}
}

// TestLongRun: however long a run lasts, its strip chart has a bounded number of bins.
func TestLongRun(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	for hour := range 30 {
		at := r.Begin.Add(time.Duration(hour)*time.Hour + 10*time.Second)
		feed.Publish(web.About{Held: true}, at, func(b *web.Board) {
			if hour == 0 {
				state, err := engine.Replay(r.Records[:1])
				if err != nil {
					t.Fatal(err)
				}
				b.Record(state, r.Records[:1]...)
			}
			b.Measure(r.Evidence(at), r.Paths, at)
		})
	}
	strip := feed.State().Strip
	for _, cell := range strip.Cells {
		if cell.Bin < 0 || cell.Bin >= 600 {
			t.Errorf("bin %d of class %d", cell.Bin, cell.Class)
		}
	}
	if strip.Width != 256_000 {
		t.Errorf("a bin is %d ms wide", strip.Width)
	}
}

const mostNodes = 5000

// What a viewer may be sent at 5,000 nodes, in bytes: once, and for a second of the run.
const (
	mostAtFirst = 1_500_000
	mostASecond = 12_000
)

// TestPayload: at 5,000 nodes a viewer gets the whole once, and then only what changes.
func TestPayload(t *testing.T) {
	if testing.Short() {
		t.Skip("5,000 nodes: not with -short")
	}
	r := webtest.New(t, mostNodes)
	feed := web.NewFeed(r.Plan)
	var whole web.Plan
	feed.On(func(b *web.Board) { whole = b.Plan() })
	at := r.Records[len(r.Records)/2].At
	began := time.Now()
	shown := r.Show(feed, 0, at)
	t.Logf("%d paths, %d records, the first state takes %s",
		len(r.Paths), shown, time.Since(began).Round(time.Millisecond))
	d, last, err := feed.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := len(text(t, d)) // indented: more than what is sent
	data, _ := json.Marshal(d)
	plan, _ := json.Marshal(whole)
	t.Logf("first: %d bytes, and %d of the plan (indented %d)", len(data), len(plan), first)
	if len(data) > mostAtFirst || len(plan) > 2*mostAtFirst {
		t.Errorf("the first state has %d bytes, the plan %d", len(data), len(plan))
	}
	r.Show(feed, shown, at.Add(time.Second))
	if d, _, err = feed.Next(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	data, _ = json.Marshal(d)
	t.Logf("a second later: %d bytes, %d nodes, %d steps, %d lines, %d cells of the chart",
		len(data), len(d.Nodes), len(d.Steps), len(d.Lines), len(d.Cells))
	if len(data) > mostASecond {
		t.Errorf("a second of the run has %d bytes", len(data))
	}
}

func BenchmarkDelta(b *testing.B) {
	r := webtest.New(b, mostNodes)
	feed := web.NewFeed(r.Plan)
	at := r.Records[len(r.Records)/2].At
	shown := r.Show(feed, 0, at)
	before := feed.State()
	r.Show(feed, shown, at.Add(time.Second))
	after := feed.State()
	b.ResetTimer()
	for b.Loop() {
		if data, err := json.Marshal(web.Diff(before, after)); err != nil || len(data) == 0 {
			b.Fatal(err)
		} else {
			b.ReportMetric(float64(len(data)), "bytes/delta")
		}
	}
}
