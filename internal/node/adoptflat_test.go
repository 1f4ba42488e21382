package node

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// far makes a neighbour of the pods on the bridge that is on another node: one Ethernet with them, and nobody of this
// node's agent can look at it.
func (w *site) far(name, address string) *testPod {
	w.t.Helper()
	p := &testPod{name: name, path: "/run/netns/far-" + name, address: address, t: w.t, w: w}
	p.makeSpace()
	sh(w.t, "", "sh", "-c", `set -e; ip link add there type bridge; ip link add to-there type veth peer name to-here
		ip link set to-there master cni0; ip link set to-here master there; for l in there to-there to-here; do ip link set $l up; done
		ip link add pod0 type veth peer name pod1; ip link set pod0 master there; ip link set pod0 up
		ip link set pod1 netns `+filepath.Join(w.Root, p.path))
	for _, command := range []string{"link set pod1 name eth0", "address add " + address + "/24 dev eth0",
		"link set eth0 up"} {
		p.ip(strings.Fields(command)...)
	}
	return p
}

// asks lets a pod's kernel ask a neighbour by an interface whether it is still there, as its timer does every few
// seconds, and waits until it has, or would have.
func (p *testPod) asks(neighbour *testPod, link string) {
	p.t.Helper()
	_, mac, _ := strings.Cut(neighbour.ip("-o", "link", "show", "eth0"), "link/ether ")
	p.ip("neigh", "replace", neighbour.address, "lladdr", strings.Fields(mac)[0], "dev", link, "nud", "probe")
	for deadline := time.Now().Add(10 * time.Second); strings.HasSuffix(
		strings.TrimSpace(p.ip("-s", "neigh", "show", neighbour.address, "dev", link)), "probes 0 PROBE"); {
		if time.Now().After(deadline) {
			p.t.Fatal("the kernel asks nobody")
		}
	}
}

// moveWithFarNeighbour moves a pod that a neighbour on another node talks to, and whose kernel asks for that one just
// before the pod's old interface goes.
func moveWithFarNeighbour(t *testing.T, w *site) (there, back *traffic) {
	t.Helper()
	a := w.pod("a", bridgeList, nil)
	c := w.far("c", "198.19.5.200")
	there, back = talk(t, w, "c to a", c, a, a.address), talk(t, w, "a to c", a, c, c.address)
	asked := 0
	w.hook = func(at string) {
		if at == "remove the old interface" {
			asked++
			a.asks(c, oldName)
		}
	}
	do(t, w.Node, step.VerbAdopt, forth)
	w.hook = nil
	if asked != 1 || a.whole() != "routed" {
		t.Fatalf("asked %d times, and it is on %s", asked, a.whole())
	}
	return there, back
}

// TestAdoptFarNeighbour: whoever is asked for by an interface learns from the question where the pod is, and no
// gratuitous ARP before helps. A pod's old interface does not ask any more.
func TestAdoptFarNeighbour(t *testing.T) { bothWays(t, testAdoptFarNeighbour) }

func testAdoptFarNeighbour(t *testing.T) {
	if !alone(t) {
		return
	}
	there, back := moveWithFarNeighbour(t, newSite(t))
	there.end(t)
	back.end(t)
}

// TestAdoptChatty is the control: neighbours on other nodes lose the pod.
func TestAdoptChatty(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.chatty = true
	there, _ := moveWithFarNeighbour(t, w)
	for deadline := time.Now().Add(20 * time.Second); there.unanswered() < 200; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the neighbour reaches the pod: the other test shows nothing")
		}
	}
}

// unanswered counts the datagrams that did not come back yet.
func (f *traffic) unanswered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent - len(f.seen)
}

// TestAdoptFarMisses: a neighbour on another node that does not hear of the move goes on to send to the old interface,
// which stays until it has heard.
func TestAdoptFarMisses(t *testing.T) { bothWays(t, testAdoptFarMisses) }

func testAdoptFarMisses(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a := w.pod("a", bridgeList, nil)
	c := w.far("c", "198.19.5.200")
	there, back := talk(t, w, "c to a", c, a, a.address), talk(t, w, "a to c", a, c, c.address)
	c.nft("add table netdev deaf; add chain netdev deaf in { type filter hook ingress device eth0 priority 0; }; " +
		"add rule netdev deaf in arp saddr ip " + a.address + " arp daddr ip " + a.address + " drop")
	again := 0
	w.hook = func(at string) {
		if at == "tell the bridge again" {
			if again++; again == 3 {
				c.nft("delete table netdev deaf")
			}
		}
	}
	do(t, w.Node, step.VerbAdopt, forth)
	w.hook = nil
	there.end(t)
	back.end(t)
	if again < 3 || a.whole() != "routed" {
		t.Errorf("told again %d times, and it is on %s", again, a.whole())
	}
}

func (p *testPod) nft(script string) {
	sh(p.t, script, "nsenter", "--net="+filepath.Join(p.w.Root, p.path), "nft", "-f", "-")
}
