package drive

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// datagram sends one datagram from a port of its own and waits for it to come back.
func (c client) datagram(ctx context.Context) (string, error) {
	addr, err := c.address(ctx)
	if err != nil {
		return c.host, err
	}
	conn, err := c.resolver.ports.dial(ctx, "udp4", net.JoinHostPort(addr.String(), c.port))
	if err != nil {
		return c.host, err
	}
	defer conn.Close()
	target, err := roundTrip(ctx, conn)
	if err != nil {
		err = fmt.Errorf("%w%s", err, translated(conn))
	}
	return target, err
}

// roundTrip sends a datagram that has never been sent before and waits for that one, so that a late
// answer to an earlier one is not taken for it.
func roundTrip(ctx context.Context, conn net.Conn) (string, error) {
	target := conn.LocalAddr().String() + " to " + conn.RemoteAddr().String()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	sent := fmt.Sprintf("%016x", rand.Uint64())
	if _, err := conn.Write([]byte(sent)); err != nil {
		return target, fmt.Errorf("send: %w", err)
	}
	buffer := make([]byte, 64)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return target, fmt.Errorf("receive: %w", err)
		}
		if string(buffer[:n]) == sent {
			return target, nil
		}
	}
}
