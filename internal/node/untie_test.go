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

// TestLinger: connections outlive the interface that has their address, and only such addresses stay.
func TestLinger(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a := w.pod("a", routedList, nil)
	link := strings.Fields(sh(t, "", "ip", "route", "get", a.address))[2]
	for _, command := range []string{ // as flannel and Calico leave it: no address but on the bridge
		"ip link add cni0 type bridge", "ip address add 198.19.5.1/24 dev cni0", "ip link set cni0 up",
		"ip link add other type bridge", "ip address add 198.19.6.1/24 dev other", "ip link set other up",
		"ip address flush dev " + link, "ip route replace " + a.address + " dev " + link + " src 198.19.5.1",
		"iptables -t nat -A OUTPUT -m conntrack --ctstate NEW -j RETURN", // where nobody translates, the kernel tracks nothing
	} {
		sh(t, "", strings.Fields(command)...)
	}
	f := talk(t, w, "host to a", nil, a, a.address)
	sh(t, "", "ip", "route", "replace", a.address, "dev", link)
	args := step.SettleArgs{Network: bridged, Links: []string{"cni0", "other"}}
	for range 2 {
		if got := do(t, w.Node, step.VerbSettle, args); !strings.Contains(got.Message, "198.19.5.1,") || strings.Contains(got.Message, "198.19.6.1") {
			t.Errorf("settled: %s", got.Message)
		}
	}
	must(t, removeLink("cni0"))
	sent := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sent
	}
	for from := sent(); sent() < from+20; time.Sleep(time.Millisecond) {
	}
	f.end(t)
	sh(t, "", "ip", "address", "add", hostAddress+"/18", "dev", "other")
	if from := sh(t, "", "ip", "route", "get", a.address); strings.Contains(from, "src 198.19.5.1 ") {
		t.Errorf("new connections choose the address: %s", from)
	}
}
