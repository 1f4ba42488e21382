package drive

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/workload/serve"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// Addresses of the two servers that take turns.
const (
	first  = "127.0.0.2"
	second = "127.0.0.3"
)

// names is a name server that gives every name the address that was set last.
type names struct {
	mu   sync.Mutex
	addr netip.Addr
	conn net.PacketConn
}

func serveNames(t *testing.T, addr string) *names {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn}
	n.set(addr)
	var group sync.WaitGroup
	group.Go(n.run)
	t.Cleanup(func() {
		conn.Close()
		group.Wait()
	})
	return n
}

func (n *names) set(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = netip.MustParseAddr(addr)
}

func (n *names) run() {
	buffer := make([]byte, 512)
	for {
		length, from, err := n.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		n.mu.Lock()
		address := n.addr.As4()
		n.mu.Unlock()
		m := append([]byte(nil), buffer[:length]...)
		binary.BigEndian.PutUint16(m[6:], 1)
		m = append(m, record(typeA, address[:]...)...)
		n.conn.WriteTo(m, from)
	}
}

func (n *names) client(port string) client {
	return client{resolver: resolver{server: n.conn.LocalAddr().String(), ports: &ports{}},
		host: "server.test", port: port}
}

// freePort is a TCP and UDP port that nobody listens on.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", first+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// started runs servers until the returned function is called, which waits for their end.
func started(t *testing.T, config serve.Config) (end func()) {
	ready, log := io.Pipe()
	config.Log = log
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve.Run(ctx, config)
		log.Close()
	}()
	line := make([]byte, len("serving\n"))
	if _, err := io.ReadFull(ready, line); err != nil {
		t.Fatalf("the servers did not start: %v", <-done)
	}
	go io.Copy(io.Discard, ready)
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the servers ended with: %v", err)
			}
		})
	}
	t.Cleanup(end)
	return end
}

// counted waits until the driver has counted enough.
func counted(t *testing.T, d *Driver, enough func(tally.Summary) bool) {
	t.Helper()
	rigtest.Until(t, "enough is counted", func() bool { return enough(d.Summary(time.Now())) })
}

// TestServersLeaveWithoutLoss replaces a server under traffic as Kubernetes does: names point elsewhere
// at about the time at which the server is told to end.
func TestServersLeaveWithoutLoss(t *testing.T) {
	port, streamPort := freePort(t), freePort(t)
	config := func(host string) serve.Config {
		return serve.Config{
			Name: host, HTTP: net.JoinHostPort(host, port), UDP: net.JoinHostPort(host, port),
			Stream: net.JoinHostPort(host, streamPort), Grace: 500 * time.Millisecond,
		}
	}
	end := started(t, config(first))
	started(t, config(second))
	dns := serveNames(t, first)

	pool, stream := newPool(dns.client(port), 3), newStreams(dns.client(streamPort), 2)
	d := &Driver{close: func() {
		pool.close()
		stream.close()
	}}
	d.expect("http-new", 100, dns.client(port).newConnection)
	d.expect("http-reused", 100, pool.reused)
	d.expect("tcp-stream", 100, stream.message)
	d.expect("udp", 100, dns.client(port).datagram)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { d.Run(ctx) })

	counted(t, d, func(s tally.Summary) bool { return d.Warm() && s.Sent() > 50 })
	before := d.Summary(time.Now()).Sent()
	group.Go(end)
	dns.set(second)
	counted(t, d, func(s tally.Summary) bool { return s.Sent() > before+300 })
	end()
	after := d.Summary(time.Now()).Sent()
	counted(t, d, func(s tally.Summary) bool { return s.Sent() > after+100 })
	cancel()
	group.Wait()

	for name, c := range d.Summary(time.Now()).Kinds {
		if c.Failed != 0 {
			t.Errorf("%s lost %d of %d: %v", name, c.Failed, c.Sent, c.Errors)
		}
		if c.InFlight != 0 {
			t.Errorf("%s: %d requests were never counted", name, c.InFlight)
		}
	}
}

// TestLossIsSeen kills what is asked: whatever was under way must be counted as failed.
func TestLossIsSeen(t *testing.T) {
	port, streamPort := freePort(t), freePort(t)
	end := started(t, serve.Config{
		HTTP: net.JoinHostPort(first, port), UDP: net.JoinHostPort(first, port),
		Stream: net.JoinHostPort(first, streamPort),
	})
	dns := serveNames(t, first)
	pool, stream := newPool(dns.client(port), 3), newStreams(dns.client(streamPort), 2)
	d := &Driver{}
	d.expect("http-new", 100, dns.client(port).newConnection)
	d.expect("http-reused", 100, pool.reused)
	d.expect("tcp-stream", 100, stream.message)
	d.expect("udp", 100, dns.client(port).datagram)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { d.Run(ctx) })
	counted(t, d, func(s tally.Summary) bool { return d.Warm() && s.Failed() == 0 })
	end()
	counted(t, d, func(s tally.Summary) bool {
		for _, c := range s.Kinds {
			if c.Failed < 3 {
				return false
			}
		}
		return true
	})
	cancel()
	group.Wait()
}

