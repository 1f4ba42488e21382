package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// oldName is what the pod's former interface is called while both are there.
const oldName = "old0"

// Times that a transaction waits for.
const (
	readyWait = time.Minute            // for the target to program an endpoint
	readyPoll = 50 * time.Millisecond  // between two looks
	drain     = 100 * time.Millisecond // for what is on its way to the old interface
)

// hands do the parts of adoption.Move on this node.
type hands struct {
	n *Node
	// ready tells which chains exist; the pods of one verb share it.
	ready *chains
	// flipped is when the flip was over.
	flipped time.Time
}

var _ adoption.Hands = (*hands)(nil)

// at is where tests end the process.
func (h *hands) at(point string) { h.n.at(point) }

func (n *Node) at(point string) {
	if n.hook != nil {
		n.hook(point)
	}
}

// See implements adoption.Hands.
func (h *hands) See(record *adoption.Record) (adoption.Seen, error) {
	var seen adoption.Seen
	err := h.inside(record, func(in *space) error {
		seen.Alive = true
		all, err := listed(in.LinkList)
		for _, link := range all {
			attrs := link.Attrs()
			switch {
			case isOld(record, link):
				seen.Old = true
			case attrs.Name == record.Interface && (record.New.Index == 0 || record.New.Index == attrs.Index):
				seen.New = true
			}
		}
		return err
	})
	if errors.Is(err, errNoSpace) {
		return seen, nil
	}
	return seen, err
}

func isOld(record *adoption.Record, link netlink.Link) bool {
	return link.Attrs().Index == record.Old.Index && link.Attrs().HardwareAddr.String() == record.Old.MAC
}

// inside opens the pod's namespace for a while; one that is another pod's by now counts as gone.
func (h *hands) inside(record *adoption.Record, do func(*space) error) error {
	in, err := h.n.enter(record.NetNS)
	if err != nil {
		return err
	}
	defer in.close()
	if in.inode != record.Inode {
		return errNoSpace
	}
	return do(in)
}

// insideOrGone is inside, where a namespace that is gone leaves nothing to do.
func (h *hands) insideOrGone(record *adoption.Record, do func(*space) error) error {
	if err := h.inside(record, do); !errors.Is(err, errNoSpace) {
		return err
	}
	return nil
}

// Save implements adoption.Hands.
func (h *hands) Save(record *adoption.Record) error {
	h.at("save " + string(record.Phase))
	return h.n.writeRecord(record)
}

// Forget implements adoption.Hands.
func (h *hands) Forget(record *adoption.Record) error {
	h.at("forget")
	return h.n.forgetRecord(record)
}

// Mark implements adoption.Hands.
func (h *hands) Mark(record *adoption.Record, phase string) {
	record.Marks = append(record.Marks, step.AdoptMark{Phase: phase, At: time.Now().UTC()})
}

// Pin implements adoption.Hands.
func (h *hands) Pin(ctx context.Context, record *adoption.Record) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	return h.inside(record, func(in *space) error {
		err := h.setParameters(in, record, func(name, former string) string {
			switch {
			case strings.HasSuffix(name, "/rp_filter"):
				return strconv.Itoa(rpLoose)
			case record.To.Bridge != "" && name == "default/arp_ignore":
				return silent // until the flip, what the plugin puts on the bridge must not answer for the pod
			}
			return former
		})
		if err != nil {
			return err
		}
		h.at("pin the host")
		if err := host.RouteReplace(pinnedThrough(record, record.Old.Through)); err != nil {
			return fmt.Errorf("hold the host's route: %w", err)
		}
		if err := h.pinPod(in, record); err != nil {
			return err
		}
		for _, saved := range record.Routes {
			route, err := loadRoute(saved, unix.RT_TABLE_MAIN)
			if err != nil {
				return err
			}
			h.at("free the main table")
			if err := in.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("free the pod's main table: %w", err)
			}
		}
		return h.rename(ctx, in, record, oldName)
	})
}

