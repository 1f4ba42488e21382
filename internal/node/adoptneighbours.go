package node

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// ethernetIP is the type of Ethernet frames with IPv4, in the order of bytes that sockets want.
var ethernetIP = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP))

// neighbourTries is how often wrong entries are put right, drain apart, before the old interface stays for now.
const neighbourTries = 20

// tellNeighbours makes everybody on the bridge that one side uses send to the pod's new place. One gratuitous ARP
// is not enough: the old interface goes on to answer who asks, and to ask itself whether neighbours are still there,
// and from a question Linux learns where the one who asks is, whatever it has just heard. So the old interface is
// silenced, the ARP is sent, and then the entries themselves are looked at, and put right, in every pod of the node,
// until none is wrong. The entries on other nodes cannot be read: unsent waits for these nodes.
func (n *Node) tellNeighbours(ctx context.Context, h *hands, record *adoption.Record) error {
	bridge, err := bridgeOf(record)
	if err != nil || bridge == nil {
		return err
	}
	right := bridge.Attrs().HardwareAddr.String() // the bridge answers for the pod
	err = h.inside(record, func(in *space) error {
		h.at("who answers")
		if record.To.Bridge != "" {
			right = record.New.MAC
			return in.do(func() error {
				return n.answersARP(record.Interface, record.Parameters[record.Interface+"/arp_ignore"])
			})
		}
		link, err := linkAt(in.Handle, record.Old.Index)
		if err != nil || link == nil || !isOld(record, link) {
			return err
		}
		return n.silence(in, link)
	})
	if err != nil {
		return err
	}
	h.at("tell the bridge")
	if err := gratuitousARP(bridge.Attrs().Index, record.Address, right); err != nil {
		return err
	}
	return n.correctUntil(ctx, record, right, func(mac string) bool { return mac != right })
}

// takeBackNeighbours makes everybody who has heard of the new interface on a bridge forget it, before it goes.
func (n *Node) takeBackNeighbours(ctx context.Context, h *hands, record *adoption.Record) error {
	if record.To.Bridge == "" {
		return nil
	}
	bridge, err := bridgeOf(record)
	if err != nil || bridge == nil {
		return err
	}
	right, wrong := bridge.Attrs().HardwareAddr.String(), ""
	if record.From.Bridge != "" {
		right = record.Old.MAC
	}
	err = h.insideOrGone(record, func(in *space) error {
		link, err := linkIn(in.Handle, record.Interface)
		if err != nil || link == nil || isOld(record, link) {
			return err
		}
		wrong = link.Attrs().HardwareAddr.String()
		h.at("the new interface is silent")
		return n.silence(in, link)
	})
	if err != nil || wrong == "" {
		return err
	}
	return n.correctUntil(ctx, record, right, func(mac string) bool { return mac == wrong })
}

// bridgeOf is the bridge that the pod leaves or comes to; nil when there is none.
func bridgeOf(record *adoption.Record) (netlink.Link, error) {
	name := cmp.Or(record.From.Bridge, record.To.Bridge)
	if name == "" {
		return nil, nil
	}
	return linkOf(name)
}

