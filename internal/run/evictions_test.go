package run

import (
	"encoding/json"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestEvictions: pods of an eviction that failed count, and once, also if the next attempt names one again. Another
// eviction of a pod of the same name counts.
func TestEvictions(t *testing.T) {
	acted := func(action, result string, undo bool, pods ...kube.EvictedPod) engine.Record {
		data, err := json.Marshal(kube.Evicted{Pods: pods})
		if err != nil {
			t.Fatal(err)
		}
		return engine.Record{Event: engine.Acted, Action: action, Result: result, Undo: undo, Data: data}
	}
	pod := func(name string, millis int64) kube.EvictedPod {
		return kube.EvictedPod{Namespace: "shop", Name: name, Workload: "StatefulSet/shop/db", WholeMillis: millis}
	}
	moved, whole := evictions([]engine.Record{
		acted("n1/evict", engine.ResultFailed, false, pod("db-0", 100), pod("db-1", 200)),
		acted("n1/evict", engine.ResultFailed, false, pod("db-1", 30)),
		acted("n1/evict", engine.ResultDone, false, pod("db-1", 4), pod("db-2", 5)),
		acted("n2/evict", engine.ResultDone, false, pod("db-0", 1000)),
		acted("n2/evict", engine.ResultDone, true, pod("db-0", 2000)),
		{Event: engine.Acted, Action: "n3/evict", Result: engine.ResultFailed},
		{Event: engine.Acted, Action: "n3/evict", Result: engine.ResultFailed, Data: []byte(`{"pods":3}`)},
		{Event: engine.Acted, Action: "n3/evict", Result: engine.ResultFailed, Data: []byte(`null`)}})
	if got := moved["StatefulSet/shop/db"]; got != 5 || len(moved) != 1 {
		t.Errorf("%d pods: %v", got, moved)
	}
	if got := whole["StatefulSet/shop/db"]; got != 3339 {
		t.Errorf("%d ms", got)
	}
}
