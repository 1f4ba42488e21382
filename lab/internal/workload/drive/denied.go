package drive

import (
	"context"
	"errors"
	"net"
)

var errLeak = errors.New("a denied request was answered")

// denied inverts requests: an answer is the failure. The Service's address is looked up
// once, before anything is sent, so that a failure always means an answer.
type denied struct {
	tcp string // address and port
	udp string

	// flows are long-lived UDP flows that no request uses at the moment: connection tracking may let one through
	// forever.
	flows chan *flow
}

// flow is one UDP flow. denied is true once a datagram of it was not answered.
type flow struct {
	net.Conn
	denied bool
}

// lasting is how many UDP flows last: at 20 requests a second that each wait for half a second, ten are in use.
const lasting = 12

// newDenied makes the flows that last.
func newDenied(ctx context.Context, tcp, udp string) (*denied, error) {
	d := &denied{tcp: tcp, udp: udp, flows: make(chan *flow, lasting)}
	for range lasting {
		begun, err := d.begin(ctx)
		if err != nil {
			d.close()
			return nil, err
		}
		d.flows <- begun
	}
	return d, nil
}

// begin makes a flow.
func (d *denied) begin(ctx context.Context) (*flow, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", d.udp)
	if err != nil {
		return nil, err
	}
	return &flow{Conn: conn}, nil
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

// again sends a datagram of a flow that lasts. One request at a time uses it. A flow that was never denied began before
// the policy was in force, and connection tracking would let it through for as long as it lasts: another one takes its
// place. The answer counts as a leak all the same.
func (d *denied) again(ctx context.Context) (string, error) {
	select {
	case used := <-d.flows:
		defer func() { d.flows <- used }()
		target, err := roundTrip(ctx, used.Conn)
		if err != nil {
			used.denied = true
		} else if !used.denied {
			if begun, failed := d.begin(ctx); failed == nil {
				used.Close()
				used = begun
			}
		}
		return target, inverted(err)
	case <-ctx.Done():
		return d.udp, nil
	}
}

// close ends the flows. No request may be in flight.
func (d *denied) close() {
	for range len(d.flows) {
		(<-d.flows).Close()
	}
}

func inverted(err error) error {
	if err == nil {
		return errLeak
	}
	return nil
}
