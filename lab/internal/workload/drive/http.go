package drive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/wire"
)

// client sends HTTP requests over connections that it manages itself: the standard library's client
// sends a request again when a reused connection turns out to be closed, which would hide the failure.
type client struct {
	resolver resolver
	host     string
	port     string
	memory   *memory // of the host's address; nil to look it up for every connection
}

// link is a connection with what was read ahead of it.
type link struct {
	conn   net.Conn
	reader *bufio.Reader
}

// memory is an address as a resolver's cache holds it.
type memory struct {
	mu    sync.Mutex
	addr  netip.Addr
	until time.Time
}

// remembered is how long an address is used before it is looked up again: as long as the answers say.
const remembered = 30 * time.Second

// address looks the host up, unless its address is remembered.
func (c client) address(ctx context.Context) (netip.Addr, error) {
	if c.memory == nil {
		return c.resolver.lookup(ctx, c.host)
	}
	c.memory.mu.Lock()
	addr, fresh := c.memory.addr, time.Now().Before(c.memory.until)
	c.memory.mu.Unlock()
	if fresh {
		return addr, nil
	}
	addr, err := c.resolver.lookup(ctx, c.host)
	if err != nil {
		return netip.Addr{}, err
	}
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	c.memory.addr, c.memory.until = addr, time.Now().Add(remembered)
	return addr, nil
}

// dial looks the host up and connects, once each.
func (c client) dial(ctx context.Context) (link, error) {
	addr, err := c.address(ctx)
	if err != nil {
		return link{}, err
	}
	conn, err := c.resolver.ports.dial(ctx, "tcp4", net.JoinHostPort(addr.String(), c.port))
	if err != nil {
		return link{}, err
	}
	return link{conn: conn, reader: bufio.NewReader(conn)}, nil
}

// reply is the relevant part of an HTTP response.
type reply struct {
	last    bool // the server will close the connection
	leaving bool // the server is about to end
}

// exchange sends a request over a connection and reads the whole answer.
func (c client) exchange(ctx context.Context, l link) (reply, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	l.conn.SetDeadline(deadline)
	if _, err := fmt.Fprintf(l.conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", c.host); err != nil {
		return reply{}, fmt.Errorf("send: %w", err)
	}
	response, err := http.ReadResponse(l.reader, nil)
	if err != nil {
		return reply{}, fmt.Errorf("receive: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return reply{}, fmt.Errorf("receive the body: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return reply{}, unexpected(response.Status, "200 OK")
	}
	return reply{last: response.Close, leaving: response.Header.Get(wire.Leaving) != ""}, nil
}

// fresh sends one request over a new connection.
func (c client) fresh(ctx context.Context) (reply, string, error) {
	l, err := c.dial(ctx)
	if err != nil {
		return reply{}, c.host, err
	}
	defer l.conn.Close()
	r, err := c.exchange(ctx, l)
	return r, l.conn.RemoteAddr().String(), err
}

// newConnection is the request of a kind that never reuses a connection.
func (c client) newConnection(ctx context.Context) (string, error) {
	_, target, err := c.fresh(ctx)
	return target, err
}

// pool sends requests over connections that stay open, in turn: each is used often enough to hear in
// time that its server is leaving.
type pool struct {
	client client
	slots  chan link // a slot without a connection gets one when its turn comes
}

func newPool(c client, size int) *pool {
	p := &pool{client: c, slots: make(chan link, size)}
	for range size {
		p.slots <- link{}
	}
	return p
}

// reused is the request of a kind that reuses connections.
func (p *pool) reused(ctx context.Context) (target string, err error) {
	var slot link
	select {
	case slot = <-p.slots:
	case <-ctx.Done():
		return p.client.host, fmt.Errorf("every connection is busy: %w", ctx.Err())
	}
	defer func() { p.slots <- slot }()
	if slot.conn == nil {
		if slot, err = p.client.dial(ctx); err != nil {
			return p.client.host, err
		}
	}
	target = slot.conn.LocalAddr().String() + " to " + slot.conn.RemoteAddr().String()
	r, err := p.client.exchange(ctx, slot)
	if err != nil || r.last {
		slot.conn.Close()
		slot = link{}
	}
	return target, err
}

// close closes all connections. No request may be in flight.
func (p *pool) close() {
	for range cap(p.slots) {
		if l := <-p.slots; l.conn != nil {
			l.conn.Close()
		}
	}
}
