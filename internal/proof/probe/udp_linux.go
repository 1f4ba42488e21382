package probe

import (
	"net"
	"syscall"
)

// holdMore enlarges the receive buffer: past the system's limit if the process may (CAP_NET_ADMIN), and
// up to it otherwise.
func holdMore(conn *net.UDPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	forced := false
	raw.Control(func(fd uintptr) {
		forced = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, receiveBuffer) == nil
	})
	if !forced {
		conn.SetReadBuffer(receiveBuffer)
	}
}

// neverFragment sets the don't-fragment bit and ignores the kernel's cached path MTU, so
// that every probe tests whether its size passes.
func neverFragment(conn *net.UDPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_PROBE)
	})
}
