package preflight

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// TestServed: where definitions keep Calico's objects as projectcalico.org/v3 the checks say what they say elsewhere,
// and send nobody to the other group. The snapshots are derived from those of real clusters (cnitest.Served).
func TestServed(t *testing.T) {
	for _, name := range []string{"calico", "calico-v3.30.1", "calico-typha-v3.28.5", "calico-bgp"} {
		t.Run(name, func(t *testing.T) {
			told := func(snapshot *cluster.Snapshot) string {
				found := calico.Driver{}.Detect(snapshot)
				pass := &check.Pass{Snapshot: snapshot, Source: found}
				pass.Found = append(pass.Found, found)
				text, err := json.MarshalIndent(Run(All(), pass, Options{}), "", " ")
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			stored, served := told(cnitest.Golden(t, name)), told(cnitest.Served(t, cnitest.Golden(t, name)))
			if diff := cmp.Diff(strings.ReplaceAll(stored, "crd.projectcalico.org", "projectcalico.org"),
				served); diff != "" {
				t.Errorf("something else is said:\n%s", diff)
			}
			if name == "calico-bgp" && !strings.Contains(served, "kubectl get bgppeers.projectcalico.org -A") {
				t.Errorf("nothing is said of the BGPPeers:\n%s", served)
			}
		})
	}
}
