package node

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// serviceAddress is that of a Service, hostAddress the node's own.
const (
	serviceAddress = "198.18.96.1"
	hostAddress    = "198.18.0.11"
)

// service leads to a pod as kube-proxy does, and masquerades who asks.
func service(t *testing.T, p *testPod) {
	t.Helper()
	sh(t, "", "sh", "-c", `set -e; ip link add own type bridge; ip address add `+hostAddress+`/18 dev own; ip link set own up; ip route add 198.18.96.0/24 dev own
		for chain in PREROUTING OUTPUT; do iptables -t nat -A $chain -d `+serviceAddress+` -j DNAT --to-destination `+p.address+`; done
		iptables -t nat -A POSTROUTING -d `+p.address+` -m conntrack --ctorigdst `+serviceAddress+` -j MASQUERADE --random-fully`)
}

// TestUntie: connections through a Service, whose source is masqueraded, outlive the way there and back, and all that
// was made for them is gone. The host's, and another pod's.
func TestUntie(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	service(t, a)
	var all []*traffic
	for name, from := range map[string]*testPod{"host": nil, "b": b} {
		all = append(all, talkThrough(t, w, name+" to a's Service", from, a, a.address, serviceAddress))
	}
	for range 2 {
		do(t, w.Node, step.VerbAdopt, forth)
		do(t, w.Node, step.VerbAdopt, back)
	}
	for _, f := range all {
		f.end(t)
	}
	mustBeUntied(t)
}

// mustBeUntied fails where something is left of what was made for connections.
func mustBeUntied(t *testing.T) {
	t.Helper()
	connections, err := connections()
	must(t, err)
	for _, c := range connections {
		if c.zone != 0 {
			t.Errorf("a copy is left: %+v", c)
		}
	}
	if tables := sh(t, "", "nft", "list", "tables"); strings.Contains(tables, untieTable) {
		t.Errorf("left:\n%s", tables)
	}
}

// TestTied is the control: the same way without that resets them.
func TestTied(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.tied = true
	a := w.pod("a", bridgeList, nil)
	service(t, a)
	f := talkThrough(t, w, "host to a's Service", nil, a, a.address, serviceAddress)
	do(t, w.Node, step.VerbAdopt, forth)
	for deadline := time.Now().Add(20 * time.Second); !f.isBroken(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection goes on: the other tests show nothing")
		}
	}
	t.Logf("the connection: %v", f.broken)
}

// TestUntieKeepsEntries: what is translated, and what TCP knows, is the same afterwards; others are left alone.
func TestUntieKeepsEntries(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	service(t, a)
	through, beside := talkThrough(t, w, "host to a's Service", nil, a, a.address, serviceAddress), talk(t, w, "host to b", nil, b, b.address)
	shape := func() map[tuple]connection {
		all, err := connections()
		must(t, err)
		found := map[tuple]connection{}
		for _, c := range all {
			c.timeout = nil
			found[c.original] = c
		}
		return found
	}
	var before map[tuple]connection
	masqueraded := func() (count int) {
		for _, c := range before {
			if c.masqueraded() && c.status&ctSeenReply != 0 {
				count++
			}
		}
		return count
	}
	for deadline := time.Now().Add(20 * time.Second); masqueraded() < 2; before = shape() {
		if time.Now().After(deadline) {
			t.Fatalf("two connections are masqueraded, of %+v", before)
		}
	}
	asked := map[netip.Addr]bool{}
	must(t, w.untie(t.Context(), func(pod netip.Addr) bool { asked[pod] = true; return pod.String() == a.address }))
	through.end(t)
	beside.end(t)
	after := shape()
	for key, c := range before {
		const kept = ctAssured | ctSeenReply | ctSourceNAT
		if now, there := after[key]; !there || now.reply != c.reply || c.status&kept&^now.status != 0 {
			t.Errorf("%+v\nis now\n%+v", c, now)
		}
	}
	if len(asked) != 1 {
		t.Errorf("asked about %v", asked)
	}
	mustBeUntied(t)
}
