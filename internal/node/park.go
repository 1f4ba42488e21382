package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// Kernels before Linux 6.2 rename no interface that is up. There a pod's traffic is parked on a temporary pair while
// its old interface is down for its new name, and goes back to it then: all else of a move is the same on every kernel.
//
// The pair takes the old one's place on the source's network. If that is a port of a bridge, the pair is another port
// of it, and its end in the pod has the old one's hardware address, so that no neighbour has to learn anything and
// whatever filters on the bridge filters it too. If it is routed, the host's route leads to the pair meanwhile.
const (
	parkName  = "park0" // the pod's end; the host's has the index of the old one's other end in its name
	parkPref  = pinPref - 1
	parkTable = pinTable + 1
)

// Times of a pair.
const (
	pairWait = 2 * time.Second // for both ends, and a bridge's port, to let packets through
	pairPoll = time.Millisecond
)

// Points of the two flips of a move by way of a pair.
var (
	toPark   = points{"park", "half parked", "parked"}
	fromPark = points{"leave the parking", "half back", "back"}
)

// parks says whether this node's agent must not, or shall not, rename an interface that is up.
func (n *Node) parks() bool { return n.Park || errors.Is(renames(), errBusy) }

func parkRule() *netlink.Rule {
	rule := pinRule()
	rule.Priority, rule.Table = parkPref, parkTable
	return rule
}

// parking is a temporary pair and what it stands for.
type parking struct {
	*hands
	in     *space
	host   *netlink.Handle
	record *adoption.Record
	old    netlink.Link // the pod's
	beside netlink.Link // its other end, on the host
	bridge netlink.Link // that beside is attached to; nil where the pod is routed
	pod    netlink.Link // the pair's end in the pod
	other  netlink.Link // and on the host
	// carries is true when the pod's traffic was on the pair at the beginning.
	carries bool
}

// renameParked gives the old interface another name while it is down. Done again after it was interrupted anywhere it
// goes on from there.
func (h *hands) renameParked(ctx context.Context, in *space, record *adoption.Record,
	old netlink.Link, to string) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	p := &parking{hands: h, in: in, host: host, record: record, old: old}
	if err := p.rename(ctx, to); err != nil {
		return fmt.Errorf("rename %s to %s by way of %s: %w", old.Attrs().Name, to, parkName, err)
	}
	return nil
}

