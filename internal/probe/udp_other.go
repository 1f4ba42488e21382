//go:build !linux

package probe

import "net"

// neverFragment is the system's default elsewhere.
func neverFragment(*net.UDPConn) {}
