package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// places are what the kernel's counters of drops count, by their names. Others count what was carried.
var places = map[string]string{
	"conntrack.drop":          "a new connection that had no place in the connection tracking",
	"conntrack.early_drop":    "a connection that was removed to make room in the connection tracking",
	"conntrack.insert_failed": "a new connection that clashed with another in the connection tracking",
	"softnet.dropped":         "the queue of a processor was full",
	"tcp.ListenDrops":         "the queue of a listening socket was full",
	"udp.RcvbufErrors":        "the receive buffer of a UDP socket was full",
	"udp.SndbufErrors":        "the send buffer of a UDP socket was full",
	"weave.PacketsDropped":    "the router did not read the captured frame in time",
}

// place says what a counter counts; empty if it counts no drops.
func place(counter string) string {
	if link, ok := strings.CutPrefix(counter, "link."); ok {
		for suffix, text := range map[string]string{".rx_dropped": "received on the interface ",
			".tx_dropped": "to be sent on the interface "} {
			if name, ok := strings.CutSuffix(link, suffix); ok {
				return text + name
			}
		}
	}
	if queue, ok := strings.CutPrefix(counter, "qdisc."); ok {
		if name, ok := strings.CutSuffix(queue, ".drops"); ok {
			return "the queue in front of the interface " + name + " was full"
		}
	}
	return places[counter]
}

// drop adds the counters of drops that rose during one benchmark.
func (c *Comparison) drop(network string, counters map[string]map[string]int64) {
	for _, node := range slices.Sorted(maps.Keys(counters)) {
		for _, name := range slices.Sorted(maps.Keys(counters[node])) {
			rise := counters[node][name]
			if place(name) == "" || rise <= 0 {
				continue
			}
			i := slices.IndexFunc(c.Drops, func(d Drop) bool {
				return d.Network == network && d.Node == node && d.Counter == name
			})
			if i < 0 {
				c.Drops = append(c.Drops, Drop{Network: network, Node: node, Counter: name})
				i = len(c.Drops) - 1
			}
			c.Drops[i].Rise += rise
		}
	}
}

// whole reports whether a counter is of the machine's kernel, and not of a node's network namespace.
func whole(counter string) bool { return strings.HasPrefix(counter, "softnet.") }

// losses says, for each network, what was lost, and where the kernel counted drops meanwhile.
func (c *Comparison) losses() []string {
	var all []string
	for _, network := range c.Networks {
		if !c.measured(network.Name) {
			all = append(all, network.Name+" was not measured.")
			continue
		}
		var lost, counted []string
		for _, line := range c.Lines {
			for _, cell := range line.Cells {
				if cell.Network == network.Name && line.lost && cell.Of > 0 && cell.Median > 0 {
					what := line.Measured
					if strings.HasPrefix(line.Figure, "round trip") {
						what = "probes under " + what
					}
					lost = append(lost, fmt.Sprintf("%.0f of %d (%s, %s)", cell.Median, cell.Of, line.Path, what))
				}
			}
		}
		for _, d := range c.Drops {
			if d.Network == network.Name {
				counted = append(counted, fmt.Sprintf("%s +%d on %s (%s)", d.Counter, d.Rise, d.Node, place(d.Counter)))
			}
		}
		text := network.Name + " lost no operation and no probe"
		kernel := "no drop counter that Theseus reads rose on its nodes"
		switch {
		case len(lost) > 0:
			text = network.Name + " lost " + strings.Join(lost, ", ")
		case slices.ContainsFunc(c.FailedRuns(), func(r Run) bool { return r.Network == network.Name }):
			text += " as far as it was measured"
		}
		if len(counted) > 0 {
			kernel = "the kernel counted " + strings.Join(counted, ", ")
		}
		all = append(all, text+"; "+kernel+".")
	}
	return all
}

// measured reports whether any round of a network has a figure.
func (c *Comparison) measured(network string) bool {
	return slices.ContainsFunc(c.Lines, func(l Line) bool {
		return slices.ContainsFunc(l.Cells, func(cell Cell) bool {
			return cell.Network == network && cell.Failed < cell.rounds
		})
	})
}