// pinPod copies the pod's routes to the table of its own and lets that come first.
func (h *hands) pinPod(in *space, record *adoption.Record) error {
	for _, saved := range onLinkFirst(record.Routes) {
		route, err := loadRoute(saved, pinTable)
		if err != nil {
			return err
		}
		h.at("hold the pod's routes")
		if err := in.RouteReplace(route); err != nil {
			return fmt.Errorf("hold the pod's route to %s: %w", saved.To, err)
		}
	}
	h.at("hold the pod")
	return addRule(in.Handle)
}

// rename gives the old interface another name: in use as it is, or by way of a pair. What an agent began by way of one,
// its successor ends.
func (h *hands) rename(ctx context.Context, in *space, record *adoption.Record, to string) error {
	link, err := linkAt(in.Handle, record.Old.Index)
	if err != nil {
		return err
	}
	if link == nil || !isOld(record, link) {
		return errors.New("the pod's old interface is gone")
	}
	begun, err := linkIn(in.Handle, parkName)
	if err != nil {
		return err
	}
	if begun != nil || link.Attrs().Name != to && h.n.parks() {
		return h.renameParked(ctx, in, record, link, to)
	}
	if link.Attrs().Name == to {
		return nil
	}
	h.at("rename to " + to)
	if err := in.LinkSetName(link, to); err != nil {
		return fmt.Errorf("rename %s to %s: %w", link.Attrs().Name, to, err)
	}
	return nil
}

// confParameters is where the kernel parameters of interfaces are, below Sys, and silent the value of arp_ignore
// with which an interface answers for no address.
const (
	confParameters = "net/ipv4/conf"
	silent         = "8"
)

// setParameters sets the kernel parameters that record.Parameters names. Those of interfaces that are not there
// do not count.
func (h *hands) setParameters(in *space, record *adoption.Record, value func(name, former string) string) error {
	h.at("kernel parameters")
	return in.do(func() error {
		for name, former := range record.Parameters {
			err := writeParameter(filepath.Join(h.n.Sys, confParameters, name), value(name, former))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("set the pod's kernel parameters: %w", err)
			}
		}
		return nil
	})
}

// asBefore is the former value.
func asBefore(_, former string) string { return former }

// Unpin implements adoption.Hands.
func (h *hands) Unpin(ctx context.Context, record *adoption.Record) error {
	err := h.insideOrGone(record, func(in *space) error {
		if err := h.rename(ctx, in, record, record.Interface); err != nil {
			return err
		}
		// an earlier agent may have silenced it
		if old, err := linkAt(in.Handle, record.Old.Index); err == nil && old != nil {
			if err := in.LinkSetARPOn(old); err != nil {
				return fmt.Errorf("let %s answer again: %w", record.Interface, err)
			}
		}
		for _, saved := range onLinkFirst(record.Routes) {
			route, err := loadRoute(saved, unix.RT_TABLE_MAIN)
			if err != nil {
				return err
			}
			h.at("give back the main table")
			if err := in.RouteReplace(route); err != nil {
				return fmt.Errorf("give back the pod's route to %s: %w", saved.To, err)
			}
		}
		h.at("let go of the pod")
		if err := removeRule(in.Handle); err != nil {
			return err
		}
		if err := h.flush(in); err != nil {
			return err
		}
		return h.setParameters(in, record, asBefore)
	})
	if err != nil {
		return err
	}
	h.at("let go of the host")
	return unpinHost(record.Address)
}

// flush empties the pod's own table.
func (h *hands) flush(in *space) error {
	routes, err := pinnedRoutes(in.Handle)
	if err != nil {
		return err
	}
	for _, route := range routes {
		h.at("empty the pod's table")
		if err := in.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("empty the pod's table: %w", err)
		}
	}
	return nil
}

// Add implements adoption.Hands. A plugin may fail half-way because the API server restarts, so its DEL is called
// before it is asked again. The pod's traffic stays on the old interface meanwhile.
func (h *hands) Add(ctx context.Context, record *adoption.Record) error {
	h.at("add")
	err := h.n.insist(ctx, func() error { return h.n.add(ctx, record) }, func() error { return h.Remove(ctx, record) })
	if err != nil {
		return err
	}
	h.at("added")
	if err := errors.Join(h.n.restoreFiles(record), h.n.prepareHost(record.To.Bridge)); err != nil {
		return err
	}
	return h.inside(record, func(in *space) error { return h.found(in, record) })
}