func (p *parking) rename(ctx context.Context, to string) error {
	if err := p.look(); err != nil {
		return err
	}
	if !p.carries { // one that a former process left half made, or not yet removed
		if err := p.removePair(); err != nil {
			return err
		}
		if p.old.Attrs().Name == to {
			return nil
		}
	}
	parts := []func(context.Context) error{p.find, p.makePair, p.enter, func(context.Context) error {
		return p.renameDown(to)
	}}
	if p.carries && p.old.Attrs().Name == to && p.old.Attrs().Flags&net.FlagUp != 0 {
		parts = parts[:2]
	}
	for _, part := range append(parts, p.hold, p.leave) {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return p.removePair()
}

// find looks at the old interface's other end.
func (p *parking) find(context.Context) (err error) {
	if p.beside, err = peer(p.old); err != nil {
		return err
	}
	master := p.beside.Attrs().MasterIndex
	if master == 0 {
		return nil
	}
	if p.bridge, err = p.host.LinkByIndex(master); err != nil {
		return fmt.Errorf("find the bridge of %s: %w", p.beside.Attrs().Name, err)
	}
	return nil
}

// parkable says why no pod on a port of a bridge can be parked.
func parkable(link netlink.Link) error {
	if bridge, ok := link.(*netlink.Bridge); ok && bridge.VlanFiltering != nil && *bridge.VlanFiltering {
		return fmt.Errorf("its bridge %s separates VLANs, and to park the pod needs another port of it", bridge.Name)
	}
	return nil
}

// makePair makes the pair unless there is one, and makes it ready for the pod's traffic.
func (p *parking) makePair(ctx context.Context) error {
	if err := p.findPair(); err != nil {
		return err
	}
	if p.pod == nil {
		if err := p.addPair(); err != nil {
			return err
		}
	}
	for _, configure := range []func() error{p.configurePod, p.configureHost} {
		if err := configure(); err != nil {
			return err
		}
	}
	return p.operates(ctx, p.pod, p.other)
}

// look finds out whether the pod's traffic is on the pair.
func (p *parking) look() error {
	rules, err := listed(func() ([]netlink.Rule, error) { return p.in.RuleList(netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list the routing rules: %w", err)
	}
	p.carries = slices.ContainsFunc(rules, func(r netlink.Rule) bool {
		return r.Priority == parkPref && r.Table == parkTable
	})
	return nil
}

// findPair fills in both ends; nil where there are none.
func (p *parking) findPair() (err error) {
	p.other = nil
	if p.pod, err = linkIn(p.in.Handle, parkName); err == nil && p.pod != nil {
		p.other, err = peer(p.pod)
	}
	return err
}

func (p *parking) addPair() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "park"+strconv.Itoa(p.beside.Attrs().Index), p.record.Old.MTU
	attrs.HardwareAddr = p.beside.Attrs().HardwareAddr // what the pod knows its gateway by
	if p.bridge != nil {                               // a bridge takes the lowest address of its ports: never this one
		attrs.HardwareAddr = net.HardwareAddr{0xfe, 0xff, byte(rand.Uint32()), byte(rand.Uint32()),
			byte(rand.Uint32()), byte(rand.Uint32())}
	}
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerMTU, pair.PeerNamespace = parkName, uint32(p.record.Old.MTU), netlink.NsFd(p.in.ns)
	pair.PeerHardwareAddr = p.old.Attrs().HardwareAddr
	p.at("make a pair")
	if err := p.host.LinkAdd(pair); err != nil {
		return fmt.Errorf("make a pair: %w", err)
	}
	if err := p.findPair(); err != nil || p.pod == nil {
		return errors.Join(fmt.Errorf("%s is not in the pod", parkName), err)
	}
	return nil
}

// configurePod gives the pod's end its address, neighbours and routes.
func (p *parking) configurePod() error {
	p.at("parameters of the pair in the pod")
	err := p.in.do(func() error {
		return p.parameters(map[string]string{
			"net/ipv6/conf/" + parkName + "/disable_ipv6": "1", // it would find its address in use
			"net/ipv4/conf/" + parkName + "/rp_filter":    strconv.Itoa(rpLoose),
			"net/ipv4/conf/" + parkName + "/arp_ignore":   p.record.Parameters[p.record.Interface+"/arp_ignore"],
		})
	})
	if err != nil {
		return err
	}
	p.at("give the pair the address")
	if err := p.in.AddrReplace(p.pod, &netlink.Addr{IPNet: hostNet(p.record.Address)}); err != nil {
		return fmt.Errorf("give the pair the address: %w", err)
	}
	p.at("use the pair in the pod")
	if err := p.in.LinkSetUp(p.pod); err != nil {
		return fmt.Errorf("use the pair: %w", err)
	}
	if err := copyNeighbours(p.in.Handle, p.old.Attrs().Index, p.pod.Attrs().Index); err != nil {
		return err
	}
	for _, saved := range onLinkFirst(p.record.Routes) {
		route, err := loadRoute(saved, parkTable)
		if err != nil {
			return err
		}
		route.LinkIndex, route.Protocol = p.pod.Attrs().Index, pinProtocol
		p.at("routes of the pair")
		if err := p.in.RouteReplace(route); err != nil {
			return fmt.Errorf("the pair's route to %s: %w", saved.To, err)
		}
	}
	return nil
}

// configureHost makes the host's end what the old one's other end is.
func (p *parking) configureHost() error {
	name := p.other.Attrs().Name
	wanted := map[string]string{"net/ipv6/conf/" + name + "/disable_ipv6": "1"}
	if p.bridge == nil {
		wanted["net/ipv4/conf/"+name+"/rp_filter"] = strconv.Itoa(rpLoose)
		wanted["net/ipv4/conf/"+name+"/forwarding"] = "1"
		wanted["net/ipv4/conf/"+name+"/proxy_arp"] = "1"
		wanted["net/ipv4/neigh/"+name+"/proxy_delay"] = "0"
	}
	p.at("parameters of the pair on the host")
	if err := p.parameters(wanted); err != nil {
		return err
	}
	if p.bridge != nil && p.other.Attrs().MasterIndex != p.bridge.Attrs().Index {
		if err := p.attach(); err != nil {
			return err
		}
	}
	p.at("use the pair on the host")
	if err := p.host.LinkSetUp(p.other); err != nil {
		return fmt.Errorf("use the pair: %w", err)
	}
	if p.bridge == nil {
		// On an interface without any address even a loose filter refuses what the route back does not lead through
		// (__fib_validate_source in net/ipv4/fib_frontend.c): all that the pod sends between the halves of a flip.
		p.at("give the host's end an address")
		address := &net.IPNet{IP: net.IPv4(127, 0, 0, 2).To4(), Mask: net.CIDRMask(32, 32)}
		if err := p.host.AddrReplace(p.other, &netlink.Addr{IPNet: address, Scope: unix.RT_SCOPE_HOST}); err != nil {
			return fmt.Errorf("give the host's end of the pair an address: %w", err)
		}
		p.at("tell the host of the pair")
		if err := p.host.NeighSet(neighbour(p.other.Attrs().Index, p.record.Address, p.record.Old.MAC)); err != nil {
			return fmt.Errorf("tell the host the pair's hardware address: %w", err)
		}
	}
	return nil
}

// attach makes the host's end a port like the old one's.
func (p *parking) attach() error {
	like, err := p.host.LinkGetProtinfo(p.beside)
	if err != nil {
		return fmt.Errorf("look at the port %s: %w", p.beside.Attrs().Name, err)
	}
	p.at("attach the pair")
	if err := p.host.LinkSetMasterByIndex(p.other, p.bridge.Attrs().Index); err != nil {
		return fmt.Errorf("attach the pair to %s: %w", p.bridge.Attrs().Name, err)
	}
	for _, setting := range []struct {
		on  bool
		set func(netlink.Link, bool) error
	}{{like.Hairpin, p.host.LinkSetHairpin}, {like.Isolated, p.host.LinkSetIsolated},
		{like.ProxyArp, p.host.LinkSetBrProxyArp}} {
		if !setting.on {
			continue
		}
		p.at("settings of the port")
		if err := setting.set(p.other, true); err != nil {
			return fmt.Errorf("make the pair a port as %s is: %w", p.beside.Attrs().Name, err)
		}
	}
	return nil
}

// parameters sets kernel parameters of the thread's namespace, but for those that the kernel does not have.
func (p *parking) parameters(wanted map[string]string) error {
	for name, value := range wanted {
		if err := writeParameter(filepath.Join(p.n.Sys, name), value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set a kernel parameter of the pair: %w", err)
		}
	}
	return nil
}

// enter turns the traffic to the pair, and waits until the old interface has none.
func (p *parking) enter(ctx context.Context) error {
	through := p.other.Attrs().Index
	if p.bridge != nil {
		through = p.record.Old.Through
	}
	err := p.exchange(p.record, toPark, through, false, func(in *space) error {
		if !p.carries { // the kernel would add it twice
			if err := in.RuleAdd(parkRule()); err != nil {
				return err
			}
		}
		return p.learn(p.other)
	})
	if err != nil {
		return err
	}
	return p.turned(ctx, p.other, p.old)
}

// learn tells the bridge by which port it reaches the pod.
func (p *parking) learn(port netlink.Link) error {
	if p.bridge == nil {
		return nil
	}
	hardware, _ := net.ParseMAC(p.record.Old.MAC) // it was read from the kernel
	entry := &netlink.Neigh{LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER,
		State: netlink.NUD_REACHABLE, HardwareAddr: hardware}
	if err := p.host.NeighSet(entry); err != nil {
		return fmt.Errorf("tell the bridge %s its port to the pod: %w", p.bridge.Attrs().Name, err)
	}
	return nil
}

// renameDown renames the old interface, which has no traffic now.
func (p *parking) renameDown(to string) error {
	p.n.rtnl.Lock() // setting it down keeps the kernel's lock for long
	defer p.n.rtnl.Unlock()
	p.at("set the old interface down")
	if err := p.in.LinkSetDown(p.old); err != nil {
		return fmt.Errorf("set it down: %w", err)
	}
	if err := p.learn(p.other); err != nil { // the bridge does not know at once that the other port leads nowhere
		return err
	}
	p.at("rename to " + to)
	if err := p.in.LinkSetName(p.old, to); err != nil {
		return err
	}
	p.at("set the old interface up")
	if err := p.in.LinkSetUp(p.old); err != nil {
		return fmt.Errorf("set it up: %w", err)
	}
	return nil
}

// hold makes the old interface ready for the pod's traffic. When it came up the kernel made a route to the address's
// own net in the main table, and when it went down it removed those that hold the pod.
func (p *parking) hold(ctx context.Context) error {
	if err := p.operates(ctx, p.old, p.beside); err != nil {
		return err
	}
	all, err := listed(func() ([]netlink.Route, error) {
		return p.in.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN,
			LinkIndex: p.old.Attrs().Index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	})
	if err != nil {
		return fmt.Errorf("list the routes: %w", err)
	}
	for _, route := range all {
		p.at("free the main table again")
		if err := p.in.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("free the pod's main table: %w", err)
		}
	}
	return p.pinPod(p.in, p.record)
}

// leave turns the traffic back to the old interface.
func (p *parking) leave(ctx context.Context) error {
	if err := copyNeighbours(p.in.Handle, p.pod.Attrs().Index, p.old.Attrs().Index); err != nil {
		return err
	}
	if p.bridge == nil {
		p.at("tell the host again")
		if err := p.host.NeighSet(neighbour(p.beside.Attrs().Index, p.record.Address, p.record.Old.MAC)); err != nil {
			return fmt.Errorf("tell the host the hardware address: %w", err)
		}
	}
	err := p.exchange(p.record, fromPark, p.record.Old.Through, true, func(in *space) error {
		if err := in.RuleDel(parkRule()); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return p.learn(p.beside)
	})
	if err != nil {
		return err
	}
	return p.turned(ctx, p.beside, p.pod)
}

// turned waits until nothing arrives at the interface that the traffic has left for another one.
func (p *parking) turned(ctx context.Context, port, left netlink.Link) error {
	quiesce()
	if err := p.learn(port); err != nil { // what was under way may have told the bridge otherwise
		return err
	}
	return p.n.quiet(ctx, p.hands, p.record, left.Attrs().Index, func() error { return p.learn(port) })
}

// removePair removes a pair that has no traffic.
func (p *parking) removePair() error {
	if err := p.findPair(); err != nil || p.pod == nil {
		return err
	}
	p.at("remove the pair")
	if err := p.removeLink(p.in, p.pod); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the pair: %w", err)
	}
	return nil
}

