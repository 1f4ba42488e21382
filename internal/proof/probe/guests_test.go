package probe

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// crowd opens idle connections to a server from an address of loopback, and keeps them until the test ends.
func crowd(t *testing.T, server, from string, connections int) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range connections {
		conn, err := dialer.DialContext(t.Context(), "tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// TestStranger: 10,000 idle connections of a stranger cost nobody else a probe, on connections that are there or new,
// not even of the stranger's own address.
func TestStranger(t *testing.T) {
	_, tcp := echoServer(t)
	runner := NewRunner(Options{})
	defer runner.Close()
	runner.SetPaths([]v1alpha1.Path{pathTo("kept", v1alpha1.TCP, tcp), pathTo("new", v1alpha1.TCPNew, tcp)})
	answered := func(id string, more int64) bool { return resultOf(runner, id).Answered >= more }
	eventually(t, "probes are answered", func() bool { return answered("kept", 10) && answered("new", 10) })
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		crowd(t, tcp, from, 5000)
	}
	for _, id := range []string{"kept", "new"} {
		before := resultOf(runner, id).Answered
		eventually(t, "probes are answered beside a stranger", func() bool { return answered(id, before+100) })
		if got := resultOf(runner, id); got.Sent != got.Answered {
			t.Errorf("%s: %d of %d probes were lost beside 10,000 idle connections: %+v %+v",
				id, got.Sent-got.Answered, got.Sent, got.Gaps, got.Open)
		}
	}
}

// TestGuests: one too many of a source, or of all, ends a connection of that source, or of the largest: the one that
// has been silent for longest.
func TestGuests(t *testing.T) {
	g := newGuests(5, 3)
	come := func(address string) *guest {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		return g.enter(addressed{near, address})
	}
	first := come("192.0.2.1")
	second := come("192.0.2.1")
	third := come("192.0.2.1")
	first.heard()
	fourth := come("192.0.2.1")
	here := func(want ...*guest) {
		t.Helper()
		all := map[*guest]bool{}
		for _, of := range g.all {
			for one := range of {
				all[one] = true
			}
		}
		for _, one := range want {
			if !all[one] {
				t.Errorf("one of %s is gone", one.source)
			}
		}
		if len(all) != len(want) || g.total != len(want) {
			t.Errorf("%d connections, counted as %d, not %d", len(all), g.total, len(want))
		}
	}
	here(first, third, fourth)
	other := come("2001:db8::1")
	another := come("2001:db8::2")
	if other.source != another.source {
		t.Errorf("one /64 is %s and %s", other.source, another.source)
	}
	last := come("198.51.100.1")
	here(first, fourth, other, another, last) // the third is older than the fourth, and neither said anything
	var leaving sync.WaitGroup
	for _, one := range []*guest{first, second, third, fourth, other, another, last, last} {
		leaving.Go(func() { g.leave(one) })
	}
	leaving.Wait()
	here()
	if len(g.all) != 0 {
		t.Errorf("left: %v", g.all)
	}
}

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	from string
}

func (a addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(a.from), 1))
}
