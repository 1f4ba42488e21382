package api

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestRights(t *testing.T) { checktest.Run(t, Rights()) }

func TestAggregated(t *testing.T) { checktest.Run(t, Aggregated()) }

func TestCertificates(t *testing.T) { checktest.Run(t, Certificates()) }

func TestRemoved(t *testing.T) { checktest.Run(t, Removed()) }

// TestAggregatedFix: who is told to scale or to delete what the operator makes would see that written back.
func TestAggregatedFix(t *testing.T) {
	for file, want := range map[string]string{
		"invalid-one":             "scale deployment --replicas=2",
		"invalid-nobody":          "kubectl delete apiservice v1beta1.metrics.k8s.io",
		"invalid-operator-one":    "controlPlaneReplicas",
		"invalid-operator-nobody": "kubectl delete apiservers.operator.tigera.io default",
	} {
		pass, _ := checktest.Load(t, "testdata/aggregated/"+file+".yaml")
		found := Aggregated().Run(pass)
		if len(found) != 1 || !strings.Contains(found[0].Fix, want) {
			t.Errorf("%s: want %q in the fix of %+v", file, want, found)
		}
	}
}
