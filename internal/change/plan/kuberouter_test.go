package plan_test

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/kuberouter"
)

// fromKubeRouter is a change from kube-router as the pods' network.
func fromKubeRouter(t testing.TB, shape string) *request {
	r := flannelToCalico(t)
	r.snapshot, r.drivers = cnitest.Shape(t, shape), append(r.drivers, kuberouter.Driver{})
	return r
}

// TestFromKubeRouter: its pods are recreated; none is adopted, and a kube-router that also serves Services, or that k0s
// made, is refused.
func TestFromKubeRouter(t *testing.T) {
	p := mustMake(t, fromKubeRouter(t, "kube-router-nodes"))
	if p.Strategy != "recreate" || p.Source.CNI != "kube-router" ||
		p.Source.Capabilities.Policy != cni.PolicyKubernetes {
		t.Errorf("%s from %+v", p.Strategy, p.Source)
	}
	adopt := fromKubeRouter(t, "kube-router-nodes")
	adopt.change.Strategy, adopt.change.PodCIDR = "adopt", ""
	if _, err := adopt.make(); err == nil || !strings.Contains(err.Error(), "its agents write the routes") {
		t.Errorf("an adoption: %v", err)
	}
	for shape, want := range map[string]string{"kube-router-proxy": "in the place of kube-proxy",
		"kube-router-k0s": "k0s manages kube-router"} {
		if _, err := fromKubeRouter(t, shape).make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", shape, err)
		}
	}
}

// TestVerifyFromKubeRouterOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyFromKubeRouterOrder(t *testing.T) {
	mustNeedOrder(t, mustMake(t, fromKubeRouter(t, "kube-router-nodes")), nil)
}
