package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// originTable keeps new connections from being tied to an interface: in a chain that comes before those of kube-proxy
// and portmap, what these mark for MASQUERADE gets the same address by a rule of SNAT.
const originTable = "theseus-origins"

// Marks for MASQUERADE: kube-proxy's (masqueradeBit 14), which goes with the translation as it does there, and
// portmap's.
const (
	proxyMark   = 0x4000
	portmapMark = 0x2000
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of include/uapi/linux/membarrier.h.
const membarrierGlobal = 1

// grace is waited for where the kernel does not tell that no packet is under way any more.
const grace = 100 * time.Millisecond

// origin is the address that masqueraded connections to some addresses have.
type origin struct {
	from netip.Addr
	to   []netip.Prefix
	// link is the interface by which they leave; empty for any.
	link string
}

// originScript is the table in place of a former one; without origins there is none. Connections of UDP get one of the
// ports, or any where that is empty.
func originScript(origins []origin, ports string) string {
	var script strings.Builder
	fmt.Fprintf(&script, "add table ip %[1]s\ndelete table ip %[1]s\n", originTable)
	if len(origins) == 0 {
		return script.String()
	}
	fmt.Fprintf(&script, "table ip %s {\nchain postrouting { type nat hook postrouting priority 98; policy accept;\n",
		originTable)
	for _, o := range origins {
		match := "ct status dnat"
		if o.link != "" {
			match += fmt.Sprintf(" oifname %q", o.link)
		}
		match += fmt.Sprintf(" ip daddr { %s }", strings.Trim(strings.ReplaceAll(fmt.Sprint(o.to), " ", ", "), "[]"))
		if ports != "" {
			script.WriteString(marked(match+" meta l4proto udp",
				fmt.Sprintf("snat to %s:%s fully-random", o.from, ports)))
		}
		script.WriteString(marked(match, fmt.Sprintf("snat to %s fully-random", o.from)))
	}
	return script.String() + "}\n}\n"
}

// marked are the rules that translate what matches otherwise than those who marked it for MASQUERADE would.
func marked(match, translate string) string {
	return fmt.Sprintf("%[1]s meta mark and %[2]d == %[2]d meta mark set meta mark and %[3]d %[5]s\n"+
		"%[1]s meta mark and %[4]d == %[4]d %[5]s\n",
		match, proxyMark, ^uint32(proxyMark), portmapMark, translate)
}

// loosely calls while no connection of the origins is tied to an interface, neither one that was there nor one that
// begins. What a former process left it removes.
func (n *Node) loosely(ctx context.Context, origins []origin, call func() error) error {
	if n.tied || n.retied && len(origins) == 0 {
		return call()
	}
	if err := n.retieFormer(ctx); err != nil {
		return err
	}
	err := n.freed(ctx, origins)
	if err == nil {
		err = call()
	}
	n.at("let new connections be masqueraded")
	_, ended := n.Commands.run(context.WithoutCancel(ctx), originScript(nil, ""), "nft", "-f", "-")
	return errors.Join(err, ended)
}

// freed sees to those that begin first, then to those that are there.
func (n *Node) freed(ctx context.Context, origins []origin) error {
	if len(origins) == 0 {
		return nil
	}
	n.at("give new connections their source")
	in, err := n.order()
	if err != nil {
		return err
	}
	ports := ""
	if in != nil && in.Args.Untracked != nil {
		ports = beside(in.Args.Untracked.Port)
	}
	if _, err := n.Commands.run(ctx, originScript(origins, ports), "nft", "-f", "-"); err != nil {
		return err
	}
	quiesce()
	err = n.untie(ctx, func(pod netip.Addr) bool { return concerns(origins, pod) })
	if err != nil {
		return fmt.Errorf("untie connections from an interface: %w", err)
	}
	return nil
}

// quiesce waits until each packet that met the rules of before has left them, so that its connection can be seen:
// packets pass a hook of the kernel within one section of RCU.
func quiesce() {
	if _, _, failed := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); failed != 0 {
		time.Sleep(grace)
	}
}

// concerns says whether connections to an address are of the origins.
func concerns(origins []origin, address netip.Addr) bool {
	return slices.ContainsFunc(origins, func(o origin) bool {
		return inside(o.to, netip.PrefixFrom(address, address.BitLen()))
	})
}

// originsOf are the origins of connections to pods, by any interface: the pods change it.
func originsOf(records []*adoption.Record) []origin {
	all := grouped{}
	for _, record := range records {
		from, err := netip.ParseAddr(record.HostSource)
		to, also := netip.ParseAddr(record.Address)
		if err == nil && also == nil {
			all.add("", from, netip.PrefixFrom(to, to.BitLen()))
		}
	}
	return all.origins
}

// grouped collects origins, each source and interface once.
type grouped struct {
	origins []origin
}

// add leaves out what is part of another one: sets of nftables refuse that.
func (g *grouped) add(link string, from netip.Addr, to netip.Prefix) {
	for i, o := range g.origins {
		if o.link != link || o.from != from {
			continue
		}
		if !inside(o.to, to) {
			parts := func(p netip.Prefix) bool { return inside([]netip.Prefix{to}, p) }
			g.origins[i].to = append(slices.DeleteFunc(o.to, parts), to)
		}
		return
	}
	g.origins = append(g.origins, origin{from, []netip.Prefix{to}, link})
}

// remoteOrigins are those of connections to pods of other nodes, as they leave now.
func remoteOrigins(ranges []netip.Prefix) ([]origin, error) {
	known, err := routes()
	if err != nil {
		return nil, err
	}
	all, seen := grouped{}, map[netip.Prefix]bool{}
	for _, route := range known {
		to, ok := destination(route)
		if !ok || route.Gw == nil || seen[to] || !inside(ranges, to) {
			continue
		}
		seen[to] = true
		now, err := hostRoute(to.Addr().String())
		if err != nil {
			return nil, err
		}
		if now == nil || now.Src == nil {
			continue
		}
		link, err := netlink.LinkByIndex(now.LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("find the interface %d: %w", now.LinkIndex, err)
		}
		if from, ok := netip.AddrFromSlice(now.Src.To4()); ok {
			all.add(link.Attrs().Name, from, to)
		}
	}
	return all.origins, nil
}

// rerouted changes the routes between nodes, by which masqueraded connections to all pods of the ranges leave.
func (n *Node) rerouted(ctx context.Context, within []string, change func() (Answer, error)) (got Answer, err error) {
	ranges, err := prefixes(within)
	if err != nil {
		return Answer{}, err
	}
	origins, err := remoteOrigins(ranges)
	if err != nil {
		return Answer{}, err
	}
	err = n.loosely(ctx, origins, func() (err error) {
		got, err = change()
		return err
	})
	return got, err
}
