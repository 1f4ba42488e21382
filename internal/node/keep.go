package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step/adoption"

	"github.com/theseus-cni/theseus/internal/step"
)

// keptProtocol marks the routes that stand in for one that was taken.
const keptProtocol = 191

// keptRoute is a route of the source's by the name of its interface, which outlasts a reboot.
type keptRoute struct {
	Name  string         `json:"name"`
	Route adoption.Route `json:"route"`
}

// sourceRoutes are the source's routes as they are, for a joint phase to keep.
func sourceRoutes(within, links []string) ([]keptRoute, error) {
	if len(links) == 0 {
		return nil, nil
	}
	prefixes, err := prefixes(within)
	if err != nil {
		return nil, err
	}
	var kept []keptRoute
	found, err := mainRoutes(func(r netlink.Route, to netip.Prefix) bool {
		return r.Priority == 0 && r.Protocol != keptProtocol && inside(prefixes, to)
	})
	if err != nil {
		return nil, err
	}
	for _, route := range found {
		link, err := netlink.LinkByIndex(route.LinkIndex)
		if err != nil {
			continue // a blackhole, or an interface that has just gone
		}
		if saved, plain := saveRoute(route); plain && step.Matches(links, link.Attrs().Name) {
			kept = append(kept, keptRoute{link.Attrs().Name, saved})
		}
	}
	return kept, nil
}

// keepSource restores routes of the source that another program removed, and lists them. The target's agent does so
// when it believes that the whole range is its own: Felix, from v3.31 on, then puts a blackhole in the place of the
// route to the bridge. Where the place is taken, the pods of a bridge are reached by two more specific routes; the
// others the target has. With force, the place itself is taken back.
func keepSource(kept []keptRoute, force bool) ([]string, error) {
	if len(kept) == 0 {
		return nil, nil
	}
	all, err := mainRoutes(func(netlink.Route, netip.Prefix) bool { return true })
	if err != nil {
		return nil, err
	}
	var mended []string
	for _, k := range kept {
		link, err := linkOf(k.Name)
		if err != nil {
			return mended, err
		}
		if link == nil {
			continue // it went with its network
		}
		k.Route.Link = link.Attrs().Index
		said, err := k.keep(all, force)
		if err != nil {
			return mended, fmt.Errorf("keep the route to %s: %w", k.Route.To, err)
		}
		if said != "" {
			mended = append(mended, said)
		}
	}
	return mended, nil
}

// keepEvery is how often routes are checked while a verb runs.
const keepEvery = time.Second

// keepMeanwhile keeps the source's routes until the returned function is called. Keep itself waits for the verb at
// work to end, which may in turn wait for such a route.
func (n *Node) keepMeanwhile() (end func()) {
	over := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		tick := time.NewTicker(keepEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if in, err := n.order(); err == nil && in != nil {
				_, _ = keepSource(in.Kept, false) // what stays wrong, Keep tells
			}
		}
	})
	return func() {
		close(over)
		working.Wait()
	}
}

func (k keptRoute) keep(all []netlink.Route, force bool) (string, error) {
	to, err := netip.ParsePrefix(k.Route.To)
	if err != nil {
		return "", err
	}
	taken, there := false, false
	for _, route := range all {
		at, _ := destination(route)
		there = there || at == to && route.LinkIndex == k.Route.Link
		taken = taken || at == to && route.Priority == 0
	}
	stand := k.standIns(to)
	missing := slices.DeleteFunc(slices.Clone(stand), func(want adoption.Route) bool {
		return slices.ContainsFunc(all, func(r netlink.Route) bool {
			return r.Dst != nil && r.Dst.String() == want.To && r.LinkIndex == want.Link && r.Protocol == keptProtocol
		})
	})
	switch {
	case there, force, !taken:
		if !there {
			if err := setRoute(k.Route); err != nil {
				return "", err
			}
		}
		if len(missing) < len(stand) { // they stood in for it
			for _, route := range stand {
				if err := unsetRoute(route); err != nil {
					return "", err
				}
			}
		}
		if there {
			return "", nil
		}
		return "the route to " + k.Route.To + " is back on " + k.Name, nil
	case len(missing) == 0:
		return "", nil
	}
	for _, route := range missing {
		if err := setRoute(route); err != nil {
			return "", err
		}
	}
	return "the route to " + k.Route.To + " was taken from " + k.Name + ", and others lead there", nil
}

// standIns are the two halves of a route to a bridge.
func (k keptRoute) standIns(to netip.Prefix) []adoption.Route {
	if k.Route.Via != "" || to.Bits() > 30 || !to.Addr().Is4() {
		return nil
	}
	low := netip.PrefixFrom(to.Addr(), to.Bits()+1)
	bytes := to.Addr().As4()
	bytes[to.Bits()/8] |= 0x80 >> (to.Bits() % 8)
	high := netip.PrefixFrom(netip.AddrFrom4(bytes), to.Bits()+1)
	var both []adoption.Route
	for _, half := range []netip.Prefix{low, high} {
		route := k.Route
		route.To, route.Protocol = half.String(), keptProtocol
		both = append(both, route)
	}
	return both
}

func setRoute(saved adoption.Route) error {
	route, err := loadRoute(saved, unix.RT_TABLE_MAIN)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(route)
}

func unsetRoute(saved adoption.Route) error {
	route, err := loadRoute(saved, unix.RT_TABLE_MAIN)
	if err != nil {
		return err
	}
	if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
