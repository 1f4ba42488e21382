package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// tunnelled gives a network namespace two routes through a tunnel, the second of which leads to a node behind a router,
// a pod of its own with an address of the first block, and one with an address of its own block.
func tunnelled(t *testing.T) {
	t.Helper()
	sh(t, "", "sh", "-c",
		`ip link set lo up; ip link add eth0 type bridge; ip addr add 198.18.0.1/24 dev eth0; ip link set eth0 up
		ip route add default via 198.18.0.254
		ip link add vxlan.calico type vxlan id 4096 dstport 4789 local 198.18.0.1 dev eth0 nolearning; ip addr add 10.96.1.0/32 dev vxlan.calico; ip link set vxlan.calico up
		ip link add cali1 type bridge; ip link set cali1 up; ip route add 10.96.1.5 dev cali1; ip route add 10.96.2.7 dev cali1; ip route add blackhole 10.96.1.0/26 proto 80`)
	through(t, "10.96.2", "198.18.0.2", "66:00:00:00:00:02")
	through(t, "10.96.3", "198.18.9.3", "66:00:00:00:00:03")
}

// through lets a block be reached through the tunnel, as Felix does.
func through(t *testing.T, block, node, mac string) {
	t.Helper()
	sh(t, "", "sh", "-c", "ip neigh replace "+block+".0 lladdr "+mac+
		" dev vxlan.calico nud permanent; bridge fdb replace "+mac+" dev vxlan.calico dst "+node+
		" self permanent; ip route replace "+block+".0/26 via "+block+".0 dev vxlan.calico onlink proto 80")
}

func everything(t *testing.T) string {
	return sh(t, "", "sh", "-c",
		"ip rule; ip route show table all | grep -v 'table local' | sort; ip addr show lo | grep inet || true")
}

func way(t *testing.T, to string) string { return sh(t, "", "sh", "-c", "ip route get "+to+" || true") }

func refused(t *testing.T, n *Node, verb string, argument step.PinArgs, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.Do(ctx, verb, args(t, argument)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, not %q", verb, err, want)
	}
}

var pinned = step.PinArgs{Within: []string{"10.96.0.0/16"}, Tunnel: []string{"vxlan.calico"},
	Far: step.FarLeave, Way: step.WayTunnel}

// TestPin: what leads through a tunnel goes straight to the nodes of the link, pods of the node are reached as before,
// and nothing is unpinned before the network's own routes are there by the way that is asked for.
func TestPin(t *testing.T) {
	if !alone(t) {
		return
	}
	tunnelled(t)
	n := newNode(t)
	before := everything(t)
	strict, cross, routers := pinned, pinned, pinned
	strict.Far, strict.Way = step.FarRefuse, step.WayBGP
	cross.Way, routers.Far = step.WayCross, step.FarRoute
	refused(t, n, step.VerbPin, strict,
		"the node 198.18.9.3, which has 10.96.3.0/26, is behind the router 198.18.0.254")
	if everything(t) != before {
		t.Errorf("it was refused, and left:\n%s", everything(t))
	}
	if !do(t, n, step.VerbPin, pinned).Changed || do(t, n, step.VerbPin, pinned).Changed {
		t.Error("it is to change something once")
	}
	for to, want := range map[string]string{"10.96.2.9": "via 198.18.0.2 dev eth0",
		"10.96.3.9": "via 10.96.3.0 dev vxlan.calico", "10.96.2.7": "dev cali1",
		"10.96.1.5": "dev cali1", "10.97.0.1": "via 198.18.0.254"} {
		if got := way(t, to); !strings.Contains(got, want) {
			t.Errorf("to %s: %s", to, got)
		}
	}
	do(t, n, step.VerbRouted, pinned)
	refused(t, n, step.VerbRouted, cross, "the route to 10.96.2.0/26 still leads through the tunnel")
	refused(t, n, step.VerbUnpin, cross, "10.96.2.0/26")
	sh(t, "", "sh", "-c", "ip route replace 10.96.2.0/26 via 198.18.0.2 dev eth0 proto 80")
	do(t, n, step.VerbRouted, cross)
	do(t, n, step.VerbFollow, cross)
	refused(t, n, step.VerbFollow, pinned, "does not lead through the tunnel")
	refused(t, n, step.VerbUnpin, pinned, "does not lead through the tunnel")
	sh(t, "", "sh", "-c", "ip route del 10.96.2.0/26")
	refused(t, n, step.VerbUnpin, cross, "no route to 10.96.2.0/26")
	if got := way(t, "10.96.2.9"); !strings.Contains(got, "via 198.18.0.2 dev eth0") {
		t.Errorf("without a route of the network's own: %s", got)
	}
	through(t, "10.96.2", "198.18.0.2", "66:00:00:00:00:02")
	if !do(t, n, step.VerbUnpin, pinned).Changed || do(t, n, step.VerbUnpin, pinned).Changed {
		t.Error("it is to unpin once")
	}
	if after := everything(t); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
	do(t, n, step.VerbPin, routers)
	if got := way(t, "10.96.3.9"); !strings.Contains(got, "via 198.18.0.254 dev eth0") {
		t.Errorf("by routers: %s", got)
	}
	sh(t, "", "sh", "-c", "bridge fdb del 66:00:00:00:00:03 dev vxlan.calico dst 198.18.9.3 self")
	refused(t, n, step.VerbUnpin, routers, "does not know its end")
	refused(t, n, step.VerbPin, routers, "which node the tunnel carries packets to 10.96.3.0/26 to is not known")
}

