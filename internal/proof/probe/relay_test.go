package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// eventually waits until a condition holds; the limit is for tests that would hang, not for timing.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// echoServer answers probes on a loopback port until the test ends.
func echoServer(t *testing.T) (udp, tcp string) {
	t.Helper()
	conn, err := listenUDP("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { echoUDP(conn) })
	running.Go(func() { echoTCP(ctx, listener) })
	t.Cleanup(func() { cancel(); conn.Close(); listener.Close(); running.Wait() })
	return conn.LocalAddr().String(), listener.Addr().String()
}

// reserved are the ports that a test of this package has.
var reserved sync.Map

// closedPort is a loopback address where nothing listens. Its port is below those that the kernel gives to sockets
// that name none, so that no connection of another test takes it before, or while, nothing listens there.
func closedPort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(20000)))
		if _, has := reserved.LoadOrStore(address, true); has {
			continue
		}
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		conn.Close()
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		listener.Close()
		return address
	}
	t.Fatal("no port is free on 127.0.0.1")
	return ""
}

// relay forwards datagrams to a server and back, or does to questions what the test wants.
type relay struct {
	front *net.UDPConn
	to    string
	tasks sync.WaitGroup

	mu       sync.Mutex
	drop     bool
	delay    time.Duration
	stamps   []time.Duration         // of the questions not forwarded, or delayed
	backs    map[string]*net.UDPConn // by client
	stopping bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	front, err := listenUDP("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{front: front, to: to, backs: map[string]*net.UDPConn{}}
	r.tasks.Go(r.run)
	t.Cleanup(r.close)
	return r
}

func (r *relay) address() string { return r.front.LocalAddr().String() }

func (r *relay) set(drop bool, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop, r.delay = drop, delay
}

// touched are the send stamps of the probes that were dropped or delayed.
func (r *relay) touched() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.stamps...)
}

func (r *relay) clients() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.backs)
}

func (r *relay) close() {
	r.mu.Lock()
	r.stopping = true
	r.front.Close()
	for _, back := range r.backs {
		back.Close()
	}
	r.mu.Unlock()
	r.tasks.Wait()
}

func (r *relay) run() {
	buffer := make([]byte, maxSize)
	for {
		n, from, err := r.front.ReadFromUDP(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		r.forward(append([]byte(nil), buffer[:n]...), from)
	}
}

func (r *relay) forward(data []byte, from *net.UDPAddr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := r.back(from)
	if back == nil {
		return
	}
	if r.drop || r.delay > 0 {
		r.stamps = append(r.stamps, time.Duration(binary.BigEndian.Uint64(data[16:])))
	}
	switch {
	case r.drop:
	case r.delay > 0:
		r.tasks.Go(func() {
			time.Sleep(r.delayOf())
			back.Write(data)
		})
	default:
		back.Write(data)
	}
}

func (r *relay) delayOf() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delay
}

// back is the socket towards the server for a client. The lock is held.
func (r *relay) back(from *net.UDPAddr) *net.UDPConn {
	if back := r.backs[from.String()]; back != nil || r.stopping {
		return back
	}
	conn, err := net.Dial("udp", r.to)
	if err != nil {
		return nil
	}
	back := conn.(*net.UDPConn)
	r.backs[from.String()] = back
	r.tasks.Go(func() {
		buffer := make([]byte, maxSize)
		for {
			n, err := back.Read(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				r.front.WriteToUDP(buffer[:n], from)
			}
		}
	})
	return back
}

// tcpRelay forwards connections, and can break all of them.
type tcpRelay struct {
	net.Listener
	to string

	mu    sync.Mutex
	conns []net.Conn
	made  int
}

func newTCPRelay(t *testing.T, to string) *tcpRelay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &tcpRelay{Listener: listener, to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			r.mu.Lock()
			r.conns, r.made = append(r.conns, client, server), r.made+1
			r.mu.Unlock()
			running.Go(func() { pipe(client, server) })
			running.Go(func() { pipe(server, client) })
		}
	})
	t.Cleanup(func() { listener.Close(); r.cut(); running.Wait() })
	return r
}

func pipe(to, from net.Conn) {
	buffer := make([]byte, 2048)
	for {
		n, err := from.Read(buffer)
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// cut resets every connection.
func (r *tcpRelay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	r.conns = nil
}

func (r *tcpRelay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// pathTo is a path to an address.
func pathTo(id string, protocol v1alpha1.Protocol, address string) v1alpha1.Path {
	return v1alpha1.Path{ID: id, Protocol: protocol, Size: 64, IntervalMillis: 5,
		Target: v1alpha1.Endpoint{Address: address}}
}

// resultOf is the result of one path.
func resultOf(r *Runner, id string) v1alpha1.PathResult {
	for _, result := range r.Results() {
		if result.ID == id {
			return result
		}
	}
	return v1alpha1.PathResult{}
}

// pending is how many probes of a path are under way.
func (r *Runner) pending(id string) int {
	r.mu.Lock()
	l := r.lines[id]
	r.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracker.Pending()
}

func port(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return number
}
