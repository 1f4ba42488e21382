// Package fabric is the wire between the machines of a lab: one bridge in the network namespace of
// the lab's outer process, one veth pair for each machine, and a pair to the bridge of every other
// lab. Faults of a link are nftables rules on the bridge, where the node itself cannot see them.
package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Bridge is the name of the bridge in the outer namespace.
const Bridge = "fabric"

// Setup makes the bridge with the address in the calling process's namespace.
func Setup(addr netip.Prefix) error {
	// The fabric is a wire: it must not inspect the bridged packets' IP headers.
	for _, f := range []string{"iptables", "ip6tables", "arptables"} {
		_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+f, []byte("0"), 0o644)
	}
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	if err := netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(addr)}); err != nil {
		return fmt.Errorf("address of the bridge: %w", err)
	}
	return netlink.LinkSetUp(bridge)
}

// Plug connects a machine: its end of the cable is eth0 in the network namespace of process pid,
// the other end is a port of the bridge named after the machine.
func Plug(port string, pid int) error {
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	if err := Unplug(port); err != nil {
		return err
	}
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link of %s: %w", port, err)
	}
	return netlink.LinkSetUp(veth)
}

// Unplug removes a machine's cable if there is one.
func Unplug(port string) error {
	link, err := netlink.LinkByName(port)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link of %s: %w", port, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link of %s: %w", port, err)
	}
	return nil
}

// Route is a static route.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// Configure gives eth0 of the calling process's namespace its address and routes.
func Configure(addr netip.Prefix, routes []Route) error {
	for _, name := range []string{"lo", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if name == "eth0" {
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr)}); err != nil {
				return fmt.Errorf("address of eth0: %w", err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	for _, r := range routes {
		err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(r.To), Gw: net.IP(r.Via.AsSlice())})
		if err != nil {
			return fmt.Errorf("route to %s: %w", r.To, err)
		}
	}
	return nil
}

// Join connects the bridges of two labs, whose outer processes are a and b, by a cable that exists
// in their namespaces only. Both ports are isolated: a frame that came from one lab is never sent
// on to a third, so the full mesh of labs has no loop.
func Join(a, b End) error {
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: a.Port, Namespace: netlink.NsPid(a.Pid)},
		PeerName:      b.Port,
		PeerNamespace: netlink.NsPid(b.Pid),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("join the labs: %w", err)
	}
	for _, end := range []End{a, b} {
		if err := end.attach(); err != nil {
			return fmt.Errorf("join the labs: %w", err)
		}
	}
	return nil
}

// End is one side of the cable between two labs.
type End struct {
	Pid  int    // outer process of the lab
	Port string // name of the port on its bridge
}

func (e End) attach() error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.Pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	return inside(ns, func() error {
		port, err := netlink.LinkByName(e.Port)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName(Bridge)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, bridge); err != nil {
			return err
		}
		if err := netlink.LinkSetIsolated(port, true); err != nil {
			return err
		}
		return netlink.LinkSetUp(port)
	})
}

// inside runs f on a thread that is in the network namespace. The thread is never unlocked, so the
// runtime ends it and no other goroutine can run there by accident.
func inside(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
