package web

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestLossyBaseline: where losses before the change were accepted, a loss is shown, but not in the colour of failure.
func TestLossyBaseline(t *testing.T) {
	ctx, p := browser(t), lossyBaseline(t)
	do(t, ctx, chromedp.Navigate(p.URL()))
	until(t, ctx, has("now", "Probes are being lost now, as they may be in the baseline: pod-pod")+" && "+
		"document.getElementById('verdict').className === 'verdict fair'")
	until(t, ctx, has("figures", "compared with the baseline")+" && "+
		"document.querySelectorAll('#figures .value.warn').length === 2 && "+
		"!document.querySelector('#figures .value.bad')")
	until(t, ctx, "document.querySelector('#striplegend i.warn') && !document.querySelector('#striplegend i.bad')")
	until(t, ctx, "document.querySelector('#classes td.warn') && !document.querySelector('#classes td.bad') && "+
		"document.querySelector('#timeline li.loss') && !document.querySelector('#timeline li.bad')")
	picture(t, ctx, "18-lossy-baseline")
}

// lossyBaseline serves a guard that accepts the losses of its baseline, and loses now.
func lossyBaseline(t *testing.T) *page {
	t.Helper()
	p := serve(t, 5)
	p.run.Plan.Guarded = &kind.Guard{LossyBefore: true}
	p.run.Losses = []webtest.Loss{{Node: "worker-003", Class: "pod-pod", From: p.after(20), Lasts: 3 * time.Second}}
	p.play(p.run.Begin, p.after(22))
	return p
}
