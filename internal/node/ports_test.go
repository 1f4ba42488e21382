package node

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestUntrackedPort: a node masquerades with the one port that its agent exempts from connection tracking, of which
// Linux would choose any, and gets no answer; in a joint phase it gets each, from the same address, and what passes
// between the networks keeps its source.
func TestUntrackedPort(t *testing.T) {
	if !alone(t) {
		return
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	must(t, err)
	far, err := netns.New()
	must(t, err)
	must(t, netns.Set(home))
	addLink(t, &netlink.Veth{LinkAttrs: linkAttrs("vxlan.calico"), PeerName: "far", PeerNamespace: netlink.NsFd(far)})
	sh(t, "", "sh", "-ec", `ip link add own type bridge; ip address add 198.18.0.11/24 dev own; ip link set own up
		ip address add 198.19.0.1/32 dev vxlan.calico; ip link set vxlan.calico up; ip route add 198.19.16.0/24 dev vxlan.calico
		echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
		iptables -t raw -A PREROUTING -p udp --dport 4789 -j NOTRACK
		iptables -A INPUT -p udp --dport 4789 -j DROP
		iptables -t mangle -A OUTPUT -p udp --dport 9998 -j MARK --or-mark 0x4000
		iptables -t mangle -A OUTPUT -p udp --dport 9997 -j MARK --or-mark 0x2000
		iptables -t nat -A POSTROUTING -p udp -m mark --mark 0x4000/0x4000 -j MASQUERADE --to-ports 4789
		iptables -t nat -A POSTROUTING -p udp -m mark --mark 0x2000/0x2000 -j MASQUERADE --to-ports 4789
		iptables -t nat -A POSTROUTING -p udp -o vxlan.calico -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --to-ports 4789`)
	must(t, netns.Set(far))
	sh(t, "", "sh", "-ec", `ip address add 198.19.16.5/24 dev far; ip link set far up; ip route add default dev far
		echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter`)
	for _, port := range []int{9997, 9998, 9999} {
		server, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		must(t, err)
		go func() {
			var one [1]byte
			for {
				_, from, err := server.ReadFromUDP(one[:])
				if err != nil {
					return
				}
				server.WriteTo([]byte(from.IP.String()), from) //nolint:errcheck // the test sees that no answer came
			}
		}()
	}
	must(t, netns.Set(home))

	ask := func(when, from string, port int, want string) {
		t.Helper()
		conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
			&net.UDPAddr{IP: net.IPv4(198, 19, 16, 5), Port: port})
		must(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte{1})
		must(t, err)
		limit := 10 * time.Second
		if want == "" {
			limit = 300 * time.Millisecond
		}
		must(t, conn.SetReadDeadline(time.Now().Add(limit)))
		var answer [64]byte
		size, err := conn.Read(answer[:])
		if got := string(answer[:size]); got != want {
			t.Errorf("%s: from %s to port %d: the source is %q, want %q (%v)", when, from, port, got, want, err)
		}
	}
	n := newNode(t)
	for range 2 {
		for _, port := range []int{9997, 9998, 9999} {
			ask("as it is", "198.18.0.11", port, "")
		}
		sh(t, "", "sh", "-ec", "ip address add 198.19.5.7/32 dev own")
		do(t, n, step.VerbJoin, step.JoinArgs{Old: []string{"198.19.5.0/24"}, New: []string{"198.19.16.0/24"},
			Untracked: &step.Untracked{Port: 4789, Link: "vxlan.calico"}})
		for _, port := range []int{9997, 9998, 9999} {
			ask("joined", "198.18.0.11", port, "198.19.0.1")
		}
		ask("joined, from one network to the other", "198.19.5.7", 9998, "198.19.5.7")
		do(t, n, step.VerbPart, step.JoinArgs{})
		sh(t, "", "conntrack", "-F")
		do(t, n, step.VerbJoin, step.JoinArgs{Untracked: &step.Untracked{Port: 4789, Link: "vxlan.calico"}})
		for _, port := range []int{9997, 9998, 9999} {
			ask("alone", "198.18.0.11", port, "198.19.0.1")
		}
		do(t, n, step.VerbPart, step.JoinArgs{})
		sh(t, "", "conntrack", "-F")
		sh(t, "", "ip", "address", "del", "198.19.5.7/32", "dev", "own")
	}
}

// TestUntrackedPortOfPods: what pods send to the outside keeps off the port as well, and what they send to pods is not
// masqueraded.
func TestUntrackedPortOfPods(t *testing.T) {
	if !alone(t) {
		return
	}
	runtime.LockOSThread()
	m := newMasqueraded(t)
	sh(t, "", "sh", "-ec", `iptables -t raw -A PREROUTING -p udp --dport 4789 -j NOTRACK
		iptables -t nat -A POSTROUTING -p udp -s 198.19.32.0/20 ! -d 198.19.32.0/20 -j MASQUERADE --to-ports 4789`)
	port := &step.Untracked{Port: 4789, Link: "vxlan.calico", From: []string{"198.19.32.0/20"},
		Except: []string{"198.19.32.0/20"}}
	answered := func(when string, want bool) {
		t.Helper()
		if got := m.answered("udp4"); got != want {
			t.Errorf("%s: answered is %t", when, got)
		}
	}
	answered("as it is", false)
	do(t, m.node, step.VerbJoin, step.JoinArgs{Untracked: port})
	answered("kept off the port", true)
	wider := *port
	wider.Except = append(wider.Except, "198.18.8.0/24") // as if the server were a pod
	do(t, m.node, step.VerbJoin, step.JoinArgs{Untracked: &wider})
	answered("what is no outside is left to the agent's rules", false)
	joined := step.JoinArgs{Old: []string{"198.19.32.0/20"}, New: []string{"198.19.64.0/20"}, Untracked: port}
	do(t, m.node, step.VerbJoin, joined)
	answered("while two networks are joined", true)
	do(t, m.node, step.VerbPart, step.JoinArgs{})
	answered("as it was", false)
}

func TestOtherPorts(t *testing.T) {
	for port, want := range map[int]string{4789: "4790-65535", 53: "1024-65535",
		8472: "8473-65535", 60000: "1024-59999"} {
		if got := beside(port); got != want {
			t.Errorf("beside %d: %s, want %s", port, got, want)
		}
	}
}
