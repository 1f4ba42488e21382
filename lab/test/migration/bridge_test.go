package migration

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// bridgeTraces finds what the plain bridge network leaves on a node; routes to other nodes' pods are not its own.
const bridgeTraces = `ip -o link show | grep -w cni0; ls /etc/cni/net.d | grep bridge; ls -d /var/lib/cni/networks/bridge 2>/dev/null;
	iptables-save | grep -E 'KUBE-ROUTER|theseus'; true`

// TestBridge: a network that nothing in the cluster makes is taken back to from the middle of a change, and left for
// good.
func TestBridge(t *testing.T) {
	rigtest.Full(t, "bridge to Calico, back and there again: six minutes")
	rig := rigtest.New(t, bin, "br", 2, "bridge", "--bake", "1s")
	rig.Network = "bridge"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", "Move the pods of br-node-", nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	rigtest.Finds(t, rig, "bridge")

	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the migration")
	rigtest.NothingOn(t, rig, "the bridge", bridgeTraces)
	rigtest.Finds(t, rig, "calico")
	rigtest.NothingLeft(t, rig, regexp.MustCompile("kube-router"),
		rigtest.Stays{Line: regexp.MustCompile(`^\+ route4 POD/24 via NODE dev eth0`),
			Why: "routes between the nodes are somebody else's"})
}

// TestAdoptBridge: the running pods of such a network are moved to Calico, whose ranges are two here, while kube-proxy
// works with nftables and what pods send may become no larger than the tunnel lets it. The routes between the nodes,
// which are nobody's, are still there, behind Calico's.
func TestAdoptBridge(t *testing.T) {
	rigtest.Full(t, "running pods moved from a plain bridge to Calico: four minutes")
	rig := adopted(t, "brad", 3, "bridge", "nftables")
	guests := invite(t, rig)
	before := podsOf(t, rig)
	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the adoption")
	guests.leave()
	mustBeSamePods(t, before, podsOf(t, rig))
	rigtest.NothingOn(t, rig, "the bridge", bridgeTraces)
	mustServeCalico(t, rig, "state")
	mustTellOfMoves(t, rig)
	routes := routesOf(t, rig)
	t.Logf("the routes are\n%s", strings.Join(routes, "\n"))
	if all := strings.Join(routes, "\n"); strings.Count(all, "dev eth0 metric 100") != 6 ||
		strings.Count(all, "/24 via") != 12 {
		t.Errorf("each node has two others to reach, by Calico's routes first and by those of before:\n%s", all)
	}
	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "delete", "pod", "db-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "wait", "--for=condition=Ready", "pod/db-0",
		"--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	mustHoldNoMore(t, rig)
}

// TestAdoptBridgeBack takes such an adoption back when Calico carries what leaves a node already: the routes are as
// they were.
func TestAdoptBridgeBack(t *testing.T) {
	rigtest.Full(t, "an adoption from a plain bridge taken back: four minutes")
	rig := adopted(t, "brback", 2, "bridge", "nftables")
	mustComeBack(t, rig)
}

// mustComeBack carries an adoption out until Calico carries what leaves the first node already, kills it there, and
// demands of its rollback that nothing is lost and all is as before.
func mustComeBack(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	before, routes := podsOf(t, rig), routesOf(t, rig)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", "send the outgoing traffic of "+rig.NodeNames()[0]+" over Calico",
		nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	mustBeAsBefore(t, rig, before, routes)
}

// mustBeAsBefore demands that the pods are the same, that nothing is left of Calico, and that nodes have the routes to
// pods that they had.
func mustBeAsBefore(t *testing.T, rig *scenario.Rig, pods, routes []string) {
	t.Helper()
	mustBeSamePods(t, pods, podsOf(t, rig))
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	if after := routesOf(t, rig); !slices.Equal(routes, after) {
		t.Errorf("the routes were\n%s\nand are\n%s", strings.Join(routes, "\n"), strings.Join(after, "\n"))
	}
}

// adopted is a lab on a network, under traffic, whose pods are to be adopted.
func adopted(t *testing.T, name string, nodes int, network, proxy string) *scenario.Rig {
	t.Helper()
	rig := rigtest.Unstarted(t, bin, name, nodes, "--max-lost", "50", "--bake", "1s")
	rig.Network, rig.Strategy, rig.Outside, rig.Proxy = network, "adopt", true, proxy
	if err := rig.Up(t.Context(), rig.Network); err != nil {
		t.Fatal(err)
	}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rig
}
