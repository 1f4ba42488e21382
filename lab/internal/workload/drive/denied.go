package drive

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errLeak = errors.New("a denied request was answered")

// denied turns requests around: an answer is what must not happen. The Service's address is looked up
// once, before anything is sent, so that a failure always means an answer.
type denied struct {
	tcp string // address and port
	udp string

	mu   sync.Mutex
	flow net.Conn // one UDP flow that lasts: connection tracking may let it through for good
}

// connect tries to connect.
func (d *denied) connect(ctx context.Context) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", d.tcp)
	if err != nil {
		return d.tcp, nil
	}
	defer conn.Close()
	return conn.LocalAddr().String() + " to " + d.tcp, errLeak
}

// datagram sends a datagram from a new port.
func (d *denied) datagram(ctx context.Context) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp4", d.udp)
	if err != nil {
		return d.udp, nil // no route: denied well enough
	}
	defer conn.Close()
	target, err := roundTrip(ctx, conn)
	return target, inverted(err)
}

// again sends a datagram of the flow that lasts. One request at a time uses it.
func (d *denied) again(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flow == nil {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "udp4", d.udp)
		if err != nil {
			return d.udp, nil
		}
		d.flow = conn
	}
	target, err := roundTrip(ctx, d.flow)
	return target, inverted(err)
}

// close ends the flow. No request may be under way.
func (d *denied) close() {
	if d.flow != nil {
		d.flow.Close()
	}
}

func inverted(err error) error {
	if err == nil {
		return errLeak
	}
	return nil
}
