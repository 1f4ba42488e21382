package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

func workloads(t *testing.T, page *web.Server, query string) (web.Workloads, string) {
	t.Helper()
	code, body, _ := answer(page, request(page, http.MethodGet, "/workloads"+query, ""))
	var all web.Workloads
	if err := json.Unmarshal([]byte(body), &all); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v %s", code, err, body)
	}
	text := ""
	for _, w := range all.List {
		if w.Unread {
			text += "not read: "
		}
		text += fmt.Sprintf("%s %s/%s pods %d moved %d evicted %d restarts %d\n", w.Kind, w.Namespace, w.Name, w.Pods,
			w.Moved, w.Evicted, w.Restarts)
	}
	return all, text
}

// TestWorkloads: those that restarted come first, then those whose pods were evicted. Restarts that were not read are
// not 0.
func TestWorkloads(t *testing.T) {
	r := webtest.New(t, 5)
	r.Plan.Workloads = []kind.Workload{{Kind: "Deployment", Namespace: "shop", Name: "idle", Treatment: "move"},
		{Kind: "Deployment", Namespace: "shop", Name: "web", Treatment: "move"},
		{Kind: "Rollout", Namespace: "shop", Name: "pay", Treatment: "move"},
		{Kind: "Deployment", Namespace: "shop", Name: "web", Treatment: "stay"}}
	feed := web.NewFeed(r.Plan)
	page := web.NewServer(feed, address, nil, nil)
	page.Live = r
	if _, text := workloads(t, page, "?restarts=1"); !strings.Contains(text, "shop/web pods 5 moved 0 evicted 0") {
		t.Errorf("before the run:\n%s", text)
	}
	r.Show(feed, 0, r.Records[len(r.Records)-1].At)
	all, text := workloads(t, page, "?restarts=1")
	want := "Deployment shop/cart pods 4 moved 0 evicted 0 restarts 7\n" +
		"DaemonSet shop/logs pods 5 moved 0 evicted 5 restarts 3\n" +
		"Deployment shop/web pods 5 moved 0 evicted 5 restarts 0\n" +
		"Deployment shop/idle pods 4 moved 0 evicted 0 restarts 0\n" +
		"not read: Rollout shop/pay pods 0 moved 0 evicted 0 restarts 0\n"
	if text != want || all.Unread || !strings.Contains(all.Note, "1 workload not read: no pod has such an owner.") {
		t.Errorf("%s\nwant:\n%s%q", text, want, all.Note)
	}
	all, text = workloads(t, page, "")
	if !all.Unread || strings.Contains(text, "cart") ||
		!strings.Contains(all.Note, "not known: all pods of the cluster") {
		t.Errorf("not asked for: %q\n%s", all.Note, text)
	}
	r.Unread = errors.New("pods is forbidden")
	if all, _ = workloads(t, page, "?restarts=1"); !all.Unread || !strings.Contains(all.Note,
		"Pods and restarts are not known: pods is forbidden.") {
		t.Errorf("no right: %q", all.Note)
	}
	page.Live = nil
	if all, _ = workloads(t, page, "?restarts=1"); !all.Unread {
		t.Errorf("no client: %q", all.Note)
	}
}

// TestEvictedBeforeFailure: pods that an action evicted before it failed count, and once, also if the next attempt
// names them again.
func TestEvictedBeforeFailure(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	page := web.NewServer(feed, address, nil, nil)
	i := slices.IndexFunc(r.Records, func(one engine.Record) bool { return strings.Contains(string(one.Data), "web-") })
	failed := r.Records[i]
	failed.Result, failed.Error = engine.ResultFailed, "not ready"
	feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) { b.Record(engine.State{}, failed, r.Records[i]) })
	all, text := workloads(t, page, "")
	if n := strings.Count(text, "evicted 1 "); n != 2 || strings.Contains(text, "evicted 2") {
		t.Errorf("%+v", all)
	}
}

// TestWorkloadsGrow: the table follows the journal, however often it is asked for on the way.
func TestWorkloadsGrow(t *testing.T) {
	r := webtest.New(t, 12)
	r.Plan.Workloads = []kind.Workload{{Kind: "Deployment", Namespace: "shop", Name: "web", Treatment: "move"}}
	often, once := web.NewFeed(r.Plan), web.NewFeed(r.Plan)
	text := func(feed *web.Feed, query string) string {
		page := web.NewServer(feed, address, nil, nil)
		page.Live = r
		_, text := workloads(t, page, query)
		return text
	}
	shown := 0
	for after := 20 * time.Second; after <= 100*time.Second; after += 20 * time.Second {
		shown = r.Show(often, shown, r.Begin.Add(after))
		text(often, "?restarts=1") // its pods do not stay in what is kept
		text(often, "")
	}
	r.Show(once, 0, r.Begin.Add(100*time.Second))
	if got, want := text(often, ""), text(once, ""); got != want || !strings.Contains(got, "evicted") {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
	if got, want := text(often, "?restarts=1"), text(once, "?restarts=1"); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// crowd counts how many requests read all pods at once.
type crowd struct {
	*webtest.Run
	now, most, all atomic.Int32
	hold           chan struct{}
}

func (c *crowd) Workloads(ctx context.Context, since time.Time) ([]report.WorkloadOutcome, error) {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	defer c.now.Add(-1)
	c.all.Add(1)
	<-c.hold
	return c.Run.Workloads(ctx, since)
}

// TestOneReadsAllPods: requests for all pods of the cluster wait for each other, and one whose turn does not come shows
// no figures.
func TestOneReadsAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := webtest.New(t, 3)
		page := web.NewServer(web.NewFeed(r.Plan), address, nil, nil)
		c := &crowd{Run: r, hold: make(chan struct{})}
		page.Live = c
		ask := func(done chan<- web.Workloads) {
			all, _ := workloads(t, page, "?restarts=1")
			done <- all
		}
		first, others := make(chan web.Workloads, 1), make(chan web.Workloads, 2)
		go ask(first)
		synctest.Wait()
		go ask(others)
		go ask(others)
		for range 2 {
			if all := <-others; !all.Unread || !strings.Contains(all.Note, "other users are reading all pods") {
				t.Errorf("while another one reads: %+v", all)
			}
		}
		close(c.hold)
		if all := <-first; all.Unread {
			t.Errorf("the first: %+v", all)
		}
		go ask(others)
		if all := <-others; all.Unread || c.most.Load() != 1 || c.all.Load() != 2 {
			t.Errorf("afterwards: %+v; %d at once, %d in all", all, c.most.Load(), c.all.Load())
		}
	})
}

// TestManyWorkloads: the table is bounded, and says how many it leaves out.
func TestManyWorkloads(t *testing.T) {
	r := webtest.New(t, 3)
	for i := range 450 {
		r.Plan.Workloads = append(r.Plan.Workloads, kind.Workload{Kind: "StatefulSet", Namespace: "db",
			Name: fmt.Sprintf("db-%03d", i), Treatment: "move"})
	}
	page := web.NewServer(web.NewFeed(r.Plan), address, nil, nil)
	all, _ := workloads(t, page, "")
	if len(all.List) != 200 || all.More < 250 ||
		!strings.Contains(all.Note, "more, with lower numbers, are not shown") {
		t.Errorf("%d shown, %d more: %q", len(all.List), all.More, all.Note)
	}
	bare := request(page, http.MethodGet, "/workloads?restarts=1", "")
	bare.Header.Del("Authorization")
	if code, body, _ := answer(page, bare); code != http.StatusUnauthorized || strings.Contains(body, "db-") {
		t.Errorf("without a token: %d %s", code, body)
	}
}
