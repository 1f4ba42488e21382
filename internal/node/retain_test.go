package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestRetain: a route that BIRD takes away goes on to serve, the main table's come first, and nothing is let go of
// before BIRD has it again.
func TestRetain(t *testing.T) {
	if !alone(t) {
		return
	}
	sh(t, "", "sh", "-c",
		`ip link set lo up; ip link add eth0 type bridge; ip addr add 198.18.0.1/24 dev eth0; ip link set eth0 up
		ip link add cali1 type bridge; ip link set cali1 up; ip route add default via 198.18.0.254
		ip route add 10.96.2.0/26 via 198.18.0.2 proto bird; ip route add 10.96.3.0/26 via 198.18.0.3 proto bird; ip route add 10.9.0.0/24 via 198.18.0.3 proto bird
		ip route add blackhole 10.96.1.0/26 proto bird; ip route add 10.96.1.5/32 dev cali1; ip route add 10.96.3.7/32 dev cali1`)
	n := newNode(t)
	asked := step.RetainArgs{Within: []string{"10.96.0.0/16"}}
	show := func() string {
		return sh(t, "", "sh", "-c", "ip rule; ip route show table all | grep -v 'table local' | sort")
	}
	way := func(to string) string { return sh(t, "", "sh", "-c", "ip route get "+to+" || true") }
	before := show()
	if !do(t, n, step.VerbRetain, asked).Changed || do(t, n, step.VerbRetain, asked).Changed {
		t.Error("it is to change something once")
	}
	if got := sh(t, "", "ip", "route", "show", "table", "252"); strings.Count(got, "via") != 2 ||
		strings.Contains(got, "10.9.") {
		t.Errorf("retained:\n%s", got)
	}
	sh(t, "", "sh", "-c",
		"ip route del 10.96.2.0/26; ip route del 10.96.3.0/26; ip route add 10.96.3.0/26 via 198.18.0.9 proto bird")
	for to, via := range map[string]string{"10.96.2.7": "via 198.18.0.2", "10.96.3.8": "via 198.18.0.9",
		"10.96.3.7": "dev cali1",
		"10.96.1.5": "dev cali1", "10.96.9.9": "via 198.18.0.254", "10.9.0.1": "via 198.18.0.3"} {
		if got := way(to); !strings.Contains(got, via) {
			t.Errorf("to %s: %s", to, got)
		}
	}
	do(t, n, step.VerbRetain, asked) // by an agent that was restarted, say
	if got := way("10.96.2.7"); !strings.Contains(got, "via 198.18.0.2") {
		t.Errorf("retained again: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.Do(ctx, step.VerbLetGo, args(t, asked)); err == nil ||
		!strings.Contains(err.Error(), "10.96.2.0/26") {
		t.Errorf("let go of what BIRD lacks: %v", err)
	}
	sh(t, "", "sh", "-c",
		"ip route add 10.96.2.0/26 via 198.18.0.2 proto bird; ip route replace 10.96.3.0/26 via 198.18.0.3 proto bird")
	if !do(t, n, step.VerbLetGo, asked).Changed || do(t, n, step.VerbLetGo, asked).Changed {
		t.Error("it is to let go once")
	}
	do(t, n, step.VerbRetain, asked)
	sh(t, "", "ip", "route", "del", "10.96.2.0/26") // its node needs the block no more
	serveBIRD(t, n.Root, "bird.ctl", "1002-node2 BGP master up 12:00:00 Established\n"+
		"1006-  BGP state:          Established\n    Neighbor address: 198.18.0.2\n0000 \n")
	n.patience = 100 * time.Millisecond
	if answer := do(t, n, step.VerbLetGo, asked); !strings.Contains(answer.Message, "all sessions are up") {
		t.Errorf("what BIRD never makes again: %+v", answer)
	}
	sh(t, "", "ip", "route", "add", "10.96.2.0/26", "via", "198.18.0.2", "proto", "bird")
	if after := show(); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}
