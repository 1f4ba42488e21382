package admission

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// TestSnapshot: a list that fails during an outage is read again before the checks can take it for missing evidence.
// One that fails for longer, or for another reason, is missing.
func TestSnapshot(t *testing.T) {
	before := journal.Patience
	journal.Patience = outage.Limits{Away: 3 * time.Second, Refused: 2 * time.Second}
	defer func() { journal.Patience = before }()
	for _, test := range []struct {
		name string
		code int
		bad  int32 // how many lists fail
		away []string
	}{
		{"an outage that ends", http.StatusServiceUnavailable, 2, nil},
		{"an outage that lasts", http.StatusServiceUnavailable, 1000, []string{"statefulsets"}},
		{"no permission", http.StatusForbidden, 1000, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var lists atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/api/v1/namespaces/kube-system":
					_, _ = w.Write(
						[]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u"}}`))
				case r.URL.Path == "/version":
					_, _ = w.Write([]byte(`{"gitVersion":"v1.36.0","major":"1","minor":"36"}`))
				case r.URL.Path == "/apis/apps/v1/statefulsets" && lists.Add(1) <= test.bad:
					w.WriteHeader(test.code)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			defer server.Close()
			client, err := kube.New(&rest.Config{Host: server.URL}, "test")
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := Snapshot(t.Context(), client, "test", nil)
			if err != nil || !slices.Equal(snapshot.Away(), test.away) {
				t.Fatalf("%v, %+v", err, snapshot)
			}
			if lists.Load() < 2 && test.code != http.StatusForbidden {
				t.Errorf("read %d times", lists.Load())
			}
		})
	}
}
