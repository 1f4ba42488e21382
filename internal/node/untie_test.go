package node

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// serviceAddress is that of a Service, hostAddress the node's own.
const (
	serviceAddress = "198.18.96.1"
	hostAddress    = "198.18.0.11"
)

// service leads to a pod as kube-proxy does in its mode iptables, and masquerades who asks.
func service(t *testing.T, p *testPod) {
	t.Helper()
	serviceRange(t)
	sh(t, "", "sh", "-c", `set -e; for chain in PREROUTING OUTPUT; do
			iptables -t nat -A $chain -d `+serviceAddress+` -j MARK --or-mark 0x4000
			iptables -t nat -A $chain -d `+serviceAddress+` -j DNAT --to-destination `+p.address+`
		done
		iptables -t nat -A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
		iptables -t nat -A POSTROUTING -j MARK --xor-mark 0x4000
		iptables -t nat -A POSTROUTING -j MASQUERADE --random-fully`)
}

// serviceNFT does so as kube-proxy in its mode nftables.
func serviceNFT(t *testing.T, p *testPod) {
	t.Helper()
	serviceRange(t)
	const toPod = "ip daddr " + serviceAddress + " meta mark set meta mark or 0x4000 dnat to "
	sh(t, `table ip kube-proxy {
		chain nat-prerouting { type nat hook prerouting priority dstnat; `+toPod+p.address+`; }
		chain nat-output { type nat hook output priority -100; `+toPod+p.address+`; }
		chain nat-postrouting { type nat hook postrouting priority srcnat
			meta mark & 0x4000 == 0 return
			meta mark set meta mark ^ 0x4000
			masquerade fully-random
		}
	}`, "nft", "-f", "-")
}

// serviceModes are kube-proxy's.
var serviceModes = map[string]func(*testing.T, *testPod){"iptables": service, "nftables": serviceNFT}

// serviceRange gives the node its own address, and a way to the addresses of Services.
func serviceRange(t *testing.T) {
	t.Helper()
	sh(t, "", "sh", "-c", `set -e; ip link add own type bridge; ip address add `+hostAddress+
		`/18 dev own; ip link set own up; ip route add 198.18.96.0/24 dev own`)
}

// TestUntie: connections through a Service, whose source is masqueraded, outlive the way there and back, and all that
// was made for them is gone. The host's, and another pod's.
func TestUntie(t *testing.T) { bothWays(t, testUntie) }

func testUntie(t *testing.T) {
	for mode, service := range serviceModes {
		t.Run(mode, func(t *testing.T) {
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
		})
	}
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
	if tables := sh(t, "", "nft", "list", "tables"); strings.Contains(tables, "theseus") {
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

// TestNewcomers: connections through a Service that begin at any moment of many ways there and back, in the last
// moments before a flip as well, are served to their end.
func TestNewcomers(t *testing.T) { bothWays(t, testNewcomers) }

func testNewcomers(t *testing.T) {
	for mode, service := range serviceModes {
		t.Run(mode, func(t *testing.T) {
			if !alone(t) {
				return
			}
			begun, failed := newcomers(t, service, false)
			if len(failed) > 0 || begun < 80 {
				t.Errorf("of %d connections %d failed: %v", begun, len(failed), failed[:min(len(failed), 5)])
			}
			mustBeUntied(t)
		})
	}
}

// TestNewcomersTied is the control: where new connections are masqueraded as ever, those that begin after the others
// were untied are reset.
func TestNewcomersTied(t *testing.T) {
	for mode, service := range serviceModes {
		t.Run(mode, func(t *testing.T) {
			if !alone(t) {
				return
			}
			if begun, failed := newcomers(t, service, true); len(failed) == 0 {
				t.Errorf("of %d connections none failed: the other test shows nothing", begun)
			}
		})
	}
}

// newcomers moves a pod to and fro while the host, and another pod, begin connections to its Service without end, and
// says what became of those.
func newcomers(t *testing.T, service func(*testing.T, *testPod), masqueraded bool) (begun int, failed []error) {
	t.Helper()
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	service(t, a)
	var listener net.Listener
	a.in(func() (err error) {
		listener, err = net.Listen("tcp4", a.address+":8080")
		return err
	})
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	var clients sync.WaitGroup
	var lock sync.Mutex
	stop := make(chan struct{})
	client := func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := converse()
			lock.Lock()
			begun++
			if err != nil {
				failed = append(failed, err)
			}
			lock.Unlock()
		}
	}
	for range 8 {
		clients.Go(client)
	}
	for range 2 {
		clients.Go(func() {
			s, err := b.w.enter(b.path)
			must(t, err)
			defer s.close()
			must(t, s.do(func() error { client(); return nil }))
		})
	}
	w.hook = func(at string) {
		if at != "flip" {
			return
		}
		if masqueraded {
			sh(t, originScript(nil, ""), "nft", "-f", "-")
		}
		lock.Lock()
		enough := begun + 20 // begin between the last look and the flip
		lock.Unlock()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			lock.Lock()
			now := begun
			lock.Unlock()
			if now >= enough {
				return
			}
		}
		t.Error("no connection begins any more")
	}
	for range 2 {
		for _, way := range []step.AdoptArgs{forth, back} {
			way.Pods = []string{"test/a"}
			do(t, w.Node, step.VerbAdopt, way)
		}
	}
	close(stop)
	clients.Wait()
	t.Logf("%d connections, %d failed", begun, len(failed))
	return begun, failed
}

// converse is one connection through the Service.
func converse() error {
	conn, err := net.DialTimeout("tcp4", serviceAddress+":8080", 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	data := make([]byte, 32)
	for range 5 {
		if _, err := conn.Write(data); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, data); err != nil {
			return err
		}
		time.Sleep(4 * time.Millisecond)
	}
	return nil
}

// TestUntieKeepsEntries: what is translated, and what TCP knows, is the same afterwards; others are left alone.
func TestUntieKeepsEntries(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	service(t, a)
	through, beside := talkThrough(t, w, "host to a's Service", nil, a, a.address, serviceAddress),
		talk(t, w, "host to b", nil, b, b.address)
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
		// where nobody translates, the kernel tracks nothing
		"iptables -t nat -A OUTPUT -m conntrack --ctstate NEW -j RETURN",
	} {
		sh(t, "", strings.Fields(command)...)
	}
	f := talk(t, w, "host to a", nil, a, a.address)
	sh(t, "", "ip", "route", "replace", a.address, "dev", link)
	args := step.SettleArgs{Network: bridged, Links: []string{"cni0", "other"}}
	for range 2 {
		if got := do(t, w.Node, step.VerbSettle, args); !strings.Contains(got.Message, "198.19.5.1,") ||
			strings.Contains(got.Message, "198.19.6.1") {
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
