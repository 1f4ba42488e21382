package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
)

// The source ports of new connections and of DNS queries: the kernel's default range.
const (
	firstPort = 32768
	lastPort  = 60999
	allPorts  = lastPort - firstPort + 1
	// portTries is how many ports in a row may be in use by other sockets.
	portTries = 64
)

// sourcePorts assigns the source ports of a path's new connections. It uses each port again only after all others: at
// ten connections a second, after 47 minutes. The kernel may choose a port again at any time. But connection tracking
// keeps an unanswered attempt for two minutes, with the translation that it began with. An attempt on a Service that a
// node does not translate yet, such as the first ones on a path, would so spoil a later connection from the same port:
// that goes where the first one went, or is invalid. The same holds for a DNS query: its entry is kept for half a
// minute, and kube-proxy keeps it as long as the terminating pod of that name server still serves.
type sourcePorts struct{ next atomic.Uint32 }

// dial connects from the next free port, by TCP or UDP.
func (s *sourcePorts) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.next.CompareAndSwap(0, 1+rand.Uint32N(allPorts))
	for tries := 1; ; tries++ {
		port := firstPort + int(s.next.Add(1)%allPorts)
		var from net.Addr = &net.TCPAddr{Port: port}
		if network == "udp" {
			from = &net.UDPAddr{Port: port}
		}
		conn, err := dial(ctx, network, address, from)
		if !errors.Is(err, syscall.EADDRINUSE) || tries == portTries {
			return conn, err
		}
	}
}
