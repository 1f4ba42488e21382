package drive

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// ports gives every datagram socket the next source port of a long row. A random one would now and then
// be one that was used seconds before, and then the node's connection tracking sends the datagram where
// it sent the last: to a server that has ended, if it ended in between. Such a loss is kube-proxy's and
// comes with every restart of a server behind a Service; here it would hide what the network loses.
type ports struct{ used atomic.Uint32 }

const (
	firstPort = 10000
	lastPort  = 32767 // where the ports begin that the kernel hands out
)

// dial opens a UDP socket that is connected to the address. Ports that are in use are passed over.
func (p *ports) dial(ctx context.Context, address string) (net.Conn, error) {
	for {
		n := p.used.Add(1) % (lastPort - firstPort + 1)
		d := net.Dialer{LocalAddr: &net.UDPAddr{Port: firstPort + int(n)}}
		conn, err := d.DialContext(ctx, "udp4", address)
		if errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
			continue
		}
		return conn, err
	}
}