// answersARP decides whether an interface of the thread's namespace answers ARP.
func (n *Node) answersARP(name, value string) error {
	err := writeParameter(filepath.Join(n.Sys, confParameters, name, "arp_ignore"), value)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// silence keeps an interface from answering ARP and from asking, while what comes for it still arrives.
func (n *Node) silence(in *space, link netlink.Link) error {
	if n.chatty {
		return in.do(func() error { return n.answersARP(link.Attrs().Name, silent) })
	}
	if err := in.LinkSetARPOff(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("silence %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// unsent waits until no neighbour sends to the pod's old interface any more, and announces the new one meanwhile:
// those on other nodes of the network, who may have missed what was said.
func (n *Node) unsent(ctx context.Context, h *hands, record *adoption.Record) error {
	if record.From.Bridge == "" {
		n.drain(ctx)
		return nil
	}
	bridge, err := linkOf(record.From.Bridge)
	if err != nil || bridge == nil {
		return err
	}
	return n.quiet(ctx, h, record, record.Old.Index, func() error {
		h.at("tell the bridge again")
		return gratuitousARP(bridge.Attrs().Index, record.Address, bridge.Attrs().HardwareAddr.String())
	})
}

// drain waits for what is under way: an interface that goes takes along what the kernel had queued for it.
func (n *Node) drain(ctx context.Context) {
	wait := drain
	if n.hasty {
		wait /= 5
	}
	_ = outage.Sleep(ctx, wait)
}

// quiet waits until nothing arrives at an interface of the pod any more, and calls as long as something does.
func (n *Node) quiet(ctx context.Context, h *hands, record *adoption.Record, link int, again func() error) error {
	heard := -1
	err := h.inside(record, func(in *space) error {
		return in.do(func() (err error) {
			heard, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("listen at the former interface: %w", err)
			}
			return unix.Bind(heard, &unix.SockaddrLinklayer{Ifindex: link, Protocol: ethernetIP})
		})
	})
	if heard >= 0 {
		defer func() { _ = unix.Close(heard) }()
	}
	if errors.Is(err, unix.ENODEV) {
		return nil // it is gone already
	}
	if err != nil {
		return err
	}
	for range neighbourTries {
		if n.drain(ctx); !arrived(heard) {
			return nil
		}
		if err := again(); err != nil {
			return err
		}
	}
	return errors.New("neighbours go on to send to the pod's former interface")
}

// arrived empties a packet socket, and says whether anything was sent to its interface alone.
func arrived(socket int) bool {
	some := false
	for {
		_, from, err := unix.Recvfrom(socket, nil, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return some
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok {
			some = some || at.Pkttype == unix.PACKET_HOST
		}
	}
}

// correctUntil puts entries right until a look finds none that is wrong.
func (n *Node) correctUntil(ctx context.Context, record *adoption.Record, right string,
	wrong func(mac string) bool) error {
	for range neighbourTries {
		found, err := n.correct(record, right, wrong)
		if err != nil || found == 0 {
			return err
		}
		_ = outage.Sleep(ctx, readyPoll)
	}
	return errors.New("neighbours go back to the pod's former hardware address")
}

// correct puts the entries for the pod in the other pods of the node right, and says how many were not.
func (n *Node) correct(record *adoption.Record, right string, wrong func(mac string) bool) (int, error) {
	all, err := n.sandboxes()
	if err != nil {
		return 0, err
	}
	count, seen := 0, map[string]bool{record.NetNS: true}
	for _, s := range all {
		if s.NetNS == "" || seen[s.NetNS] {
			continue
		}
		seen[s.NetNS] = true
		found, err := n.correctIn(s.NetNS, record.Address, right, wrong)
		if err != nil && !errors.Is(err, errNoSpace) {
			return 0, err
		}
		count += found
	}
	return count, nil
}

func (n *Node) correctIn(path, address, right string, wrong func(mac string) bool) (int, error) {
	in, err := n.enter(path)
	if err != nil {
		return 0, err
	}
	defer in.close()
	entries, err := listed(func() ([]netlink.Neigh, error) { return in.NeighList(0, netlink.FAMILY_V4) })
	if err != nil {
		return 0, fmt.Errorf("list neighbours: %w", err)
	}
	count, wanted := 0, net.ParseIP(address)
	for _, entry := range entries {
		if !entry.IP.Equal(wanted) || len(entry.HardwareAddr) == 0 || !wrong(entry.HardwareAddr.String()) {
			continue
		}
		count++
		if err := in.NeighSet(neighbour(entry.LinkIndex, address, right)); err != nil && !errors.Is(err, unix.ENODEV) {
			return count, fmt.Errorf("correct a neighbour: %w", err)
		}
	}
	return count, nil
}

// gratuitousARP tells everybody on a link where an address is: a broadcast request whose sender and target are
// the address, which Linux heeds at once even where it has just heard another answer.
func gratuitousARP(link int, address, mac string) error {
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("gratuitous ARP: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("gratuitous ARP: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	ip := net.ParseIP(address).To4()
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, hardware...)
	// Ethernet, IPv4, their lengths, request
	for _, field := range []uint16{unix.ETH_P_ARP, 1, unix.ETH_P_IP, 6<<8 | 4, 1} {
		frame = binary.BigEndian.AppendUint16(frame, field)
	}
	frame = append(append(frame, hardware...), ip...)
	frame = append(append(frame, 0, 0, 0, 0, 0, 0), ip...)
	to := &unix.SockaddrLinklayer{Ifindex: link, Protocol: binary.BigEndian.Uint16([]byte{0x06, 0x08}), Halen: 6}
	copy(to.Addr[:], frame[:6])
	if err := unix.Sendto(fd, frame, 0, to); err != nil {
		return fmt.Errorf("gratuitous ARP: %w", err)
	}
	return nil
}

// readParameter and writeParameter are for kernel parameters.
func readParameter(file string) (string, error) {
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

func writeParameter(file, value string) error {
	handle, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = handle.WriteString(value)
	return errors.Join(err, handle.Close())
}
