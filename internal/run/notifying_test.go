package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/notify"
	"github.com/theseus-cni/theseus/internal/step"
)

// endpoint is an HTTP endpoint of notifications. It refuses while it is away.
type endpoint struct {
	*httptest.Server
	away atomic.Bool
	lock sync.Mutex
	got  []string
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var one struct {
			ID, Type string
			Data     Notified
		}
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil || one.Data.Migration != "m" ||
			!strings.HasPrefix(one.ID+"/", fmt.Sprintf("m/hash/%d/", one.Data.Record)) ||
			one.Data.Report != "theseus report m -o report.html" {
			t.Errorf("%+v, %v", one, err)
		}
		e.lock.Lock()
		defer e.lock.Unlock()
		e.got = append(e.got, fmt.Sprintf("%d %s", one.Data.Record, strings.TrimPrefix(one.Type, typePrefix)))
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) wants(t *testing.T, want ...string) {
	t.Helper()
	e.lock.Lock()
	defer e.lock.Unlock()
	if !slices.Equal(e.got, want) {
		t.Errorf("got %q\nwant %q", e.got, want)
	}
}

// notified is a cluster that has the migration m, with these annotations.
func notified(annotations map[string]any) *dynamicfake.FakeDynamicClient {
	migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
		"kind":     "Migration",
		"metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace, "annotations": annotations}}}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			{Group: v1alpha1.Group, Version: v1alpha1.Version,
				Resource: manifest.Plural("Migration")}: "MigrationList"},
		migration)
}

// numbered numbers records from 1.
func numbered(records ...engine.Record) []engine.Record {
	for i := range records {
		records[i].Seq = i + 1
	}
	return records
}

var twoWaves = &plan.Plan{Name: "m", Hash: "hash",
	Steps: []step.Step{{ID: "a", Wave: "wave-1"}, {ID: "b", Wave: "wave-2"}}}

