package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestAxe: axe-core finds no violation of WCAG's rules, nor of its own, in light and in dark.
func TestAxe(t *testing.T) {
	file := os.Getenv("THESEUS_AXE")
	if file == "" {
		t.Skip("NOT TESTED: axe-core on the page; THESEUS_AXE names its axe.min.js, which axe.sh fetches")
	}
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, p := browser(t), serve(t, 5)
	p.run.Reflect(t, 2)
	p.run.Lost = []webtest.Session{{Node: "worker-004", Peer: "worker-001", From: p.after(20), Lasts: time.Hour}}
	p.run.Silent = map[string]time.Time{"worker-001": p.after(5), "worker-003": p.after(5)}
	judged := func(state string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			get(t, ctx, func(ctx context.Context, tab *chromedp.Target) (cdp.Empty, error) {
				media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
				return cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media)
			})
			if !get(t, ctx, chromedp.Evaluate[bool](string(script)+`;window.found = null; axe.run().then(function (r) {
				window.found = JSON.stringify(r.violations.map(function (v) { return v.id + ": " + v.help + ": " + v.nodes.map(function (n) { return n.html.slice(0, 120); }).slice(0, 6).join(" | "); }));
			}, function (e) { window.found = JSON.stringify([String(e)]); }); true`)) {
				t.Fatal("axe-core does not start")
			}
			until(t, ctx, "window.found !== null")
			var found []string
			if err := json.Unmarshal([]byte(get(t, ctx, chromedp.Evaluate[string]("window.found"))),
				&found); err != nil {
				t.Fatal(err)
			}
			for _, one := range found {
				t.Errorf("%s, %s: %s", state, scheme, one)
			}
		}
	}
	do(t, ctx, chromedp.Navigate(p.URL()))
	until(t, ctx, has("now", "Nothing is measured yet"))
	judged("before")
	p.play(p.run.Begin, p.after(30))
	until(t, ctx, has("now", "Nothing is being lost")+" && document.querySelectorAll('#waves button').length === 5")
	until(t, ctx, "document.querySelectorAll('#bgp .edge.down').length === 1 && "+
		"document.querySelectorAll('#bgp .mark.idle').length > 0")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelector('#bgp details').open = true"))
	judged("running")
	do(t, ctx, chromedp.Evaluate[chromedp.Void](
		"document.querySelector('#bgp g').dispatchEvent(new MouseEvent('click'))"))
	until(t, ctx, "document.getElementById('dialog').open")
	judged("a node's sessions")
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('#waves button')[1].click()"))
	until(t, ctx, has("detail", "shop/logs-worker-002")+" && document.querySelectorAll('#detail table').length === 4")
	judged("a node")
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('#buttons button')[2].click()"))
	until(t, ctx, "document.activeElement.id === 'word'")
	judged("rollback")
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	p.feed.Stale("connection refused", p.after(31))
	until(t, ctx, "!document.getElementById('stale').hidden")
	judged("stale")
	accepted := lossyBaseline(t)
	do(t, ctx, chromedp.Navigate(accepted.URL()))
	until(t, ctx, has("now", "as they may be in the baseline"))
	judged("lossy baseline")

	older := *p.run.Plan
	older.Name = "an-older-one"
	gate := &people{knows: map[string]string{"good": "ann"}, feeds: map[string]*web.Feed{p.run.Plan.Name: p.feed,
		older.Name: web.NewFeed(&older)}, names: []string{p.run.Plan.Name, older.Name}, did: &acts{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: web.Serve(gate, nil)}
	go server.Serve(listener)            //nolint:errcheck // ends with the test
	t.Cleanup(func() { server.Close() }) //nolint:errcheck
	do(t, ctx, chromedp.Navigate(fmt.Sprintf("http://%s/", listener.Addr())))
	until(t, ctx, "document.activeElement.id === 'token'")
	judged("sign-in")
	do(t, ctx, chromedp.KeyEvent("bad"))
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	until(t, ctx, has("refused", "does not accept this token"))
	judged("refused")
	do(t, ctx, chromedp.KeyEvent("good"))
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	until(t, ctx, has("user", "Signed in as ann")+" && document.querySelectorAll('#others option').length === 2")
	judged("signed in")
}
