package node

import (
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

	"github.com/theseus-cni/theseus/internal/adoption"
)

// neighbourTries is how often wrong entries are put right, drain apart, before the old interface stays for now.
const neighbourTries = 20

// tellNeighbours makes everybody on the bridge that one side uses send to the pod's new place. One gratuitous ARP
// is not enough: Linux ignores an answer that comes within a second of another one, and the old interface goes
// on answering who asks it. So the old interface is silenced, the ARP is sent, and then the entries themselves
// are looked at, and put right, in every pod of the node, until none is wrong.
func (n *Node) tellNeighbours(ctx context.Context, h *hands, record *adoption.Record) error {
	name := record.From.Bridge
	if name == "" {
		name = record.To.Bridge
	}
	if name == "" {
		return nil
	}
	bridge, err := linkOf(name)
	if err != nil || bridge == nil {
		return err
	}
	right := bridge.Attrs().HardwareAddr.String() // the bridge answers for the pod
	if record.To.Bridge != "" {
		right = record.New.MAC
	} else if err := h.inside(record, func(in *space) error {
		if link, err := linkAt(in.Handle, record.Old.Index); err != nil || link == nil || !isOld(record, link) {
			return err
		}
		h.at("silence the old interface")
		return in.do(func() error { return n.answersARP(oldName, false) })
	}); err != nil {
		return err
	}
	h.at("tell the bridge")
	if err := gratuitousARP(bridge.Attrs().Index, record.Address, right); err != nil {
		return err
	}
	for range neighbourTries {
		wrong, err := n.correct(record, right)
		if err != nil || wrong == 0 {
			return err
		}
		pause(ctx, readyPoll)
	}
	return errors.New("neighbours go back to the pod's old hardware address")
}

// answersARP decides whether an interface of the thread's namespace answers ARP.
func (n *Node) answersARP(name string, yes bool) error {
	value := "8" // for no address at all
	if yes {
		value = "0"
	}
	err := writeParameter(filepath.Join(n.Sys, "net/ipv4/conf", name, "arp_ignore"), value)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// correct puts the entries for the pod in the other pods of the node right, and says how many were not.
func (n *Node) correct(record *adoption.Record, right string) (int, error) {
	all, err := n.sandboxes()
	if err != nil {
		return 0, err
	}
	wrong, seen := 0, map[string]bool{record.NetNS: true}
	for _, s := range all {
		if s.NetNS == "" || seen[s.NetNS] {
			continue
		}
		seen[s.NetNS] = true
		found, err := n.correctIn(s.NetNS, record.Address, right)
		if err != nil && !errors.Is(err, errNoSpace) {
			return 0, err
		}
		wrong += found
	}
	return wrong, nil
}

func (n *Node) correctIn(path, address, right string) (int, error) {
	in, err := n.enter(path)
	if err != nil {
		return 0, err
	}
	defer in.close()
	entries, err := listed(func() ([]netlink.Neigh, error) { return in.NeighList(0, netlink.FAMILY_V4) })
	if err != nil {
		return 0, fmt.Errorf("list neighbours: %w", err)
	}
	wrong, wanted := 0, net.ParseIP(address)
	for _, entry := range entries {
		if !entry.IP.Equal(wanted) || len(entry.HardwareAddr) == 0 || entry.HardwareAddr.String() == right {
			continue
		}
		wrong++
		if err := in.NeighSet(neighbour(entry.LinkIndex, address, right)); err != nil && !errors.Is(err, unix.ENODEV) {
			return wrong, fmt.Errorf("correct a neighbour: %w", err)
		}
	}
	return wrong, nil
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
	for _, field := range []uint16{unix.ETH_P_ARP, 1, unix.ETH_P_IP, 6<<8 | 4, 1} { // Ethernet, IPv4, their lengths, request
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
