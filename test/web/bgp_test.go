package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestBGP: the sessions of a cluster with route reflectors are seen to fail and to come back, without a mouse, and as a
// table. What is not known is not drawn as up.
func TestBGP(t *testing.T) {
	ctx, p := browser(t), serve(t, 12)
	do(t, ctx, chromedp.Navigate(p.URL()))
	p.play(p.run.Begin, p.after(2))
	until(t, ctx, "document.getElementById('bgpbox').hidden") // nothing asks for sessions
	p.run.Reflect(t, 3)
	p.run.Lost = []webtest.Session{{Node: "worker-007", Peer: "worker-002", From: p.after(20), Lasts: 10 * time.Second}}
	p.run.Silent = map[string]time.Time{}
	p.play(p.after(3), p.after(5))
	until(t, ctx, has("bgp", "No session is known")+" && !document.querySelector('#bgp .up') && "+
		"document.querySelectorAll('#bgp g .sign').length === 13")
	p.play(p.after(6), p.after(15))
	until(t, ctx, has("bgp", "All sessions are up: 31 of 31 sessions up")+
		" && document.querySelectorAll('#bgp rect.mark.up').length === 3 && !document.querySelector('#bgp .edge.down')")
	picture(t, ctx, "11-bgp")
	p.play(p.after(16), p.after(22))
	until(t, ctx, has("bgp", "worker-002 and worker-007: the session is down")+
		" && document.querySelectorAll('#bgp .edge.down').length === 1 && "+
		"document.querySelector('#bgp text.down').textContent === '× down' && "+
		"document.querySelector('#bgp .verdict').className === 'verdict bad'")
	until(t, ctx, "getComputedStyle(document.querySelector('#bgp .edge.down')).stroke === "+
		"getComputedStyle(document.querySelector('#bgp .bad-text')).color") // the style sheet has its say
	picture(t, ctx, "12-bgp-down")

	press := func(keys string) { t.Helper(); do(t, ctx, chromedp.KeyEvent(keys)) }
	focused := func(want string) {
		t.Helper()
		until(t, ctx, fmt.Sprintf("(document.activeElement.getAttribute('aria-label') || "+
			"document.activeElement.textContent).startsWith(%q)", want))
	}
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('#waves button')[0].focus()"))
	for range 6 { // past the timeline and the workloads
		if press(kb.Tab); get(t, ctx, chromedp.Evaluate[bool]("document.activeElement.tagName === 'g'")) {
			break
		}
	}
	focused("worker-001, route reflector: 12 of 12 sessions up")
	press(kb.ArrowRight)
	focused("worker-002, route reflector: 10 of 11 sessions up, 1 down")
	press(kb.Enter)
	until(t, ctx, "document.getElementById('dialog').open && "+has("dialoghead", "worker-002")+" && "+
		has("detail", "worker-007: 0 of 1 session up, 1 down"))
	p.play(p.after(23), p.after(31)) // the session comes back meanwhile
	until(t, ctx, has("bgp", "All sessions are up"))
	press(kb.Escape)
	focused("worker-002, route reflector: 11 of 11 sessions up")
	press(kb.End)
	focused("192.0.2.254, AS 64999, router outside of the cluster: 1 of 1 session up")
	press(kb.Tab)
	focused("The graph as a table")
	press(kb.Enter)
	until(t, ctx, "document.querySelector('#bgp details').open && "+
		"document.querySelectorAll('#bgp tbody tr').length === 13")

	for _, name := range p.run.Plan.Waves[0].Nodes { // the first reflector
		p.run.Silent[name] = p.after(31)
	}
	p.play(p.after(32), p.after(50))
	until(t, ctx, has("bgp", "Not all sessions are known: 30 of 31 sessions up, 1 not known")+
		" && document.querySelectorAll('#bgp .edge.unknown').length === 1 && "+
		"document.querySelector('#bgp details').open")
	p.feed.Stale("connection refused", p.after(51))
	until(t, ctx, "document.getElementById('bgp').className === 'old'")
	picture(t, ctx, "13-bgp-stale")
}

// TestBGPOfManyNodes: 5,000 nodes are drawn as three reflectors and one group.
func TestBGPOfManyNodes(t *testing.T) {
	ctx, p := browser(t), serve(t, 12)
	p.run.Reflect(t, 3)
	webtest.Grow(p.run.BGP, 5000)
	do(t, ctx, chromedp.Navigate(p.URL()))
	p.run.Lost = []webtest.Session{{Node: "more-0100", Peer: "worker-001", From: p.after(5), Lasts: time.Hour}}
	p.play(p.run.Begin, p.after(9))
	until(t, ctx, has("bgp", "1 down")+" && "+has("bgp", "4997 nodes")+
		" && document.querySelectorAll('#bgp g[role=button]').length === 5 && "+
		has("bgp", "more-0100 and worker-001: the session is down")+" && "+has("bgp", "× 1 of 4997 down"))
	picture(t, ctx, "14-bgp-5000")
}
