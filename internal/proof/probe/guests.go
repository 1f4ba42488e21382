package probe

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// guests are the connections of a TCP server. A connection above the limits is accepted all the same, and another one
// is closed: one of the same source if that has too many, else one of the source with the most. Connections without any
// traffic are closed first, then those that have been silent for longest.
type guests struct {
	most, perSource int

	mu    sync.Mutex
	all   map[netip.Prefix]map[*guest]bool
	total int
	came  int64 // total number so far
}

// guest is one connection.
type guest struct {
	conn   net.Conn
	source netip.Prefix
	came   int64        // its number
	last   atomic.Int64 // when it last sent something, as Unix time in ns; 0 is never
}

func (g *guest) heard() { g.last.Store(time.Now().UnixNano()) }

// before reports whether it is closed before another.
func (g *guest) before(other *guest) bool {
	return cmp.Or(cmp.Compare(g.last.Load(), other.last.Load()), cmp.Compare(g.came, other.came)) < 0
}

func newGuests(most, perSource int) *guests {
	return &guests{most: most, perSource: perSource, all: map[netip.Prefix]map[*guest]bool{}}
}

// enter adds a connection.
func (g *guests) enter(conn net.Conn) *guest {
	came := &guest{conn: conn, source: sourceOf(conn)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.came++
	came.came = g.came
	switch {
	case len(g.all[came.source]) >= g.perSource:
		g.evict(came.source)
	case g.total >= g.most:
		g.evict(g.largest())
	}
	if g.all[came.source] == nil {
		g.all[came.source] = map[*guest]bool{}
	}
	g.all[came.source][came] = true
	g.total++
	return came
}

// leave removes a connection.
func (g *guests) leave(gone *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(gone)
}

// evict closes a connection of a source. The lock is held.
func (g *guests) evict(source netip.Prefix) {
	var silent *guest
	for one := range g.all[source] {
		if silent == nil || one.before(silent) {
			silent = one
		}
	}
	if silent != nil {
		silent.conn.Close()
		g.drop(silent)
	}
}

// drop removes a connection, once. The lock is held.
func (g *guests) drop(gone *guest) {
	if !g.all[gone.source][gone] {
		return
	}
	delete(g.all[gone.source], gone)
	g.total--
	if len(g.all[gone.source]) == 0 {
		delete(g.all, gone.source)
	}
}

// largest is the source with the most connections. The lock is held.
func (g *guests) largest() (largest netip.Prefix) {
	for source, conns := range g.all {
		if len(conns) > len(g.all[largest]) {
			largest = source
		}
	}
	return largest
}

// sourceOf is a client: an IPv4 address, or the /64 of an IPv6 address, since one machine may have all of a /64.
func sourceOf(conn net.Conn) netip.Prefix {
	remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	address := remote.Addr().Unmap().WithZone("")
	bits := 64
	if address.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(address, bits).Masked()
}
