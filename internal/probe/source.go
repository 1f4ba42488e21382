package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
)

// The source ports of new connections: those that the kernel takes by default.
const (
	firstPort = 32768
	lastPort  = 60999
	allPorts  = lastPort - firstPort + 1
	// portTries is how many ports in a row may be another socket's.
	portTries = 64
)

// sourcePorts deals out the source ports of a path's new connections, each again only after all others: at ten
// connections a second, after 47 minutes. The kernel's own choice may come back to a port at any time, and
// connection tracking keeps an attempt that nobody answered for two minutes, with the translation that it
// began with. An attempt on a Service that a node does not translate yet, such as the first ones on a path,
// would so spoil a later connection from the same port: it goes where the first went, or is invalid beside it.
type sourcePorts struct{ next atomic.Uint32 }

// dial connects from the next free port.
func (s *sourcePorts) dial(ctx context.Context, address string) (net.Conn, error) {
	s.next.CompareAndSwap(0, 1+rand.Uint32N(allPorts))
	for tries := 1; ; tries++ {
		port := firstPort + int(s.next.Add(1)%allPorts)
		conn, err := dial(ctx, "tcp", address, &net.TCPAddr{Port: port})
		if !errors.Is(err, syscall.EADDRINUSE) || tries == portTries {
			return conn, err
		}
	}
}