// found looks at what the plugin made, and fills in record.New.
func (h *hands) found(in *space, record *adoption.Record) error {
	link, err := linkIn(in.Handle, record.Interface)
	if err != nil {
		return err
	}
	if link == nil || isOld(record, link) {
		return fmt.Errorf("the plugin created no interface %s", record.Interface)
	}
	host, err := peer(link)
	if err != nil {
		return err
	}
	addresses, err := listed(func() ([]netlink.Addr, error) { return in.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list the new addresses: %w", err)
	}
	if len(addresses) != 1 || addresses[0].IP.String() != record.Address {
		return fmt.Errorf("the new interface does not have exactly the address %s", record.Address)
	}
	attrs := link.Attrs()
	record.New = adoption.Link{
		Index: attrs.Index, MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU,
		Host: host.Attrs().Name, HostIndex: host.Attrs().Index, Through: host.Attrs().Index,
	}
	if record.To.Bridge != "" {
		bridge, err := netlink.LinkByName(record.To.Bridge)
		if err != nil || host.Attrs().MasterIndex != bridge.Attrs().Index {
			return fmt.Errorf("%s is not attached to the bridge %s", host.Attrs().Name, record.To.Bridge)
		}
		record.New.Through = bridge.Attrs().Index
	}
	return h.hasDefault(in, record)
}

// hasDefault makes sure that a pod that could reach the world still can.
func (h *hands) hasDefault(in *space, record *adoption.Record) error {
	isDefault := func(r adoption.Route) bool { return r.To == "0.0.0.0/0" }
	if !slices.ContainsFunc(record.Routes, isDefault) {
		return nil
	}
	routes, err := newRoutes(in, record)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(routes, isDefault) {
		return errors.New("the plugin created no default route")
	}
	return nil
}

// newRoutes are those that the plugin made in the pod.
func newRoutes(in *space, record *adoption.Record) ([]adoption.Route, error) {
	all, err := listed(func() ([]netlink.Route, error) {
		return in.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the new routes: %w", err)
	}
	var routes []adoption.Route
	for _, route := range all {
		if saved, plain := saveRoute(route); plain && route.LinkIndex == record.New.Index {
			routes = append(routes, saved)
		}
	}
	return routes, nil
}

// Remove implements adoption.Hands.
func (h *hands) Remove(ctx context.Context, record *adoption.Record) error {
	if record.Phase == adoption.Pinning {
		return nil // the plugin was not asked yet
	}
	path := record.NetNS
	err := h.inside(record, func(in *space) error {
		link, err := linkIn(in.Handle, record.Interface)
		if err == nil && link != nil && isOld(record, link) {
			path = "" // the plugin would remove the interface that the pod needs
		}
		return err
	})
	if errors.Is(err, errNoSpace) {
		path, err = "", nil
	}
	if err == nil {
		err = h.n.takeBackNeighbours(ctx, h, record)
	}
	if err != nil {
		return err
	}
	h.at("remove")
	if err := h.n.giveBack(ctx, record, path); err != nil {
		return err
	}
	h.at("removed")
	return h.insideOrGone(record, func(in *space) error {
		link, err := linkIn(in.Handle, record.Interface)
		if err != nil || link == nil || isOld(record, link) {
			return err
		}
		h.at("remove the new interface")
		if err := h.removeLink(in, link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove the new interface: %w", err)
		}
		return nil
	})
}

// Wait implements adoption.Hands. It also tells both sides each other's hardware addresses, so that the first packet
// after the flip is sent without an ARP request.
func (h *hands) Wait(ctx context.Context, record *adoption.Record) error {
	alive := func() error { return h.inside(record, func(*space) error { return nil }) }
	if err := h.ready.wait(ctx, record.To.Ready, record.New.Host, alive); err != nil {
		return err
	}
	return h.inside(record, func(in *space) error {
		through, err := netlink.LinkByIndex(record.New.Through)
		if err != nil {
			return fmt.Errorf("find the interface %d: %w", record.New.Through, err)
		}
		h.at("tell the host")
		err = netlink.NeighSet(neighbour(record.New.Through, record.Address, record.New.MAC))
		if err != nil {
			return fmt.Errorf("tell the host the new hardware address: %w", err)
		}
		routes, err := newRoutes(in, record)
		if err != nil {
			return err
		}
		for _, route := range routes {
			if route.Via == "" {
				continue
			}
			h.at("tell the pod")
			err := in.NeighSet(neighbour(record.New.Index, route.Via, through.Attrs().HardwareAddr.String()))
			if err != nil {
				return fmt.Errorf("tell the pod its gateway's hardware address: %w", err)
			}
		}
		return nil
	})
}

// neighbour is a fresh entry of the neighbour table.
func neighbour(link int, address, mac string) *netlink.Neigh {
	hardware, _ := net.ParseMAC(mac) // it was read from the kernel
	return &netlink.Neigh{LinkIndex: link, Family: netlink.FAMILY_V4, State: netlink.NUD_REACHABLE,
		IP: net.ParseIP(address).To4(), HardwareAddr: hardware}
}

// Flip implements adoption.Hands: one message to the host's namespace and one to the pod's, on sockets that are
// open. What is strict about where packets come from must see the host's route change before the pod's own
// traffic when it is the target, and after it when it is the source.
func (h *hands) Flip(_ context.Context, record *adoption.Record) error {
	return h.exchange(record, toNew, record.New.Through, !record.From.Strict, func(in *space) error {
		return in.RuleDel(pinRule())
	})
}

// Unflip implements adoption.Hands.
func (h *hands) Unflip(_ context.Context, record *adoption.Record) error {
	if record.Phase != adoption.Flip && record.Phase != adoption.Flipped {
		return nil
	}
	err := h.insideOrGone(record, func(in *space) error { // the routes are there; the rule may not be
		there, err := hasRule(in.Handle)
		if err != nil || there {
			return err
		}
		return h.exchange(record, toNew, record.Old.Through, record.From.Strict, func(in *space) error {
			return in.RuleAdd(pinRule())
		})
	})
	if err != nil {
		return err
	}
	h.at("the host goes back")
	seen, err := h.See(record)
	if err != nil || !seen.Alive {
		return err
	}
	if err := netlink.RouteReplace(pinnedThrough(record, record.Old.Through)); err != nil {
		return fmt.Errorf("hold the host's route: %w", err)
	}
	return nil
}

// points are where tests end the process in a flip: before it, between its halves and after it.
type points [3]string

// toNew is the flip between the old interface and the new one.
var toNew = points{"flip", "half flipped", "flipped"}

// exchange changes both sides over.
func (h *hands) exchange(record *adoption.Record, at points, through int, hostFirst bool,
	pod func(*space) error) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	return h.inside(record, func(in *space) error {
		route := pinnedThrough(record, through)
		parts := []func() error{
			func() error { return host.RouteReplace(route) },
			func() error { return pod(in) },
		}
		if !hostFirst {
			slices.Reverse(parts)
		}
		h.at(at[0])
		h.n.rtnl.Lock() // removing an interface keeps the kernel's lock for long
		defer h.n.rtnl.Unlock()
		defer urgent()()
		began := time.Now()
		if err := parts[0](); err != nil {
			return fmt.Errorf("the first half: %w", err)
		}
		h.at(at[1])
		if err := parts[1](); err != nil {
			return fmt.Errorf("the second half: %w", err)
		}
		h.flipped = time.Now()
		record.Took = h.flipped.Sub(began)
		h.at(at[2])
		return nil
	})
}

// urgent lets nothing else run on this processor until the returned function is called, where the kernel admits
// that: between the two halves of a flip a pod's two directions differ.
func urgent() (relax func()) {
	runtime.LockOSThread()
	former, err := unix.SchedGetAttr(0, 0)
	if err != nil || unix.SchedSetAttr(0,
		&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		if unix.SchedSetAttr(0, former, 0) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
	}
}

// Part implements adoption.Hands.
func (h *hands) Part(ctx context.Context, record *adoption.Record) error {
	if err := h.n.tellNeighbours(ctx, h, record); err != nil {
		return err
	}
	if err := h.n.unsent(ctx, h, record); err != nil {
		return err
	}
	err := h.inside(record, func(in *space) error {
		link, err := linkAt(in.Handle, record.Old.Index)
		if err != nil {
			return err
		}
		if link != nil && isOld(record, link) {
			h.at("remove the old interface")
			if err := h.removeLink(in, link); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("remove the old interface: %w", err)
			}
		}
		if err := h.flush(in); err != nil {
			return err
		}
		if err := removeRule(in.Handle); err != nil { // the flip removed it, unless another program restored it
			return err
		}
		return h.setParameters(in, record, asBefore)
	})
	if err != nil {
		return err
	}
	return h.unpinWhenAgreed(ctx, record)
}

