package web_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestSessions: the page draws the BGP sessions as the nodes report them now. It draws none as up before a node has
// reported twice, after reports end, or after the run.
func TestSessions(t *testing.T) {
	r := webtest.New(t, 6)
	feed := web.NewFeed(r.Plan)
	shown := 0
	verdict := func(after int) string {
		shown = r.Show(feed, shown, r.Begin.Add(time.Duration(after)*time.Second))
		s := feed.State().BGP
		if s == nil {
			return "none"
		}
		p := s.Pictures[0]
		return strings.Join(append([]string{s.Text + p.Verdict}, p.Troubles...), "; ")
	}
	if got := verdict(2); got != "none" {
		t.Errorf("without BGP: %q", got)
	}
	r.Reflect(t, 2)
	r.Lost = []webtest.Session{{Node: "worker-005", Peer: "worker-002", From: r.Begin.Add(20 * time.Second),
		Lasts: 5 * time.Second}}
	r.Silent = map[string]time.Time{}
	const nothing, up = "No session is known: no agent reports its sessions now",
		"All sessions are up: 10 of 10 sessions up"
	for _, step := range []struct {
		after int
		want  string
	}{
		{3, nothing}, // no reports yet
		{6, nothing}, // the first ones may be old
		{8, up},
		{21, "Sessions are down: 9 of 10 sessions up, 1 down; worker-002 and worker-005: the session is down"},
		{26, up},
	} {
		if got := verdict(step.after); got != step.want {
			t.Errorf("after %d s: %q, not %q", step.after, got, step.want)
		}
	}
	for _, name := range []string{"worker-001", "worker-003", "worker-004"} { // worker-001 is a reflector
		r.Silent[name] = r.Begin.Add(27 * time.Second)
	}
	verdict(28)
	if got, want := verdict(50), "Not all sessions are known: 7 of 10 sessions up, 3 not known"; got != want {
		t.Errorf("without some reports: %q, not %q", got, want)
	}
	feed.Age(r.Begin.Add(70 * time.Second)) // nothing comes any more
	if got := feed.State().BGP.Pictures[0].Verdict; got != nothing {
		t.Errorf("20 s later: %q", got)
	}
	if got, want := verdict(3600), "The run has ended: no agent reports its sessions any more."+nothing; got != want {
		t.Errorf("at the end: %q", got)
	}
}

// TestSessionsAreSent: a viewer gets the graph when it has changed, and only then.
func TestSessionsAreSent(t *testing.T) {
	r := webtest.New(t, 6)
	r.Reflect(t, 2)
	r.Lost = []webtest.Session{{Node: "worker-005", Peer: "worker-002", From: r.Begin.Add(20 * time.Second),
		Lasts: 5 * time.Second}}
	feed := web.NewFeed(r.Plan)
	var last *web.State
	var has web.State
	var sent []int
	shown := 0
	for after := range 30 {
		shown = r.Show(feed, shown, r.Begin.Add(time.Duration(after)*time.Second))
		d, state, err := feed.Next(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		if d.BGP != nil {
			sent = append(sent, after)
		}
		last, has = state, has.Apply(d)
		if got, want := text(t, has), text(t, state); got != want {
			t.Fatalf("after %d s the viewer has\n%s\nnot\n%s", after, got, want)
		}
	}
	if want := []int{1, 6, 20, 25}; !slices.Equal(sent, want) {
		t.Errorf("sent after %v s, not %v", sent, want)
	}
}

// TestSessionsAreNotKnown: the page says why there is no graph.
func TestSessionsAreNotKnown(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	for want, in := range map[string]*bgp.Input{"nodes is forbidden": nil, "no node has an address": {}} {
		why := ""
		if in == nil {
			why = want
		}
		feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) { b.Graph(in, why) })
		if s := feed.State().BGP; s == nil || !strings.Contains(s.Text, want) || len(s.Pictures) > 0 {
			t.Errorf("%s: %+v", want, s)
		}
	}
}

// TestSessionsAreRead: what asks for BGP sessions is read once an agent reports some, not every time, and again when
// the run has gone on. A page that may not read it says so.
func TestSessionsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := webtest.New(t, 24) // whose run lasts
		w := follow(t, r, 20*time.Second)
		w.look(5)
		if w.asked["nodes"] > 0 || w.Feed.State().BGP != nil {
			t.Errorf("without BGP, the nodes were read %d times: %+v", w.asked["nodes"], w.Feed.State().BGP)
		}
		in := &bgp.Input{Mesh: true, AS: bgp.DefaultAS}
		for i, name := range []string{"worker-001", "worker-002", "worker-003"} {
			in.Nodes = append(in.Nodes, bgp.Node{Name: name, IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})})
		}
		r.BGP = in
		w.look(6)
		if s := w.Feed.State().BGP; s == nil || s.Text != "" ||
			s.Pictures[0].Verdict != "All sessions are up: 3 of 3 sessions up" {
			t.Errorf("with BGP: %s", text(t, s))
		}
		w.fail["nodes"] = apierrors.NewServiceUnavailable("away")
		for range 20 { // look fails the test if the source would call the page stale
			w.look(1)
			if now := w.Feed.State().Now; now.Why != "" || time.Since(now.Measured) > 3*time.Second {
				t.Fatalf("the outage hides the measurements: %+v", now)
			}
		}
		if s := w.Feed.State().BGP; !strings.Contains(s.Text, "cannot be read now") ||
			!strings.Contains(s.Text, "away") || len(s.Pictures) != 1 {
			t.Errorf("in an outage: %s", text(t, s))
		}
		delete(w.fail, "nodes")
		w.look(20)
		if s := w.Feed.State().BGP; s.Text != "" || len(s.Pictures) != 1 {
			t.Errorf("after the outage: %s", text(t, s))
		}
		before := w.asked["nodes"]
		w.fail["nodes"] = forbidden("nodes")
		w.look(20)
		if s := w.Feed.State().BGP; !strings.Contains(s.Text, "forbidden") || len(s.Pictures) > 0 {
			t.Errorf("forbidden: %s", text(t, s))
		}
		if n := w.asked["nodes"] - before; n > 16 {
			t.Errorf("the nodes were read %d times in 20 s", n)
		}
		delete(w.fail, "nodes")
		w.look(20)
		if s := w.Feed.State().BGP; s.Text != "" || len(s.Pictures) != 1 {
			t.Errorf("at last: %s", text(t, s))
		}
	})
}
