package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestFarFuture: a report with a time far from now costs no more than a wide chart.
func TestFarFuture(t *testing.T) {
	r := webtest.New(t, 3)
	done := make(chan web.Strip)
	go func() {
		feed := web.NewFeed(r.Plan)
		measure(r, feed, r.Begin.Add(10*time.Second), func(c *kube.Collected) {
			c.Results[0].Answered -= 5
			c.Results[0].Gaps = []v1alpha1.Gap{{From: r.Begin.AddDate(700, 0, 0), Millis: 50, Probes: 5}}
		})
		done <- feed.State().Strip
	}()
	select {
	case strip := <-done:
		if n := len(strip.Cells); n == 0 || strip.Width <= 0 || strip.Cells[n-1].Bin >= 600 {
			t.Errorf("%+v", strip)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the chart grows for ever")
	}
}

// TestCellGone: a viewer does not keep a cell of the chart that is there no more, such as that of a gap that is excused
// now.
func TestCellGone(t *testing.T) {
	head := web.StripHead{Width: 1000, Classes: []string{"pod-pod"}}
	before := &web.State{Strip: web.Strip{StripHead: head,
		Cells: []web.Cell{{Bin: 1, P50: 3}, {Bin: 2, Lost: 7, Gap: 70}}}}
	after := &web.State{Strip: web.Strip{StripHead: head, Cells: []web.Cell{{Bin: 1, P50: 3}, {Bin: 3, P50: 4}}}}
	if got := before.Apply(web.Diff(before, after)); text(t, got.Strip) != text(t, after.Strip) {
		t.Errorf("%s", text(t, got.Strip))
	}
}

// TestNoClasses: before the first result, the page gets a chart without classes, and not none at all.
func TestNoClasses(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) {
		b.Record(engine.State{Phase: engine.PhaseRunning}, r.Records[0])
		b.Measure(kube.Collected{}, nil, r.Begin)
	})
	delta := text(t, web.Diff(nil, feed.State()))
	if !strings.Contains(delta, `"strip": {`) || !strings.Contains(delta, `"classes": []`) {
		t.Error(delta)
	}
}
