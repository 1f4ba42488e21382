package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// coldCalico is what Calico's plugin prints while the API server, that was killed a moment ago, has not read its roles
// yet.
const coldCalico = `error getting ClusterInformation: connection is unauthorized: clusterinformations.crd.projectcalico.org \"default\" is forbidden: User \"system:serviceaccount:kube-system:calico-cni-plugin\" cannot get resource \"clusterinformations\" in API group \"crd.projectcalico.org\" at the cluster scope`

// TestAdoptColdAPI: the target's plugin finds an API server that was killed: nothing listens, or it refuses. The first
// calls fail after the plugin has done its part. The pod moves there and back all the same, and nothing of a half-made
// ADD is left.
func TestAdoptColdAPI(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a := w.pod("a", bridgeList, nil)
	before, hostBefore := a.state(), hostState(t)
	end := flows(t, w, a)
	log := filepath.Join(w.Root, "var/lib/cni/calls")
	script := `echo $CNI_COMMAND >> /var/lib/cni/calls
		n=$(grep -c . /var/lib/cni/calls)
		case $n in
		1) /opt/cni/bin/ptp.real > /dev/null; echo '{"cniVersion":"0.4.0","code":11,"msg":"` + coldCalico + `"}'; exit 1;;
		2) echo '{"cniVersion":"0.4.0","code":11,"msg":"error getting ClusterInformation: Get \"https://10.96.0.1:443/apis\": dial tcp 10.96.0.1:443: connect: connection refused"}'; exit 1;;
		4) echo '{"cniVersion":"0.4.0","code":11,"msg":"` + coldCalico + `"}'; exit 1;;
		*) exec /opt/cni/bin/ptp.real;;
		esac`
	calls := func() string {
		text, err := os.ReadFile(log)
		must(t, err)
		must(t, os.Remove(log))
		return strings.Join(strings.Fields(string(text)), " ")
	}
	restore := w.plugin("ptp", script)
	defer restore()
	got := do(t, w.Node, step.VerbAdopt, forth)
	if o := outcomes(t, got)["a"]; o.State != step.AdoptMoved || a.whole() != "routed" {
		t.Errorf("forward: %+v", o)
	}
	if said := calls(); said != "ADD DEL DEL ADD DEL ADD" { // every ADD that failed is taken back before the next
		t.Errorf("forward, the plugin was asked for %s", said)
	}
	got = do(t, w.Node, step.VerbAdopt, back)
	if o := outcomes(t, got)["a"]; o.State != step.AdoptMoved || a.whole() != "bridged" {
		t.Errorf("back: %+v", o)
	}
	if said := calls(); said != "DEL DEL DEL" {
		t.Errorf("back, the plugin was asked for %s", said)
	}
	end()
	if after, hostAfter := a.state(), hostState(t); after != before || hostAfter != hostBefore {
		t.Errorf("it was\n%s%s\nand is\n%s%s", before, hostBefore, after, hostAfter)
	}
}