// operates waits until both ends of a pair let packets through, and the bridge where there is one.
func (p *parking) operates(ctx context.Context, pod, host netlink.Link) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pairWait)
	defer cancel()
	for {
		up := true
		for handle, link := range map[*netlink.Handle]netlink.Link{p.in.Handle: pod, p.host: host} {
			now, err := handle.LinkByIndex(link.Attrs().Index)
			if err != nil {
				return fmt.Errorf("look at %s: %w", link.Attrs().Name, err)
			}
			up = up && now.Attrs().OperState == netlink.OperUp
		}
		if up && p.bridge != nil {
			var err error
			if up, err = forwards(p.host, host.Attrs().Index); err != nil {
				return err
			}
		}
		if up {
			return nil
		}
		if outage.Sleep(ctx, pairPoll) != nil {
			return fmt.Errorf("%s lets nothing through after %s", host.Attrs().Name, pairWait)
		}
	}
}

// copyNeighbours lets an interface know the neighbours of another one.
func copyNeighbours(handle *netlink.Handle, from, to int) error {
	entries, err := listed(func() ([]netlink.Neigh, error) { return handle.NeighList(from, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY |
		netlink.NUD_PROBE | netlink.NUD_PERMANENT
	for _, entry := range entries {
		if entry.State&known == 0 || len(entry.HardwareAddr) == 0 {
			continue
		}
		fresh := neighbour(to, entry.IP.String(), entry.HardwareAddr.String())
		if entry.State&netlink.NUD_PERMANENT != 0 {
			fresh.State = netlink.NUD_PERMANENT
		}
		if err := handle.NeighSet(fresh); err != nil {
			return fmt.Errorf("copy a neighbour: %w", err)
		}
	}
	return nil
}

// brForwarding is BR_STATE_FORWARDING of include/uapi/linux/if_bridge.h.
const brForwarding = 3

// forwards says whether a bridge forwards by one of its ports.
func forwards(handle *netlink.Handle, port int) (bool, error) {
	ports, err := listed(func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
		return request.Execute(unix.NETLINK_ROUTE, 0)
	})
	if err != nil {
		return false, fmt.Errorf("list the ports of bridges: %w", err)
	}
	for _, message := range ports {
		about := nl.DeserializeIfInfomsg(message)
		attributes, err := nl.ParseRouteAttr(message[about.Len():])
		if err != nil {
			return false, fmt.Errorf("read a port of a bridge: %w", err)
		}
		for _, attribute := range attributes {
			if int(about.Index) != port || attribute.Attr.Type != unix.IFLA_PROTINFO|unix.NLA_F_NESTED {
				continue
			}
			settings, err := nl.ParseRouteAttr(attribute.Value)
			if err != nil {
				return false, fmt.Errorf("read a port of a bridge: %w", err)
			}
			for _, setting := range settings {
				if setting.Attr.Type == nl.IFLA_BRPORT_STATE && len(setting.Value) > 0 {
					return setting.Value[0] == brForwarding, nil
				}
			}
		}
	}
	return false, nil
}
