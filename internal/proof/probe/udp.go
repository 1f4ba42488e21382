package probe

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// fullSize is the payload in bytes from which a UDP path must not be fragmented, so that it shows
// whether packets of its size pass.
const fullSize = 1200

// receiveBuffer is the size in bytes of the kernel's buffer for a socket whose process is not
// scheduled: a busy machine must not look like a lossy network.
const receiveBuffer = 4 << 20

// udpWire is a connected socket, kept for the life of the path.
type udpWire struct {
	runner  *Runner
	line    *line
	target  string
	payload *Payload

	mu     sync.Mutex
	conn   *net.UDPConn // nil while it cannot be opened, for example without a route
	closed bool
}

func (r *Runner) newUDP(l *line, p *Payload) *udpWire {
	w := &udpWire{runner: r, line: l, target: l.path.Target.Address, payload: p}
	w.dial() //nolint:errcheck // the first send retries, and records the error
	return w
}

// dial connects the socket, which sends nothing, and starts its receiver.
func (w *udpWire) dial() (*net.UDPConn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, net.ErrClosed
	}
	if w.conn != nil {
		return w.conn, nil
	}
	address, err := net.ResolveUDPAddr("udp", w.target)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUDP("udp", nil, address)
	if err != nil {
		return nil, err
	}
	if len(w.payload.data) >= fullSize {
		neverFragment(conn)
	}
	holdMore(conn)
	w.conn = conn
	w.runner.tasks.Go(func() { w.receive(conn) })
	return conn, nil
}

func (w *udpWire) send(seq uint64, at time.Time) {
	conn, err := w.dial()
	if err != nil {
		w.line.failed(seq, err)
		return
	}
	data := w.payload.Fill(seq, at)
	_, err = conn.Write(data)
	if errors.Is(err, syscall.ECONNREFUSED) {
		// The error is an ICMP answer to an earlier probe; this one was not sent yet.
		_, err = conn.Write(data)
	}
	if err != nil {
		w.line.failed(seq, err)
	}
}

// receive reads answers until the socket is closed. Errors are ICMP answers to some probe, which is lost
// at its timeout.
func (w *udpWire) receive(conn *net.UDPConn) {
	buffer := make([]byte, len(w.payload.data)+1)
	for {
		n, err := conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if seq, ok := w.payload.Seq(buffer[:n]); ok {
			w.line.answered(seq)
		}
	}
}

func (w *udpWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.conn != nil {
		w.conn.Close()
	}
}
