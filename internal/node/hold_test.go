package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestHold: at every moment there is a route to every range; the target's wins as soon as it is there, and the way
// back waits until it has gone.
func TestHold(t *testing.T) {
	if !alone(t) {
		return
	}
	sh(t, "", "sh", "-c",
		`ip link set lo up; ip link add cni0 type bridge; ip addr add 10.244.1.1/24 dev cni0; ip link set cni0 up
		ip link add flannel.1 type bridge; ip addr add 10.244.1.0/32 dev flannel.1; ip link set flannel.1 up
		ip link add vxlan.calico type bridge; ip addr add 10.244.1.9/32 dev vxlan.calico; ip link set vxlan.calico up
		ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink; ip route add 10.9.0.0/24 dev flannel.1`)
	n := newNode(t)
	asked := step.HoldArgs{Within: []string{"10.244.0.0/16"}, Source: []string{"flannel.1", "cni0"},
		Target: []string{"vxlan.calico", "cali*"}}
	encoded := args(t, asked)
	show := func() string { return sh(t, "", "ip", "route", "show") }
	before := show()
	if got := do(t, n, step.VerbHold, asked); !got.Changed {
		t.Error("nothing was held")
	}
	held := show()
	way := func() string { return sh(t, "", "ip", "route", "get", "10.244.2.7") }
	if strings.Count(held, "metric 100") != 2 || !strings.Contains(held, "10.9.0.0/24 dev flannel.1 scope link") {
		t.Errorf("held:\n%s", held)
	}
	if do(t, n, step.VerbHold, asked).Changed || show() != held {
		t.Errorf("held again:\n%s", show())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.Do(ctx, step.VerbCarried, encoded); err == nil || !strings.Contains(err.Error(), "10.244.2.0/24") {
		t.Errorf("without a route of the target: %v", err)
	}
	sh(t, "", "sh", "-c", "ip route add 10.244.2.0/24 via 10.244.2.9 dev vxlan.calico onlink proto 80; ip route add "+
		"blackhole 10.244.1.0/24 proto 80")
	do(t, n, step.VerbCarried, asked)
	if got := way(); !strings.Contains(got, "dev flannel.1") {
		t.Errorf("before the pin goes: %s", got)
	}
	do(t, n, step.VerbYield, asked)
	if got := way(); !strings.Contains(got, "dev vxlan.calico") || do(t, n, step.VerbYield, asked).Changed {
		t.Errorf("after it: %s", got)
	}
	do(t, n, step.VerbHold, asked)
	if got := way(); !strings.Contains(got, "dev flannel.1") {
		t.Errorf("taken back: %s", got)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.Do(ctx, step.VerbUnhold, encoded); err == nil {
		t.Error("the source's routes were put before those of the target")
	}
	sh(t, "", "sh", "-c", "ip route del 10.244.2.0/24 proto 80; ip route del blackhole 10.244.1.0/24 proto 80")
	do(t, n, step.VerbUnhold, asked)
	if rules := sh(t, "", "sh", "-c", "ip rule; ip route show table 251"); strings.Contains(rules, "251") ||
		strings.Contains(rules, "10.244") {
		t.Errorf("left:\n%s", rules)
	}
	if after := show(); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
	if do(t, n, step.VerbUnhold, asked).Changed {
		t.Error("taken back twice")
	}
}

// TestHoldRouted: a network without a tunnel has routes by the nodes' own interfaces, or none, where a router knows the
// way. Both are pinned, and neither is the target's.
func TestHoldRouted(t *testing.T) {
	if !alone(t) {
		return
	}
	sh(t, "", "sh", "-c",
		`ip link set lo up; ip link add cni0 type bridge; ip addr add 10.244.1.1/24 dev cni0; ip link set cni0 up
		ip link add eth0 type bridge; ip addr add 192.0.2.1/24 dev eth0; ip link set eth0 up
		ip link add vxlan.calico type bridge; ip addr add 10.244.1.9/32 dev vxlan.calico; ip link set vxlan.calico up
		ip link add cali1 type bridge; ip link set cali1 up; ip route add 10.244.1.7 dev cali1
		ip route add default via 192.0.2.254; ip route add 10.244.2.0/24 via 192.0.2.2; ip route add 10.9.0.0/24 via 192.0.2.9`)
	n := newNode(t)
	asked := step.HoldArgs{Within: []string{"10.244.0.0/23", "10.244.2.0/24"}, Bits: 24, Source: []string{"*"},
		Target: []string{"vxlan.calico", "cali*"}}
	show := func() string { return sh(t, "", "ip", "route", "show") }
	way := func(address string) string { return sh(t, "", "ip", "route", "get", address) }
	before := show()
	do(t, n, step.VerbHold, asked)
	held, pinned := show(), sh(t, "", "ip", "route", "show", "table", "251")
	if strings.Count(held, "metric 100") != 2 || !strings.Contains(held, "10.244.1.7 dev cali1 scope link") {
		t.Errorf("held:\n%s", held)
	}
	if strings.Count(pinned, "10.244.") != 2 || !strings.Contains(pinned, "10.244.0.0/24 via 192.0.2.254") ||
		!strings.Contains(pinned, "10.244.2.0/24 via 192.0.2.2 ") {
		t.Errorf("pinned:\n%s", pinned)
	}
	sh(t, "", "sh", "-c", "ip route add 10.244.2.0/24 via 10.244.2.9 dev vxlan.calico onlink proto 80")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	// the one waits, the other does not
	for verb, ctx := range map[string]context.Context{step.VerbCarried: ctx, step.VerbYield: t.Context()} {
		if _, err := n.Do(ctx, verb, args(t, asked)); err == nil || !strings.Contains(err.Error(), "10.244.0.0/24") {
			t.Errorf("%s without a route of the target to what only a router knew: %v", verb, err)
		}
	}
	sh(t, "", "sh", "-c", "ip route add 10.244.0.0/24 via 10.244.0.9 dev vxlan.calico onlink proto 80")
	do(t, n, step.VerbCarried, asked)
	for _, there := range []bool{true, false, true} {
		verb, want := step.VerbYield, "dev vxlan.calico"
		if !there {
			verb, want = step.VerbHold, "dev eth0"
		}
		do(t, n, verb, asked)
		for _, address := range []string{"10.244.0.7", "10.244.2.7"} {
			if got := way(address); !strings.Contains(got, want) {
				t.Errorf("after %s: %s", verb, got)
			}
		}
		if got := way("10.244.1.8"); !strings.Contains(got, "dev cni0") {
			t.Errorf("after %s, on this node: %s", verb, got)
		}
	}
	do(t, n, step.VerbHold, asked)
	sh(t, "", "sh", "-c", "ip route del 10.244.2.0/24 proto 80; ip route del 10.244.0.0/24 proto 80")
	do(t, n, step.VerbUnhold, asked)
	if rules := sh(t, "", "sh", "-c", "ip rule; ip route show table 251"); strings.Contains(rules, "251") ||
		strings.Contains(rules, "10.244") || show() != before {
		t.Errorf("left:\n%s\n%s\nbefore:\n%s", rules, show(), before)
	}
	sh(t, "", "ip", "route", "del", "default")
	if _, err := n.Do(t.Context(), step.VerbHold, args(t, asked)); err == nil ||
		!strings.Contains(err.Error(), "10.244.0.0/24") {
		t.Errorf("where no route leads: %v", err)
	}
}

func TestBlocksOf(t *testing.T) {
	for _, test := range []struct {
		within []string
		bits   int
		want   string
	}{
		{[]string{"10.0.0.0/23", "10.0.4.0/24"}, 24, "[10.0.0.0/24 10.0.1.0/24 10.0.4.0/24]"},
		{[]string{"255.255.254.0/23"}, 24, "[255.255.254.0/24 255.255.255.0/24]"},
		{[]string{"10.0.0.0/25"}, 24, "[]"},
		{[]string{"10.0.0.4/30"}, 32, "[10.0.0.4/32 10.0.0.5/32 10.0.0.6/32 10.0.0.7/32]"},
		{nil, 24, "[]"},
	} {
		within, err := prefixes(test.within)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(blocksOf(within, test.bits)); got != test.want {
			t.Errorf("%v in parts of %d: %s, not %s", test.within, test.bits, got, test.want)
		}
	}
}

// TestHoldFlat: on a flat network the bridge leads to the pods of all nodes. It goes on to, but for the node's own
// pods, those too that come up meanwhile, until the target reaches every other node.
func TestHoldFlat(t *testing.T) {
	if !alone(t) {
		return
	}
	sh(t, "", "sh", "-c",
		`ip link set lo up; ip link add weave type bridge; ip addr add 10.32.0.1/12 dev weave; ip link set weave up
		ip link add vxlan.calico type bridge; ip addr add 10.32.0.9/32 dev vxlan.calico; ip link set vxlan.calico up
		ip link add cali1 type bridge; ip link set cali1 up; ip route add 10.32.0.7 dev cali1`)
	n := newNode(t)
	asked := step.HoldArgs{Within: []string{"10.32.0.0/12"}, Source: []string{"weave", "vethwe*"},
		Target: []string{"vxlan.calico", "cali*"}, Others: 2}
	before := sh(t, "", "sh", "-c", "ip rule; ip -4 route show table main | sed s/linkdown//")
	way := func(address, link string) {
		t.Helper()
		if got := sh(t, "", "ip", "route", "get", address); !strings.Contains(got, "dev "+link+" ") {
			t.Errorf("%s is not reached through %s: %s", address, link, got)
		}
	}
	refuses := func(verb, why string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := n.Do(ctx, verb, args(t, asked)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if !do(t, n, step.VerbHold, asked).Changed || do(t, n, step.VerbHold, asked).Changed {
		t.Error("held never, or twice")
	}
	refuses(step.VerbCarried, "0 of 2 other nodes")
	sh(t, "", "sh", "-c",
		`ip route add 10.40.0.0/26 via 10.40.0.3 dev vxlan.calico onlink; ip route add 10.40.9.64/26 via 10.40.0.3 dev vxlan.calico onlink
		ip route add blackhole 10.32.0.0/26 proto 80; ip route add 10.32.0.8 dev cali1`)
	refuses(step.VerbCarried, "1 of 2 other nodes")
	refuses(step.VerbYield, "1 of 2 other nodes")
	way("10.40.0.7", "weave")
	way("10.32.0.7", "cali1")
	way("10.32.0.8", "cali1")
	sh(t, "", "ip", "route", "add", "10.36.0.0/26", "via", "10.36.0.3", "dev", "vxlan.calico", "onlink")
	do(t, n, step.VerbCarried, asked)
	way("10.36.0.7", "weave")
	do(t, n, step.VerbYield, asked)
	way("10.36.0.7", "vxlan.calico")
	way("10.32.0.8", "cali1")
	if do(t, n, step.VerbYield, asked).Changed {
		t.Error("yielded twice")
	}
	do(t, n, step.VerbHold, asked)
	way("10.36.0.7", "weave")
	refuses(step.VerbUnhold, "routes to 2 other nodes")
	sh(t, "", "sh", "-c",
		`ip route del 10.40.0.0/26; ip route del 10.40.9.64/26; ip route del 10.36.0.0/26; ip route del blackhole 10.32.0.0/26 proto 80; ip route del 10.32.0.8`)
	do(t, n, step.VerbUnhold, asked)
	if after := sh(t, "", "sh", "-c", "ip rule; ip -4 route show table main | sed s/linkdown//"); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}
