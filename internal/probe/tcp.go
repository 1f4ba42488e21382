package probe

import (
	"io"
	"net"
	"sync"
	"time"
)

// silence is how long a kept connection may go without any answer before it is given up for a new one.
const silence = 10 * time.Second

// writeTimeout bounds a write into a connection whose buffers are full.
const writeTimeout = 50 * time.Millisecond

// tcpWire is a kept connection, made anew when it breaks. Probes between a break and the new connection
// are lost, and always at least one.
type tcpWire struct {
	runner  *Runner
	line    *line
	target  string
	payload *payload

	mu      sync.Mutex
	conn    net.Conn
	dialing bool
	broken  bool // no probe was lost for the last break yet
	closed  bool
	heard   time.Time
}

// newTCP connects in the background; the line's schedule starts when that has come out either way.
func (r *Runner) newTCP(l *line, p *payload) *tcpWire {
	w := &tcpWire{runner: r, line: l, target: l.path.Target.Address, payload: p}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redial()
	return w
}

func (w *tcpWire) send(seq uint64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil && at.Sub(w.heard) > silence {
		w.drop(w.conn)
	}
	if w.conn == nil || w.broken {
		w.broken = w.broken && w.conn == nil
		w.line.failed(seq)
		w.redial()
		return
	}
	w.conn.SetWriteDeadline(at.Add(writeTimeout))
	if _, err := w.conn.Write(w.payload.fill(seq, at)); err != nil {
		w.line.failed(seq)
		w.drop(w.conn)
		w.broken = false
		w.redial()
	}
}

// redial connects in the background, unless that is under way or needless. The lock is held.
func (w *tcpWire) redial() {
	if w.dialing || w.conn != nil || w.closed {
		return
	}
	w.dialing = true
	w.runner.tasks.Go(func() {
		dialer := net.Dialer{Timeout: w.runner.options.Timeout}
		conn, err := dialer.DialContext(w.runner.ctx, "tcp", w.target)
		w.connected(conn, err)
		w.runner.start(w.line, w)
	})
}

// connected takes a new connection into use.
func (w *tcpWire) connected(conn net.Conn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialing = false
	if err != nil {
		return
	}
	if w.closed {
		conn.Close()
		return
	}
	w.conn, w.heard = conn, time.Now()
	w.runner.tasks.Go(func() { w.receive(conn) })
}

// receive takes answers until the connection breaks.
func (w *tcpWire) receive(conn net.Conn) {
	buffer := make([]byte, len(w.payload.data))
	for {
		if _, err := io.ReadFull(conn, buffer); err != nil {
			break
		}
		seq, ok := w.payload.seq(buffer)
		if !ok {
			break
		}
		w.line.answered(seq)
		w.mu.Lock()
		w.heard = time.Now()
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(conn)
	w.redial()
}

// drop gives up a connection. The lock is held.
func (w *tcpWire) drop(conn net.Conn) {
	conn.Close()
	if w.conn == conn {
		w.conn, w.broken = nil, true
	}
}

func (w *tcpWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.conn != nil {
		w.conn.Close()
	}
}
