// Package knock finds out which ports of which pods answer, by real connections: a server that opens many ports, and a
// client that tries many at once.
package knock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Target is one port at one address; its JSON is what the client reads.
type Target struct {
	Protocol string `json:"protocol"` // TCP or UDP
	Address  string `json:"address"`  // with the port
}

const (
	// tries and patience bound how long a port may not answer: a packet may be lost, or a node be slow.
	tries    = 3
	patience = 500 * time.Millisecond
	answer   = "open"
)

// Open answers on ports until the context ends.
func Open(ctx context.Context, tcp, udp []int) error {
	var group sync.WaitGroup
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			_ = c.Close()
		}
		group.Wait()
	}()
	for _, port := range tcp {
		l, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		closers = append(closers, l)
		group.Go(func() { greet(l) })
	}
	for _, port := range udp {
		c, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		closers = append(closers, c)
		group.Go(func() { echo(c) })
	}
	<-ctx.Done()
	return nil
}

// greet sends a greeting to every client.
func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		_, _ = io.WriteString(c, answer)
		_ = c.Close()
	}
}

func echo(c net.PacketConn) {
	buffer := make([]byte, 64)
	for {
		n, from, err := c.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(buffer[:n], from)
		}
	}
}

// Try connects to all targets at once and reports which answered.
func Try(ctx context.Context, targets []Target) []bool {
	opened := make([]bool, len(targets))
	var group sync.WaitGroup
	for i, t := range targets {
		group.Go(func() {
			for try := 0; try < tries && !opened[i]; try++ {
				opened[i] = answers(ctx, t)
			}
		})
	}
	group.Wait()
	return opened
}

// answers makes one connection, from a port of its own, and waits for the answer.
func answers(ctx context.Context, t Target) bool {
	dialer := net.Dialer{Timeout: patience}
	network := "tcp4"
	if t.Protocol == "UDP" {
		network = "udp4"
	}
	c, err := dialer.DialContext(ctx, network, t.Address)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if network == "udp4" {
		if _, err := io.WriteString(c, answer); err != nil {
			return false
		}
	}
	got := make([]byte, len(answer))
	_, err = io.ReadFull(c, got)
	return err == nil && string(got) == answer
}