// notifies is one process of a run, which gets the records from one to another, and then ends; the ones before are
// past.
func notifies(t *testing.T, to *endpoint, client *dynamicfake.FakeDynamicClient, records []engine.Record, from int,
	continues bool, outcome engine.Outcome) string {
	t.Helper()
	target, err := notify.New(to.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := &Run{Client: &kube.Client{Dynamic: client}, unfenced: client, Plan: twoWaves, Notify: target,
		Continues: continues, View: &Lines{Out: &out, Script: NewScript(twoWaves), Begun: time.Now()}}
	telling := r.notifying(t.Context(), records[:from])
	for _, one := range records[from:] {
		telling.Record(one)
	}
	r.told(t.Context(), telling, outcome, nil)
	return out.String()
}

func shorten(t *testing.T) {
	before := notifyEnd
	notifyEnd = 200 * time.Millisecond
	t.Cleanup(func() { notifyEnd = before })
}

// TestNotifying: the news of a run arrive once and in order, although its processes are killed, and although the
// endpoint was away.
func TestNotifying(t *testing.T) {
	shorten(t)
	to := newEndpoint(t)
	records := numbered([]engine.Record{
		{Event: engine.Started, By: "x"}, {Event: engine.StepBegan, Step: "a"},
		{Event: engine.GateAnswer, Step: "a", Verdict: &engine.Verdict{Pass: true}},
		{Event: engine.StepDone, Step: "a"}, {Event: engine.StepBegan, Step: "b"},
		{Event: engine.GateAnswer, Step: "b", Verdict: &engine.Verdict{Reason: "3 lost"}},
		{Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "3 lost"}, {Event: engine.Resumed, By: "y"},
		{Event: engine.Paused}, {Event: engine.Resumed, By: "y"}, {Event: engine.StepDone, Step: "b"},
		{Event: engine.Finished, Result: engine.ResultDone},
	}...)
	client := notified(nil)
	process := func(from, to0 int) string {
		return notifies(t, to, client, records[:to0], from, true, engine.Outcome{})
	}
	process(0, 3)
	if seq, found, err := journal.Notified(t.Context(), client, "m"); seq != 1 || !found || err != nil {
		t.Errorf("the Migration has %d, %t, %v", seq, found, err)
	}
	process(5, 7) // the process before was killed after record 5, whose news nobody sent
	to.away.Store(true)
	if out := process(7, 9); !strings.Contains(out, "is retried") ||
		!strings.Contains(out, "2 notifications were not delivered") {
		t.Errorf("said: %s", out)
	}
	to.away.Store(false)
	process(9, 12)
	process(12, 12)
	to.wants(t, "1 began", "5 wave-done", "6 gate-failed", "7 needs-person", "8 resumed",
		"9 paused", "10 resumed", "12 done")
}

// TestNotifiesEnd: a command line, which no process continues, waits for an endpoint that is away at the end of the
// run, and tells that the run gave up, of which there is no record.
func TestNotifiesEnd(t *testing.T) {
	shorten(t)
	to := newEndpoint(t)
	to.away.Store(true)
	time.AfterFunc(5*notifyEnd, func() { to.away.Store(false) })
	records := numbered(engine.Record{Event: engine.Started, By: "x"},
		engine.Record{Event: engine.StepBegan, Step: "a"})
	out := notifies(t, to, notified(nil), records, 0, false, engine.Outcome{End: engine.EndNeedsPerson,
		Cause: "gave up", State: engine.State{Seq: 2, Phase: engine.PhaseRunning}})
	to.wants(t, "1 began", "2 needs-person")
	if !strings.Contains(out, "waiting up to 5m0s for http://127.0.0.1") {
		t.Errorf("said: %s", out)
	}
}

// TestNotifiesFrom: what the Migration says about earlier notifications is not believed if it cannot be, and a run of
// which nothing was sent is not told from its beginning.
func TestNotifiesFrom(t *testing.T) {
	records := numbered(engine.Record{Event: engine.Started, By: "x"}, engine.Record{Event: engine.Paused},
		engine.Record{Event: engine.Resumed, By: "y"}, engine.Record{Event: engine.Paused})
	for noted, want := range map[string][]string{"": {"3 resumed", "4 paused"}, "2": {"3 resumed", "4 paused"},
		"1000": {"4 paused"}, "x": {"4 paused"}} {
		annotations := map[string]any{"theseus.dev/notified": noted}
		if noted == "" {
			annotations = nil
		}
		to := newEndpoint(t)
		client := notified(annotations)
		out := notifies(t, to, client, records, 3, true, engine.Outcome{})
		to.wants(t, want...)
		if doubted := noted == "1000" ||
			noted == "x"; strings.Contains(out, "warning: notifications begin") != doubted {
			t.Errorf("%q: said %s", noted, out)
		}
		if seq, _, err := journal.Notified(t.Context(), client, "m"); seq != 4 || err != nil {
			t.Errorf("%q: the Migration has %d, %v", noted, seq, err)
		}
	}
}

// TestNeedsPersonAfterOneStep: a step that is undone alone ends the run, without a record of that.
func TestNeedsPersonAfterOneStep(t *testing.T) {
	n := NewNarrator(NewScript(twoWaves))
	var got []string
	for _, r := range numbered(engine.Record{Event: engine.Started}, engine.Record{Event: engine.StepBegan, Step: "a"},
		engine.Record{Event: engine.TakingBack, Step: "a", Error: "3 lost"},
		engine.Record{Event: engine.StepUndone, Step: "a"}, engine.Record{Event: engine.Resumed},
		engine.Record{Event: engine.StepBegan, Step: "a"},
		engine.Record{Event: engine.TakingBack, Step: "a", Error: "3 lost"}, engine.Record{Event: engine.RollingBack},
		engine.Record{Event: engine.StepUndone, Step: "a"}) {
		got = append(got, n.News(r).Reason)
	}
	want := []string{"Began", "", "RollingBack", "NeedsPerson", "Resumed", "", "RollingBack", "RollingBack", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
