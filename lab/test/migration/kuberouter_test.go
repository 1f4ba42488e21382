package migration

import (
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// kubeRouterTraces finds what kube-router leaves on a node. Its routes have the number 17 of a routing daemon.
const kubeRouterTraces = `ip -o link show | grep -E 'kube-bridge|tun-'; ls /etc/cni/net.d | grep kuberouter;
	ls -d /var/lib/cni/networks/mynet /var/lib/cni/results/mynet-* /var/lib/kube-router/* 2>/dev/null;
	ip rule | grep -w 77; ip route show table all | grep -E 'proto 17|kube-bridge|table 77';
	iptables-save | grep -E 'KUBE-ROUTER|KUBE-POD-FW|KUBE-NWPLCY|kube-router|kube-bridge|node port traffic on|theseus';
	ipset list -n | grep -E 'kube-router|KUBE-(SRC|DST)'; true`

// TestKubeRouter: kube-router as the pods' network is taken back to from the middle of a change, and left for good. Its
// agents write routes to each other's pods all the time, masquerade by sets of ranges, and enforce policy.
func TestKubeRouter(t *testing.T) {
	rigtest.Full(t, "kube-router to Calico, back and there again: six minutes")
	rig := rigtest.New(t, bin, "kr", 2, "kube-router", "--bake", "1s")
	rig.Network = "kube-router"
	for _, node := range rig.NodeNames() { // its agents meet some time after they start
		rigtest.Until(t, node+" has a route to the other node's pods", func() bool {
			out, err := rig.OnNode(t.Context(), node, "ip", "route", "show", "proto", "17")
			return err == nil && strings.Contains(out, "via")
		})
		out, err := rig.OnNode(t.Context(), node, "sh", "-c", kubeRouterTraces)
		t.Logf("kube-router on %s (%v):\n%s", node, err, out)
	}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", "Move the pods of kr-node-", nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	rigtest.Finds(t, rig, "kube-router")

	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the migration")
	rigtest.NothingOn(t, rig, "kube-router", kubeRouterTraces)
	rigtest.Finds(t, rig, "calico")
	rigtest.NothingLeft(t, rig, regexp.MustCompile("kube-router"))
}
