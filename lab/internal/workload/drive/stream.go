package drive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/wire"
)

// streams sends numbered messages over a few long-lived connections, in turn. A connection whose
// server asks it to go away is replaced by a new one; what was sent over the old one is still answered
// there. A connection that breaks fails every message in flight on it.
type streams struct {
	client client
	lanes  []*lane

	mu   sync.Mutex
	turn int
}

// lane is one long-lived conversation, over one connection at a time.
type lane struct {
	client client

	mu   sync.Mutex
	next uint64
	open *stream // nil before the first message and after a failure
}

// stream is one connection of a lane.
type stream struct {
	conn net.Conn

	mu      sync.Mutex
	pending map[string]chan error
	retired bool // no more messages are sent; closed when the last is answered
	broken  error
}

func newStreams(c client, lanes int) *streams {
	s := &streams{client: c}
	for range lanes {
		s.lanes = append(s.lanes, &lane{client: c})
	}
	return s
}

// message is the request of this kind.
func (s *streams) message(ctx context.Context) (string, error) {
	s.mu.Lock()
	s.turn = (s.turn + 1) % len(s.lanes)
	l := s.lanes[s.turn]
	s.mu.Unlock()
	conn, answered, err := l.send(ctx)
	if err != nil {
		return l.client.host, err
	}
	target := conn.LocalAddr().String() + " to " + conn.RemoteAddr().String()
	select {
	case err := <-answered:
		return target, err
	case <-ctx.Done():
		return target, fmt.Errorf("no echo: %w", ctx.Err())
	}
}

// send writes the next message of the lane, connecting first if there is no connection.
func (l *lane) send(ctx context.Context) (net.Conn, <-chan error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil || l.open.failed() {
		s, leaving, err := l.connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		l.open = s
		if leaving {
			go l.moveOn(s)
		}
	}
	l.next++
	answered, err := l.open.send(ctx, fmt.Sprint(l.next))
	return l.open.conn, answered, err
}

// connect opens a connection, reads the greeting and starts to listen.
func (l *lane) connect(ctx context.Context) (s *stream, leaving bool, err error) {
	fresh, err := l.client.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	deadline, _ := ctx.Deadline()
	fresh.conn.SetReadDeadline(deadline)
	lines := bufio.NewScanner(fresh.reader)
	if !lines.Scan() {
		fresh.conn.Close()
		return nil, false, fmt.Errorf("no greeting: %w", lines.Err())
	}
	fresh.conn.SetReadDeadline(time.Time{})
	s = &stream{conn: fresh.conn, pending: map[string]chan error{}}
	go s.listen(lines, func() { go l.moveOn(s) })
	return s, lines.Text() == wire.GoAway, nil
}

// moveOn replaces a connection whose server is leaving. Until the cluster routes elsewhere a new
// connection may reach the same server, so it tries again; the old one is good until its server ends.
func (l *lane) moveOn(old *stream) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, patience)
		s, leaving, err := l.connect(attempt)
		done()
		if err == nil && !leaving {
			l.replace(old, s)
			return
		}
		if err == nil {
			s.retire()
		}
		if old.failed() || !wait(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// replace sends over s from now on, if the lane still sends over old.
func (l *lane) replace(old, s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != old {
		s.retire()
		return
	}
	l.open = s
	old.retire()
}

// send writes a message and returns where its outcome will be told.
func (s *stream) send(ctx context.Context, message string) (<-chan error, error) {
	answered := make(chan error, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, s.broken
	}
	s.pending[message] = answered
	if deadline, ok := ctx.Deadline(); ok {
		s.conn.SetWriteDeadline(deadline)
	}
	if _, err := fmt.Fprintln(s.conn, message); err != nil {
		delete(s.pending, message)
		return nil, fmt.Errorf("send: %w", err)
	}
	return answered, nil
}

// listen reads echoes until the connection ends, and calls goAway once when the server says so.
func (s *stream) listen(lines *bufio.Scanner, goAway func()) {
	for lines.Scan() {
		if lines.Text() == wire.GoAway {
			goAway()
			continue
		}
		s.answer(lines.Text())
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("the server hung up")
	}
	s.fail(err)
}

// answer tells the sender of a message, and hangs up after the last one of a retired connection.
func (s *stream) answer(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answered, ok := s.pending[message]; ok {
		answered <- nil
		delete(s.pending, message)
	}
	if s.retired && len(s.pending) == 0 {
		s.conn.Close()
	}
}

// fail fails every message in flight.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("the stream broke: %w", err)
	for message, answered := range s.pending {
		answered <- s.broken
		delete(s.pending, message)
	}
	s.conn.Close()
}

func (s *stream) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken != nil
}

func (s *stream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if len(s.pending) == 0 {
		s.conn.Close()
	}
}

// close hangs up every lane.
func (s *streams) close() {
	for _, l := range s.lanes {
		l.mu.Lock()
		if l.open != nil {
			l.open.retire()
		}
		l.mu.Unlock()
	}
}