// removeLink removes an interface of the pod while no other pod's traffic changes over.
func (h *hands) removeLink(in *space, link netlink.Link) error {
	h.n.rtnl.Lock()
	defer h.n.rtnl.Unlock()
	if !h.n.outran {
		if err := h.n.outrun(); err != nil {
			return err
		}
		h.n.outran = true
	}
	return in.LinkDel(link)
}

// unpinWhenAgreed removes the host's held route when the other tables lead to the new interface by themselves.
func (h *hands) unpinWhenAgreed(ctx context.Context, record *adoption.Record) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		agreed, err := h.agreed(record)
		if err != nil {
			return err
		}
		if agreed {
			h.at("let go of the host")
			return unpinHost(record.Address)
		}
		if err := h.inside(record, func(*space) error { return nil }); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the target has no route to %s through %s", record.Address, record.New.Host)
		}
		_ = outage.Sleep(ctx, readyPoll)
	}
}

// agreed says whether the most specific route of the main table leads to the new interface.
func (h *hands) agreed(record *adoption.Record) (bool, error) {
	all, err := listed(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return false, fmt.Errorf("list the host's routes: %w", err)
	}
	address := net.ParseIP(record.Address)
	best, length := -1, -1
	for _, route := range all {
		if route.Dst == nil || !route.Dst.Contains(address) {
			continue
		}
		if bits, _ := route.Dst.Mask.Size(); bits > length {
			best, length = route.LinkIndex, bits
		}
	}
	return best == record.New.Through, nil
}

