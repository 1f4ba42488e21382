package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// echo sends every datagram back.
type echo struct {
	conn net.PacketConn
	log  io.Writer
}

// VXLANPort is a port that a node must not assign to a connection that it masquerades: Calico from v3.29 on exempts it
// from connection tracking, and the answer never arrives. That happens once in 64,512 connections, with or without
// Theseus.
const VXLANPort = 4789

// FromVXLAN begins a line of the log about a datagram that came from that port.
const FromVXLAN = "a datagram from VXLAN's port:"

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
		if at, ok := from.(*net.UDPAddr); ok && at.Port == VXLANPort {
			fmt.Fprintf(e.log, "%s %s\n", FromVXLAN, from)
		}
		// A datagram that cannot be sent is lost, as datagrams are; the client counts it.
		_, _ = e.conn.WriteTo(buffer[:n], from)
	}
}

func (e *echo) leave() {}

func (e *echo) shutdown(context.Context) { e.conn.Close() }
