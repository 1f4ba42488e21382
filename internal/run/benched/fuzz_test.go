package benched

import (
	"encoding/json"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// FuzzTake: whatever the client's pod says, it becomes a table.
func FuzzTake(f *testing.F) {
	for _, seed := range []string{
		`{"sample":{"task":1,"run":1,"value":5,"retransmits":3,"underLoad":{"p50Micros":3,"offered":9,"answered":9}}}`,
		`{"sample":{"task":-1}}`, `{"sample":{"task":0,"latency":{"offered":-1,"answered":99}}}`,
		`{"counters":{"a":{"b":1}}}`, `{"note":"x"}`, `{"stopped":"y"}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var line bench.Line
		if json.Unmarshal(text, &line) != nil {
			return
		}
		b := &Bench{Bounds: bench.Defaults(), Nodes: []corev1.Node{node("a")}, Note: func(string) {}}
		result := &bench.Result{Bounds: b.Bounds, Tasks: b.Tasks(), Counters: map[string]map[string]int64{}}
		b.take(result, line)
		result.Rows = bench.Rows(result.Tasks, result.Samples)
		result.Says = result.Words()
		if err := result.WriteTable(io.Discard); err != nil {
			t.Error(err)
		}
	})
}