// Release implements adoption.Hands.
func (h *hands) Release(ctx context.Context, record *adoption.Record, side adoption.Side) error {
	h.at("release")
	return h.n.del(ctx, record, side, "")
}

// giveBack is the target's DEL. What its plugins rewrite of the source's way back is put back.
func (n *Node) giveBack(ctx context.Context, record *adoption.Record, space string) error {
	side := record.To
	if record.Own {
		list, err := withDataDir(side.List, "/"+n.spareDir(record))
		if err != nil {
			return err
		}
		side.List = list
		defer os.RemoveAll(filepath.Join(n.Root, n.spareDir(record)))
	}
	if err := n.del(ctx, record, side, space); err != nil {
		return err
	}
	return n.restoreFiles(record)
}

// saveFiles remembers the files that the target's plugin must leave as they are.
func (n *Node) saveFiles(record *adoption.Record) error {
	record.Files = map[string]*string{}
	for _, pattern := range record.To.Restore {
		name := strings.ReplaceAll(pattern, "{id}", record.Sandbox)
		text, err := os.ReadFile(filepath.Join(n.Root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		record.Files[name] = nil
		if content := string(text); err == nil {
			record.Files[name] = &content
		}
	}
	return nil
}

// restoreFiles puts back those that were there.
func (n *Node) restoreFiles(record *adoption.Record) error {
	for name, content := range record.Files {
		if content == nil {
			continue
		}
		if err := writeDurably(filepath.Join(n.Root, name), []byte(*content)); err != nil {
			return fmt.Errorf("restore %s: %w", name, err)
		}
	}
	return nil
}
