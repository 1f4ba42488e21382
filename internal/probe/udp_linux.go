package probe

import (
	"net"
	"syscall"
)

// neverFragment sets the don't-fragment bit and ignores what the kernel has learnt about the path, so
// that every probe shows anew whether its size passes.
func neverFragment(conn *net.UDPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_PROBE)
	})
}
