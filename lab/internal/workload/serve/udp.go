package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// echo sends every datagram back.
type echo struct{ conn net.PacketConn }

func (e *echo) run() error {
	buffer := make([]byte, 2048)
	for {
		n, from, err := e.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a datagram: %w", err)
		}
		// A datagram that cannot be sent is lost, as datagrams are; the client counts it.
		_, _ = e.conn.WriteTo(buffer[:n], from)
	}
}

func (e *echo) leave() {}

func (e *echo) shut(context.Context) { e.conn.Close() }
