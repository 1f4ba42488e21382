package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Bounds of a TCP server: an unknown client must not keep others from being answered.
const (
	// maxConnections is how many connections are open at most, and maxPerSource how many of one address. A node has a
	// few kept connections, and new ones for some ms each.
	maxConnections = 4096
	maxPerSource   = 1024
	// idleTimeout is how long a connection may be idle.
	idleTimeout = 30 * time.Second
)

// Serve answers probes on the given address (empty for all) until the context ends, which is no error.
// It fails at once if a port is not available. A host with several addresses should name the one that is
// probed, as answers must come from it.
func Serve(ctx context.Context, address string, ports Ports) error {
	serve, err := open(ctx, address, ports)
	if err != nil {
		return err
	}
	return serve()
}

// open opens the ports; from then on, probes are queued until they are answered. It returns the function that answers.
func open(ctx context.Context, address string, ports Ports) (serve func() error, err error) {
	var servers []func() error
	var closers []io.Closer
	defer func() {
		if err == nil {
			return
		}
		for _, closer := range closers {
			closer.Close()
		}
	}()
	for _, port := range []int{ports.UDP, ports.Denied} {
		if port == 0 {
			continue
		}
		conn, err := listenUDP(address, port)
		if err != nil {
			return nil, err
		}
		closers = append(closers, conn)
		servers = append(servers, func() error { return echoUDP(conn) })
	}
	for _, port := range []int{ports.TCP, ports.Denied} {
		if port == 0 {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("serve probes: %w", err)
		}
		closers = append(closers, listener)
		servers = append(servers, func() error { return echoTCP(ctx, listener) })
	}
	return func() error { return serveAll(ctx, servers, closers) }, nil
}

// serveAll runs the servers until the context ends or one of them fails, and waits for all.
func serveAll(ctx context.Context, servers []func() error, closers []io.Closer) error {
	failed := make(chan error, len(servers))
	var running sync.WaitGroup
	for _, serve := range servers {
		running.Go(func() { failed <- serve() })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, closer := range closers {
		closer.Close()
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func listenUDP(address string, port int) (*net.UDPConn, error) {
	packet, err := net.ListenPacket("udp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve probes: %w", err)
	}
	conn := packet.(*net.UDPConn)
	holdMore(conn)
	return conn, nil
}

// echoUDP answers each probe with itself, marked as an answer, until the socket is closed.
func echoUDP(conn *net.UDPConn) error {
	buffer := make([]byte, maxSize+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil || !isQuestion(buffer[:n]) {
			continue
		}
		reply(conn, buffer[:n], from)
	}
}

// reply sends an answer. If that fails, the probe is lost, as its sender will notice.
func reply(conn *net.UDPConn, data []byte, to netip.AddrPort) {
	copy(data, answer)
	conn.WriteToUDPAddrPort(data, to)
}

// echoTCP echoes on every connection until the listener is closed.
func echoTCP(ctx context.Context, listener net.Listener) error {
	guests := newGuests(maxConnections, maxPerSource)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // such as too many open files: the connection is lost, but the server continues
			pause(ctx, 10*time.Millisecond)
			continue
		}
		guest := guests.enter(conn)
		running.Go(func() {
			defer guests.leave(guest)
			echoStream(ctx, guest)
		})
	}
}

// echoStream echoes one connection until it ends, idles for too long, or the context ends.
func echoStream(ctx context.Context, guest *guest) {
	conn := guest.conn
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	buffer := make([]byte, 2048)
	for {
		conn.SetDeadline(time.Now().Add(idleTimeout)) // for the answer, too: the client may not read it
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		guest.heard()
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pause waits, or returns early when the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
