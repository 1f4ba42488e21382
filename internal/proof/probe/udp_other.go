//go:build !linux

package probe

import "net"

// holdMore enlarges the receive buffer as far as the system allows.
func holdMore(conn *net.UDPConn) { conn.SetReadBuffer(receiveBuffer) }

// neverFragment is the system's default elsewhere.
func neverFragment(*net.UDPConn) {}
