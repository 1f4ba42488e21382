package probe

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// silence is how long a kept connection may stay without any answer before it is replaced.
const silence = 10 * time.Second

// writeTimeout bounds a write into a connection whose buffers are full, which silence makes impossible in practice.
const writeTimeout = time.Second

// The reasons for replacing a kept connection, apart from the kernel's errors.
var (
	errSilent     = errors.New("no answer for " + silence.String())
	errGarbled    = errors.New("the answer is not an echo of the probe")
	errConnecting = errors.New("not connected yet")
)

// tcpWire is a kept connection, replaced when it breaks. Probes between a break and the new connection
// are lost, and always at least one.
type tcpWire struct {
	runner  *Runner
	line    *line
	target  string
	payload *Payload

	mu      sync.Mutex
	conn    net.Conn
	dialing bool
	broken  bool  // no probe was lost for the last break yet
	cause   error // of the last break, or of the last attempt to connect
	closed  bool
	heard   time.Time
}

// newTCP connects in the background; the line's schedule starts once the attempt has succeeded or failed.
func (r *Runner) newTCP(l *line, p *Payload) *tcpWire {
	w := &tcpWire{runner: r, line: l, target: l.path.Target.Address, payload: p, cause: errConnecting}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redial()
	return w
}

func (w *tcpWire) send(seq uint64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil && w.runner.pulse.awake(w.heard, at) > silence {
		w.drop(w.conn, errSilent)
	}
	if w.conn == nil || w.broken {
		w.broken = w.broken && w.conn == nil
		w.line.failed(seq, w.cause)
		w.redial()
		return
	}
	w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // not from at: this process may have been stalled since
	if _, err := w.conn.Write(w.payload.Fill(seq, at)); err != nil {
		w.line.failed(seq, err)
		w.drop(w.conn, err)
		w.broken = false
		w.redial()
	}
}

// redial connects in the background, unless a connection exists or is being made. The lock is held.
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

// connected starts using a new connection.
func (w *tcpWire) connected(conn net.Conn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialing = false
	if err != nil {
		w.cause = err
		return
	}
	if w.closed {
		conn.Close()
		return
	}
	w.conn, w.heard = conn, time.Now()
	w.runner.tasks.Go(func() { w.receive(conn) })
}

// receive reads answers until the connection breaks.
func (w *tcpWire) receive(conn net.Conn) {
	buffer := make([]byte, len(w.payload.data))
	var cause error
	for {
		if _, cause = io.ReadFull(conn, buffer); cause != nil {
			break
		}
		seq, ok := w.payload.Seq(buffer)
		if !ok {
			cause = errGarbled
			break
		}
		w.line.answered(seq)
		w.mu.Lock()
		w.heard = time.Now()
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(conn, cause)
	w.redial()
}

// drop closes a connection, and records why. The lock is held.
func (w *tcpWire) drop(conn net.Conn, cause error) {
	conn.Close()
	if w.conn == conn {
		w.conn, w.broken, w.cause = nil, true, cause
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
