package node

import (
	"context"
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
	sh(t, "", "sh", "-c", `ip link set lo up; ip link add cni0 type bridge; ip addr add 10.244.1.1/24 dev cni0; ip link set cni0 up
		ip link add flannel.1 type bridge; ip addr add 10.244.1.0/32 dev flannel.1; ip link set flannel.1 up
		ip link add vxlan.calico type bridge; ip addr add 10.244.1.9/32 dev vxlan.calico; ip link set vxlan.calico up
		ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink; ip route add 10.9.0.0/24 dev flannel.1`)
	n := newNode(t)
	asked := step.HoldArgs{Within: []string{"10.244.0.0/16"}, Source: []string{"flannel.1", "cni0"}, Target: []string{"vxlan.calico", "cali*"}}
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
	sh(t, "", "sh", "-c", "ip route add 10.244.2.0/24 via 10.244.2.9 dev vxlan.calico onlink proto 80; ip route add blackhole 10.244.1.0/24 proto 80")
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
	if rules := sh(t, "", "sh", "-c", "ip rule; ip route show table 251"); strings.Contains(rules, "251") || strings.Contains(rules, "10.244") {
		t.Errorf("left:\n%s", rules)
	}
	if after := show(); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
	if do(t, n, step.VerbUnhold, asked).Changed {
		t.Error("taken back twice")
	}
}
