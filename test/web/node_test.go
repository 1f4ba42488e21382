package web

import (
	"errors"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestNode: a click on a node's cell, or Enter, shows its pods, its paths, the tasks of its agent and its records.
func TestNode(t *testing.T) {
	ctx, p := browser(t), serve(t, 5)
	p.run.Losses = []webtest.Loss{{Node: "worker-002", Class: "pod-pod", From: p.after(24), Lasts: time.Second}}
	do(t, ctx, chromedp.Navigate(p.URL()))
	p.play(p.run.Begin, p.after(45))
	until(t, ctx, "document.querySelectorAll('#waves button').length === 5 && "+
		"document.querySelectorAll('#waves .done').length > 1")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('#waves button')[1].click()"))
	shown := "document.getElementById('dialog').open && " + has("dialoghead", "worker-002") + " && " +
		has("detail", "shop/web-worker-002") + " && " + has("detail", "evicted: a PodDisruptionBudget delayed it")
	until(t, ctx, shown)
	until(t, ctx, has("detail", "restarted, 3 in all")+" && "+has("detail", "hostNetwork: it does not move")+" && "+
		has("detail", "worker-002/new>")+" && [...document.querySelectorAll('#detail tr')].some(row => "+
		"row.textContent.includes('shop/web-worker-002') && row.textContent.includes('not known'))")
	until(t, ctx, "Array.from(document.querySelectorAll('#detail table')).every(function (one) { "+
		"return one.rows.length > 1; }) && document.querySelectorAll('#detail table').length === 4")
	picture(t, ctx, "15-node")
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	until(t, ctx, "!document.getElementById('dialog').open")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('#waves button')[0].focus()"))
	do(t, ctx, chromedp.KeyEvent(kb.ArrowRight))
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	until(t, ctx, shown)
	do(t, ctx, chromedp.KeyEvent(kb.Tab)) // from Close to the tables, which scroll
	until(t, ctx, "document.activeElement.getAttribute('aria-label') === 'Pods of worker-002'")
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	p.run.Unread = errors.New("pods is forbidden")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('#waves button')[1].click()"))
	until(t, ctx, has("detail", "Theseus does not know which pods run on it now, nor which have restarted: pods is "+
		"forbidden.")+
		" && "+has("detail", "not known")+" && "+has("detail", "shop/web-worker-002"))
}
