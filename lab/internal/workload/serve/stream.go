package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/theseus-cni/theseus/lab/internal/workload/wire"
)

// streams serves long-lived connections.
type streams struct {
	listener net.Listener
	done     chan struct{}

	mu      sync.Mutex
	leaving bool
	conns   map[*stream]bool
	group   sync.WaitGroup
}

// stream is one connection. Its lock keeps lines whole: the goodbye comes from another goroutine.
type stream struct {
	mu   sync.Mutex
	conn net.Conn
}

func newStreams(l net.Listener) *streams {
	return &streams{listener: l, done: make(chan struct{}), conns: map[*stream]bool{}}
}

func (s *streams) run() error {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			select {
			case <-s.done:
				s.group.Wait()
				return nil
			default:
				return fmt.Errorf("accept a stream: %w", err)
			}
		}
		s.group.Go(func() { s.serve(&stream{conn: conn}) })
	}
}

// serve greets and then repeats every line. A client may hang up at any time.
func (s *streams) serve(c *stream) {
	defer c.conn.Close()
	defer s.forget(c)
	if !s.admit(c) {
		return
	}
	lines := bufio.NewScanner(c.conn)
	for lines.Scan() {
		if c.say(lines.Text()) != nil {
			return
		}
	}
}

// admit greets a client. Registering and greeting are one step, so that none misses the goodbye.
func (s *streams) admit(c *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	greeting := wire.Hello
	if s.leaving {
		greeting = wire.GoAway
	}
	s.conns[c] = true
	return c.say(greeting) == nil
}

func (s *streams) forget(c *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (c *stream) say(line string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintln(c.conn, line)
	return err
}

func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	for c := range s.conns {
		if err := c.say(wire.GoAway); err != nil && !errors.Is(err, net.ErrClosed) {
			c.conn.Close()
		}
	}
}

// shutdown closes all open connections: clients had the grace period to leave.
func (s *streams) shutdown(context.Context) {
	close(s.done)
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.conn.Close()
	}
}