// TestMembers asks a set of which one member leaves and comes back.
func TestMembers(t *testing.T) {
	port := freePort(t)
	address := func(host string) serve.Config {
		return serve.Config{HTTP: net.JoinHostPort(host, port), Grace: 500 * time.Millisecond}
	}
	end := started(t, address(first))
	started(t, address(second))
	set := newMembers([]client{serveNames(t, first).client(port), serveNames(t, second).client(port)})

	d := &Driver{}
	d.expect("member", 100, set.ask)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { d.Run(ctx) })
	group.Go(func() { set.watch(ctx) })
	counted(t, d, func(s tally.Summary) bool { return s.Sent() > 20 })
	end()
	if !set.isAway(0) {
		t.Error("the member that left is still asked")
	}
	started(t, address(first))
	counted(t, d, func(tally.Summary) bool { return !set.isAway(0) })
	back := d.Summary(time.Now()).Sent()
	counted(t, d, func(s tally.Summary) bool { return s.Sent() > back+20 })
	cancel()
	group.Wait()
	if c := d.Summary(time.Now()).Kinds["member"]; c.Failed != 0 {
		t.Errorf("lost %d of %d: %v", c.Failed, c.Sent, c.Errors)
	}
}

// TestDeniedLater: flows that began before the policy was in force are let through, as connection tracking does, and
// others take their place. One that was denied before is never replaced: its answer is a leak each time.
func TestDeniedLater(t *testing.T) {
	server, err := net.ListenPacket("udp4", net.JoinHostPort(first, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var policy, broken atomic.Bool
	go func() {
		known, buffer := map[string]bool{}, make([]byte, 64)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if !policy.Load() {
				known[from.String()] = true
			}
			if known[from.String()] || broken.Load() {
				server.WriteTo(buffer[:n], from) //nolint:errcheck // the client asks again
			}
		}
	}()
	victim, err := newDenied(t.Context(), "", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer victim.close()
	round := func() (leaks int) {
		for range lasting {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if _, err := victim.again(ctx); errors.Is(err, errLeak) {
				leaks++
			}
			cancel()
		}
		return leaks
	}
	if leaks := round(); leaks != lasting {
		t.Errorf("%d of %d flows were answered before the policy", leaks, lasting)
	}
	policy.Store(true)
	if leaks := round(); leaks != 0 {
		t.Errorf("%d flows are let through that began after the policy", leaks)
	}
	broken.Store(true)
	for range 2 {
		if leaks := round(); leaks != lasting {
			t.Errorf("%d of %d answered flows are leaks", leaks, lasting)
		}
	}
}

// TestDenied sends what should be denied to a server that answers, and to nobody.
func TestDenied(t *testing.T) {
	open, shut := freePort(t), freePort(t)
	started(t, serve.Config{HTTP: net.JoinHostPort(first, open), UDP: net.JoinHostPort(first, open)})
	for name, test := range map[string]struct {
		port string
		leak bool
	}{"answered": {open, true}, "nobody there": {shut, false}} {
		t.Run(name, func(t *testing.T) {
			victim, err := newDenied(t.Context(), net.JoinHostPort(first, test.port),
				net.JoinHostPort(first, test.port))
			if err != nil {
				t.Fatal(err)
			}
			defer victim.close()
			for kind, send := range map[string]request{"tcp": victim.connect,
				"udp": victim.datagram, "flow": victim.again} {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				target, err := send(ctx)
				cancel()
				if errors.Is(err, errLeak) != test.leak {
					t.Errorf("%s: %v; want a leak: %v", kind, err, test.leak)
				}
				if !strings.Contains(target, test.port) {
					t.Errorf("%s: the target is %q, which does not name the port", kind, target)
				}
			}
		})
	}
}

// TestPeer: a client of one address counts the time in which nothing answers there.
func TestPeer(t *testing.T) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var silent atomic.Bool
	go func() {
		for buffer := make([]byte, 64); ; {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && !silent.Load() {
				conn.WriteTo(buffer[:n], from)
			}
		}
	}()
	d, err := Peer(conn.LocalAddr().String(), 100)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(1500*time.Millisecond, func() { silent.Store(true) })
	time.AfterFunc(2*time.Second, func() { silent.Store(false) })
	time.AfterFunc(2500*time.Millisecond, cancel)
	d.Run(ctx)
	got := d.Summary(time.Now()).Kinds[KindPeer]
	if got.Failed == 0 || got.Failed > got.Sent/2 || got.LongestGap < 300 || got.LongestGap > 1000 {
		t.Errorf("%+v", got)
	}
	if _, err := Peer("nowhere", 1); err == nil {
		t.Error("an address without a port is taken")
	}
}
