package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/metrics"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

// TestUnsaid: a process was killed after the last record of a run. Another one sends how the run ended, once, although
// the endpoint is away at first, and nothing of a migration of a command line.
func TestUnsaid(t *testing.T) {
	c, p, m := entered(t)
	chain := p.Hash
	var records []engine.Record
	for i, r := range []engine.Record{
		{Event: engine.Started, Data: json.RawMessage(`{"plan":"` + p.Hash + `"}`)},
		{Event: engine.StepBegan, Step: p.Steps[0].ID},
		{Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "3 lost"},
	} {
		r.Seq, r.At = i+1, noon
		var err error
		if chain, err = engine.Link(chain, r); err != nil {
			t.Fatal(err)
		}
		r.Chain = chain
		records = append(records, r)
	}
	cluster := journal.NewCluster(c.Client.Dynamic, "m")
	if _, err := cluster.Records(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Append(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	var lock sync.Mutex
	var got []string
	tried := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		var e struct{ ID, Type string }
		if tried++; tried == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		} else {
			got = append(got, strings.TrimPrefix(e.Type, "dev.theseus.run.")+strings.TrimPrefix(e.ID, "m/"+p.Hash))
		}
	}))
	defer server.Close()
	target, err := notify.New(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	c.Notify = func() *notify.Target { return target }
	look := func(inCluster bool, version string) {
		t.Helper()
		var err error
		if m, err = journal.Get(t.Context(), c.Client.Dynamic, "m"); err != nil {
			t.Fatal(err)
		}
		m.Status.Phase, m.Spec.InCluster, m.ResourceVersion = string(engine.PhaseNeedsPerson), inCluster, version
		if err := c.tellUnsaid(t.Context(), []v1alpha1.Migration{*m}); err != nil {
			t.Fatal(err)
		}
	}
	look(true, "1") // no process has noted that it sends anything
	if err := journal.SetNotified(t.Context(), c.Client.Dynamic, "m", 1); err != nil {
		t.Fatal(err)
	}
	look(false, "2")
	look(true, "3")
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		look(true, "4")
		if seq, _, err := journal.NotifiedIn(m); err != nil || seq == 3 {
			break
		} else if time.Now().After(until) {
			t.Fatal("it is not noted after a minute")
		}
	}
	look(true, "5")
	c.forgetUnsaid(func(string) bool { return true }) // another process
	look(true, "6")
	c.forgetUnsaid(func(string) bool { return true })
	lock.Lock()
	defer lock.Unlock()
	if want := []string{"needs-person/3"}; !slices.Equal(got, want) || tried != 2 {
		t.Errorf("got %q in %d attempts, want %q", got, tried, want)
	}
}

// TestWatchCounts: the numbers of migrations change while one of them runs.
func TestWatchCounts(t *testing.T) {
	c := holding(t, migration(func(m *v1alpha1.Migration) { m.Spec.InCluster = true }),
		migration(func(m *v1alpha1.Migration) { m.Name, m.Status.Phase = "n", "needs-person" }))
	c.Metrics = metrics.New("v0")
	stop := c.watch(t.Context(), "m", &halt{stop: make(chan struct{})}, func() {})
	defer stop()
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if n, err := testutil.GatherAndCount(c.Metrics.Gatherer(), "theseus_migrations"); err == nil && n > 0 {
			break
		} else if time.Now().After(until) {
			t.Fatal("they are not counted")
		}
	}
}
