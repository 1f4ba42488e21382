package web

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestTimeline: what happens comes on top of the timeline, a loss has its cause and what happened in the cluster next
// to it, and the keyboard reaches all of it.
func TestTimeline(t *testing.T) {
	ctx, p := browser(t), serve(t, 12)
	p.run.Losses = []webtest.Loss{{Node: "worker-003", Class: "pod-pod", From: p.after(40), Lasts: 3 * time.Second}}
	p.run.Events = []observe.Event{{At: p.after(39), Object: "node worker-003", What: "is not Ready: <b>gone</b>"}}
	do(t, ctx, chromedp.Navigate(p.URL()))
	until(t, ctx, has("timenote", "events of the cluster are not shown: only guards store them"))
	p.play(p.run.Begin, p.after(38))
	until(t, ctx, has("timeline", "started by ada@bastion-1")+" && "+has("timeline", "done after")+" && !"+
		has("timeline", "loss"))
	p.play(p.after(39), p.after(50))
	until(t, ctx, has("timeline", "lost probes, longest 3 s from worker-003/")+" && "+
		has("timeline", "began during [")+" && "+has("timeline", "is not Ready: <b>gone</b>")) // as text
	until(t, ctx, `(function () {
		var all = Array.from(document.querySelectorAll("#timeline li"));
		var of = function (text) { return all.findIndex(function (one) { return one.textContent.includes(text); }); };
		var at = function (i) { return Date.parse(all[i].querySelector("time").dateTime); };
		var loss = of("lost probes"), cause = of("is not Ready");
		return all[loss].className === "bad" && cause > loss && cause < loss + 4 &&
			all.every(function (one, i) { return i === 0 || at(i) <= at(i - 1); });
	})()`)
	until(t, ctx, has("timenote", "events of the cluster are known until 02:10:50 UTC"))
	picture(t, ctx, "16-timeline")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.getElementById('timeline').focus()"))
	do(t, ctx, chromedp.KeyEvent(kb.End))
	until(t, ctx, "document.activeElement.id === 'timeline' && document.getElementById('timeline').scrollTop > 0")
	lines := get(t, ctx, chromedp.Evaluate[int]("document.querySelectorAll('#timeline li').length"))
	do(t, ctx, chromedp.Reload())
	until(t, ctx, "document.querySelectorAll('#timeline li').length > 0")
	if now := get(t, ctx, chromedp.Evaluate[int]("document.querySelectorAll('#timeline li').length")); now != lines {
		t.Errorf("%d lines, and %d after a reload", lines, now)
	}
}