// TestPinEnds: routes to the tunnels' own ends, which are there without the tunnel alone, hold nothing up, where their
// block is routed to the same node.
func TestPinEnds(t *testing.T) {
	if !alone(t) {
		return
	}
	tunnelled(t)
	sh(t, "", "sh", "-c",
		"ip route replace 10.96.2.0/26 via 198.18.0.2 dev eth0 onlink proto 80; ip route add 10.96.2.1 via "+
			"198.18.0.2 dev eth0 onlink proto 80; ip route add 10.96.2.2 via 198.18.0.9 dev eth0 onlink proto 80")
	n := newNode(t)
	do(t, n, step.VerbPin, pinned)
	sh(t, "", "sh", "-c", "ip route del 10.96.2.1; ip route del 10.96.2.2")
	through(t, "10.96.2", "198.18.0.2", "66:00:00:00:00:02")
	refused(t, n, step.VerbFollow, pinned, "no route to 10.96.2.2/32")
	sh(t, "", "sh", "-c", "ip route del 10.96.2.2 table 251")
	do(t, n, step.VerbFollow, pinned)
	if got := way(t, "10.96.2.9"); !strings.Contains(got, "dev vxlan.calico") {
		t.Errorf("following: %s", got)
	}
	do(t, n, step.VerbUnpin, pinned)
	if got := way(t, "10.96.2.1"); !strings.Contains(got, "dev vxlan.calico") ||
		strings.Contains(everything(t), "251") {
		t.Errorf("unpinned: %s", got)
	}
}

// TestPinBGP: routes of BIRD's are pinned as they are, and stay while the network changes to its tunnel and back.
func TestPinBGP(t *testing.T) {
	if !alone(t) {
		return
	}
	tunnelled(t)
	sh(t, "", "sh", "-c", "ip route replace 10.96.2.0/26 via 198.18.0.2 proto bird; ip route replace 10.96.3.0/26 "+
		"via 198.18.0.254 proto bird")
	n := newNode(t)
	bgp, tunnel := pinned, pinned
	bgp.Far, bgp.Way, bgp.Linger, tunnel.Far = step.FarRoute, step.WayBGP, true, step.FarRoute
	do(t, n, step.VerbPin, bgp)
	for _, block := range []string{"10.96.2", "10.96.3"} {
		refused(t, n, step.VerbUnpin, tunnel, block+".0/26 does not lead through the tunnel")
		through(t, block, "198.18.0.2", "66:00:00:00:00:02")
	}
	for to, want := range map[string]string{"10.96.2.9": "via 198.18.0.2", "10.96.3.9": "via 198.18.0.254"} {
		if got := way(t, to); !strings.Contains(got, want) {
			t.Errorf("to %s: %s", to, got)
		}
	}
	if !do(t, n, step.VerbFollow, tunnel).Changed || do(t, n, step.VerbFollow, tunnel).Changed {
		t.Error("it is to follow once")
	}
	if got := way(t, "10.96.2.9"); !strings.Contains(got, "via 10.96.2.0 dev vxlan.calico") ||
		!strings.Contains(got, "src 198.18.0.1") {
		t.Errorf("following: %s", got)
	}
	do(t, n, step.VerbPin, tunnel)
	if got := way(t, "10.96.2.9"); !strings.Contains(got, "via 198.18.0.2") {
		t.Errorf("pinned again: %s", got)
	}
	do(t, n, step.VerbUnpin, tunnel)
	if got := way(t, "10.96.2.9"); !strings.Contains(got, "dev vxlan.calico") ||
		!strings.Contains(got, "src 10.96.1.0") {
		t.Errorf("unpinned: %s", got)
	}
	do(t, n, step.VerbPin, tunnel)
	refused(t, n, step.VerbUnpin, bgp, "is not BIRD's")
	sh(t, "", "sh", "-c", "ip link del vxlan.calico")
	refused(t, n, step.VerbUnpin, bgp, "the network has no route to")
	sh(t, "", "sh", "-c",
		"ip route add 10.96.2.0/26 via 198.18.0.2 proto bird; ip route add 10.96.3.0/26 via 198.18.0.254 proto bird")
	do(t, n, step.VerbUnpin, bgp)
	if left := everything(t); strings.Contains(left, "251") || strings.Contains(left, "theseus") {
		t.Errorf("left:\n%s", left)
	}
}
