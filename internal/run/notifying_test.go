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

// TestNotifying: the news of a run arrive once and in order, although its processes are killed, and although the endpoint was away.
func TestNotifying(t *testing.T) {
	var lock sync.Mutex
	var got []string
	away := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var e struct {
			ID, Type string
			Data     Notified
		}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Data.Migration != "m" || e.ID != fmt.Sprintf("m/hash/%d", e.Data.Record) || e.Data.Report != "theseus report m -o report.html" {
			t.Errorf("%+v, %v", e, err)
		}
		got = append(got, fmt.Sprintf("%d %s", e.Data.Record, strings.TrimPrefix(e.Type, typePrefix)))
	}))
	defer server.Close()
	p := &plan.Plan{Name: "m", Hash: "hash", Steps: []step.Step{{ID: "a", Wave: "wave-1"}, {ID: "b", Wave: "wave-2"}}}
	var records []engine.Record
	for _, r := range []engine.Record{
		{Event: engine.Started, By: "x"}, {Event: engine.StepBegan, Step: "a"}, {Event: engine.GateAnswer, Step: "a", Verdict: &engine.Verdict{Pass: true}},
		{Event: engine.StepDone, Step: "a"}, {Event: engine.StepBegan, Step: "b"}, {Event: engine.GateAnswer, Step: "b", Verdict: &engine.Verdict{Reason: "3 lost"}},
		{Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "3 lost"}, {Event: engine.Resumed, By: "y"}, {Event: engine.Paused}, {Event: engine.Resumed, By: "y"},
		{Event: engine.StepDone, Step: "b"}, {Event: engine.Finished, Result: engine.ResultDone},
	} {
		r.Seq = len(records) + 1
		records = append(records, r)
	}
	migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "Migration",
		"metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace}}}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: manifest.Plural("Migration")}: "MigrationList"}, migration)
	// process is one process of the run; it gets the records from one to another, and the ones before are past.
	process := func(from, to int) string {
		target, err := notify.New(server.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r := &Run{Client: &kube.Client{Dynamic: client}, Plan: p, Notify: target, View: &Lines{Out: &out, Script: NewScript(p), Begun: time.Now()}}
		tell, stop := r.notifying(t.Context(), records[:from])
		for _, one := range records[from:to] {
			tell(one)
		}
		stop()
		return out.String()
	}
	process(0, 3)
	if seq, err := journal.Notified(t.Context(), client, "m"); seq != 1 || err != nil {
		t.Errorf("the Migration has %d, %v", seq, err)
	}
	process(5, 7) // the process before was killed after record 5, whose news nobody sent
	lock.Lock()
	away = true
	lock.Unlock()
	if out := process(7, 9); !strings.Contains(out, "is retried") || !strings.Contains(out, "2 notifications were not delivered") {
		t.Errorf("said: %s", out)
	}
	lock.Lock()
	away = false
	lock.Unlock()
	process(9, 12)
	process(12, 12)
	want := []string{"1 began", "5 wave-done", "6 gate-failed", "7 needs-person", "8 resumed", "9 paused", "10 resumed", "12 done"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
