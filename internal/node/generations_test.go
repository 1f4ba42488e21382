package node

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// TestOutrun: of sockets whose routes have as many generations as there are sockets, one falls silent when its
// interface goes, by the kernel's error; none does once outrun has been called.
func TestOutrun(t *testing.T) {
	n := &Node{Sys: "/proc/sys"}
	nothing := func() {}
	from := 0 // the generation of the first socket's route, about
	for ; fallen(t, from, nothing) == 0; from += generations {
		if from > 50*generations {
			t.Skip("NOT TESTED: this kernel has not the error, or its initial namespace has had very many changes")
		}
	}
	raise(t, generations)
	if fallen(t, from, nothing) != 0 {
		t.Skip("NOT TESTED: this process is not in the kernel's initial network namespace, so " +
			"nothing that it does there helps")
	}
	from += generations
	before := fallen(t, from, nothing)
	after := fallen(t, from, func() { must(t, n.outrun()) })
	t.Logf("of %d sockets %d fell silent, and %d after outrun", generations, before, after)
	if after != 0 {
		t.Errorf("%d sockets fell silent all the same", after)
	}
}

// raise raises the generation of the routes of the namespace that this thread is in.
func raise(t *testing.T, by int) {
	t.Helper()
	file, err := os.OpenFile("/proc/sys/"+flushFile, os.O_WRONLY, 0)
	must(t, err)
	defer file.Close()
	for range by {
		_, err := file.WriteAt([]byte("1"), 0)
		must(t, err)
	}
}

// fallen counts the sockets that are not heard any more after another interface has taken over from theirs, and theirs
// went. Their routes have generations from a number on. Before the interface goes, it calls, in the namespace of the
// test.
func fallen(t *testing.T, from int, call func()) int {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(t, err)
	defer home.Close()
	defer func() { must(t, netns.Set(home)) }()

	far, err := netns.New()
	must(t, err)
	defer far.Close()
	pod, err := netns.New()
	must(t, err)
	defer pod.Close()
	for _, name := range []string{"old0", "new0"} {
		addLink(t, &netlink.Veth{LinkAttrs: linkAttrs(name), PeerName: name, PeerNamespace: netlink.NsFd(far)})
	}
	sh(t, "", "ip", "address", "add", "198.19.9.2/24", "dev", "old0")

	must(t, netns.Set(far))
	sh(t, "", "sh", "-c", `for i in old0 new0; do ip link set $i up; echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter; done
		echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; ip link set lo up; ip address add 198.19.9.1/32 dev lo`)
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(198, 19, 9, 1)})
	must(t, err)
	defer server.Close()
	must(t, server.SetReadBuffer(8<<20))

	must(t, netns.Set(pod))
	raise(t, from)
	sockets := make([]net.Conn, generations)
	for i := range sockets {
		sockets[i], err = net.Dial("udp4", server.LocalAddr().String())
		must(t, err)
		defer sockets[i].Close()
		raise(t, 1)
	}
	sh(t, "", "sh", "-c", "ip address add 198.19.9.2/32 dev new0; ip route add 198.19.9.1/32 dev new0 src 198.19.9.2")
	must(t, netns.Set(home))
	call()
	must(t, netns.Set(pod))
	sh(t, "", "ip", "link", "delete", "old0")

	count := 0
	data := make([]byte, 8)
	for _, socket := range sockets {
		if _, err := socket.Write(data); err != nil {
			t.Fatal(err)
		}
		must(t, server.SetReadDeadline(time.Now().Add(time.Second)))
		if _, err := server.Read(data); err != nil {
			if count++; count > 9 {
				t.Fatal("the other interface has not taken over")
			}
		}
	}
	return count
}
