package web

import (
	"errors"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/internal/change/kind"
)

// TestWorkloads: workloads with restarts come first, and what is not read is not 0.
func TestWorkloads(t *testing.T) {
	ctx, p := browser(t), serve(t, 5)
	p.run.Plan.Workloads = append(p.run.Plan.Workloads, kind.Workload{Kind: "Deployment", Namespace: "shop",
		Name: "idle", Treatment: "move"},
		kind.Workload{Kind: "Rollout", Namespace: "shop", Name: "pay", Treatment: "move"})
	p.play(p.run.Begin, p.after(45))
	do(t, ctx, chromedp.Navigate(p.URL()))
	until(t, ctx, has("workloadsnote", "Read at ")+" && "+has("workloads", "shop/web"))
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.getElementById('readworkloads').focus()"))
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	until(t, ctx, "document.activeElement.id === 'readworkloads' && "+
		"document.querySelector('#workloads tbody tr').textContent.includes('shop/cart') && "+
		"document.querySelectorAll('#workloads td.bad').length === 2 && "+has("workloads", "shop/idle")+" && "+
		"[...document.querySelectorAll('#workloads tbody tr')].some(row => row.textContent.includes('shop/pay') && "+
		"row.textContent.includes('not read'))")
	picture(t, ctx, "17-workloads")
	p.run.Unread = errors.New("pods is forbidden")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.getElementById('readworkloads').click()"))
	until(t, ctx, has("workloadsnote", "Pods and restarts are not known: pods is forbidden.")+" && "+
		has("workloads", "not read")+" && !document.querySelector('#workloads td.bad')")
}
