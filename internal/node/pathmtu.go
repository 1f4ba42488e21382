package node

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster"
)

const (
	pingTries   = 3
	pingTimeout = 200 * time.Millisecond
	// pingLeast is a size that fits everywhere.
	pingLeast   = 100
	maxPacket   = 1<<16 - 1 // of IPv4
	ipHeader    = 20
	echoRequest = 8
)

// measure finds the path MTU to addresses of IPv4; a path on which nothing answers has 0.
func measure(ctx context.Context, peers []string) []cluster.PathMTU {
	found := make([]cluster.PathMTU, len(peers))
	var group sync.WaitGroup
	for i, peer := range peers {
		found[i] = cluster.PathMTU{To: peer}
		to, err := netip.ParseAddr(peer)
		if err != nil || !to.Is4() {
			continue
		}
		group.Go(func() {
			found[i].Link = linkMTU(to)
			found[i].MTU = pathMTU(ctx, to, found[i].Link, uint16(i+1))
		})
	}
	group.Wait()
	return found
}

// linkMTU is that of the link which leads to an address; 0 when none does.
func linkMTU(to netip.Addr) int {
	found, err := netlink.RouteGet(net.IP(to.AsSlice()))
	if err != nil || len(found) == 0 {
		return 0
	}
	link, err := netlink.LinkByIndex(found[0].LinkIndex)
	if err != nil {
		return 0
	}
	return min(link.Attrs().MTU, maxPacket)
}

// pathMTU pings with packets that must not be cut (RFC 792, RFC 1191), of most bytes and less.
func pathMTU(ctx context.Context, to netip.Addr, most int, id uint16) int {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return 0
	}
	defer unix.Close(socket)
	timeout := unix.NsecToTimeval(int64(pingTimeout))
	if errors.Join(
		unix.SetsockoptInt(socket, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Connect(socket, &unix.SockaddrInet4{Addr: to.As4()}),
	) != nil {
		return 0
	}
	p := &pinger{socket: socket, id: id}
	switch {
	case p.fits(ctx, most):
		return most
	case !p.fits(ctx, pingLeast):
		return 0
	}
	low, high := pingLeast, most // low fits, high does not
	for high-low > 1 && ctx.Err() == nil {
		if middle := (low + high) / 2; p.fits(ctx, middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

type pinger struct {
	socket       int
	id, sequence uint16
}

// fits reports whether an echo of a size, IP header included, came back.
func (p *pinger) fits(ctx context.Context, size int) bool {
	if size < pingLeast {
		return false
	}
	for range pingTries {
		if ctx.Err() != nil {
			return false
		}
		p.sequence++
		packet := make([]byte, size-ipHeader)
		packet[0] = echoRequest
		binary.BigEndian.PutUint16(packet[4:], p.id)
		binary.BigEndian.PutUint16(packet[6:], p.sequence)
		binary.BigEndian.PutUint16(packet[2:], checksum(packet))
		if unix.Send(p.socket, packet, 0) != nil {
			return false // too big for the link itself
		}
		if p.answered(size) {
			return true
		}
	}
	return false
}

// answered waits for the answer to the last echo. Sockets like this one get every ICMP packet of the peer.
func (p *pinger) answered(size int) bool {
	buffer := make([]byte, 1<<16)
	for until := time.Now().Add(pingTimeout); time.Now().Before(until); {
		n, _, err := unix.Recvfrom(p.socket, buffer, 0)
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return false
		}
		if n < ipHeader {
			continue
		}
		reply := buffer[int(buffer[0]&0xf)*4 : n]
		if n == size && len(reply) >= 8 && reply[0] == 0 && binary.BigEndian.Uint16(reply[4:]) == p.id &&
			binary.BigEndian.Uint16(reply[6:]) == p.sequence {
			return true
		}
	}
	return false
}

// checksum is that of RFC 1071.
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	if len(data)%2 == 1 {
		sum += uint32(data[len(data)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
