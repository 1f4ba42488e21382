package draw

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// layout has the positions of nodes, before and after a change: reflectors in a line above the others if they are few,
// else on a ring inside of the others' ring. Routers outside of the cluster are in a line above both.
type layout struct {
	marks   []mark
	places  map[string]int     // of nodes among the marks, by name
	routers map[netip.Addr]int // of routers among the marks
	lines   bool
	radial  bool    // names are drawn like spokes, so that they do not overlap
	radius  float64 // of the outer ring
	shift   float64 // of everything below the routers, in pixels
}

// mark is a node in the picture, or several similar nodes, or routers outside of the cluster.
type mark struct {
	at     int // among the marks
	nth    int // of its line or ring
	names  []string
	inner  bool // on the upper line, or the inner ring
	mixed  bool // its nodes are not similar: there are more kinds than fit
	router bool
	x, y   float64
}

// The limits of layouts: the number of marks of one kind, in a line, and on a ring without radial names.
const (
	most, mostInLine, mostPlain        = 60, 8, 10
	routerLine, upperLine, lowerLine   = 120, 190, 520
	routerShift, inner, shortestRadius = 90, 85.0, 158
)

// arrange places every node of both graphs.
func arrange(r Row) layout {
	like := map[string]string{} // the properties of a node in both graphs
	reflects := map[string]bool{}
	meshed := false
	for _, g := range []*bgp.Graph{r.Before, r.After} {
		if g == nil {
			continue
		}
		meshed = meshed || g.MeshSize() > 1
		for _, i := range g.Speakers() {
			name, reflector := g.Nodes[i].Name, g.Nodes[i].ClusterID != ""
			like[name] += fmt.Sprint(g.Peers(i), g.InMesh(i), len(g.Outside(i)) > 0, reflector)
			if reflector {
				reflects[name] = true
			}
		}
	}
	l := layout{places: map[string]int{}}
	alike := map[string]int{}
	others, last := 0, 0
	for _, name := range slices.Sorted(maps.Keys(like)) {
		m := mark{at: len(l.marks), inner: reflects[name] && len(reflects) <= most && len(reflects) < len(like)}
		known, ok := alike[like[name]]
		switch {
		case m.inner || len(like) <= most:
		case ok:
			m = l.marks[known]
		case others == most: // more kinds than fit: the last mark takes the rest
			l.marks[last].mixed = true
			m = l.marks[last]
		}
		if m.at == len(l.marks) {
			l.marks = append(l.marks, m)
			if !m.inner {
				alike[like[name]], last = m.at, m.at
				others++
			}
		}
		l.marks[m.at].names = append(l.marks[m.at].names, name)
		l.places[name] = m.at
	}
	reflectors := len(l.marks) - others
	l.lines = !meshed && reflectors > 0 && reflectors <= mostInLine && others <= mostInLine
	l.radial, l.radius = !l.lines && others > mostPlain, 205
	if l.radial {
		l.radius = shortestRadius
	}
	outer := routersOf(r)
	if len(outer) > 0 {
		l.shift = routerShift
	}
	l.place(reflectors, others)
	l.placeRouters(outer)
	return l
}

// routersOf are the routers outside of the cluster, with their AS numbers.
func routersOf(r Row) map[netip.Addr]uint32 {
	all := map[netip.Addr]uint32{}
	for _, g := range []*bgp.Graph{r.Before, r.After} {
		if g == nil {
			continue
		}
		for _, i := range g.Speakers() {
			for _, router := range g.Outside(i) {
				all[router.IP] = router.AS
			}
		}
	}
	return all
}

// placeRouters puts routers in a line, as one mark if there are many.
func (l *layout) placeRouters(all map[netip.Addr]uint32) {
	l.routers = map[netip.Addr]int{}
	of := len(all)
	if of > mostInLine {
		of = 1
	}
	for i, ip := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		name := fmt.Sprintf("%s, AS %d", ip, all[ip])
		if i >= of {
			at := len(l.marks) - 1
			l.marks[at].names, l.routers[ip] = append(l.marks[at].names, name), at
			continue
		}
		l.routers[ip] = len(l.marks)
		l.marks = append(l.marks, mark{at: len(l.marks), nth: i, names: []string{name}, inner: true, router: true,
			x: margin + (width-2*margin)*(float64(i)+0.5)/float64(of), y: routerLine})
	}
}

// centerY is the middle of the rings.
func (l *layout) centerY() float64 { return middle + l.shift }

// height is that of the panel.
func (l *layout) height() int { return height + int(l.shift) }

func (l *layout) place(reflectors, others int) {
	count := map[bool]int{}
	for i := range l.marks {
		m := &l.marks[i]
		m.nth = count[m.inner]
		count[m.inner]++
		of, y, radius, turn := others, float64(lowerLine), l.radius, 0.0
		if m.inner {
			// turned a little, so that no line runs through a name
			of, y, radius, turn = reflectors, upperLine, inner, 0.35
		}
		if m.inner && of == 1 {
			radius = 0
		}
		angle := 2*math.Pi*float64(m.nth)/float64(of) - math.Pi/2 + turn
		m.x, m.y = centerX+radius*math.Cos(angle), l.centerY()+radius*math.Sin(angle)
		if l.lines {
			m.x, m.y = margin+(width-2*margin)*(float64(m.nth)+0.5)/float64(of), y+l.shift
		}
	}
}

// in returns the positions of a graph's nodes, by index.
func (l *layout) in(g *bgp.Graph) map[int]int {
	places := map[int]int{}
	for _, i := range g.Speakers() {
		places[i] = l.places[g.Nodes[i].Name]
	}
	return places
}

// line draws a line from one mark to another, around marks between them in the same line, and says where its middle
// is.
func (l *layout) line(from, to mark) (path string, x, y float64) {
	x, y = (from.x+to.x)/2, (from.y+to.y)/2
	between := float64(max(from.nth-to.nth, to.nth-from.nth) - 1)
	if !l.lines || from.router || to.router || from.inner != to.inner || between == 0 {
		return fmt.Sprintf("M%.1f %.1fL%.1f %.1f", from.x, from.y, to.x, to.y), x, y
	}
	bend := 30 + 30*between
	if from.inner {
		bend = -bend
	}
	return fmt.Sprintf("M%.1f %.1fQ%.1f %.1f %.1f %.1f", from.x, from.y, x, y+bend, to.x, to.y), x, y + bend/2
}

// label says where the name of a mark is: outside of the ring, or alternately above and below a line.
func (l *layout) label(m mark, size float64, name string) Label {
	label := Label{X: m.x, Y: m.y - size - 6, Anchor: "middle", Text: name}
	stagger := float64(15 * (m.nth % 2))
	switch {
	case m.router, l.lines && m.inner:
		label.Y -= stagger
	case l.lines:
		label.Y = m.y + size + 15 + stagger
	case l.radial && !m.inner:
		angle := math.Atan2(m.y-l.centerY(), m.x-centerX)
		label.X, label.Y = m.x+(size+6)*math.Cos(angle), m.y+(size+6)*math.Sin(angle)
		label.Anchor = "start"
		if math.Cos(angle) < -1e-9 {
			label.Anchor, angle = "end", angle+math.Pi
		}
		// Nearly level names are turned, too: the attribute also centres them.
		label.Turn = cmp.Or(round(angle*180/math.Pi), 360)
	case m.y > l.centerY()+1:
		label.Y = m.y + size + 15
	}
	label.X, label.Y = round(label.X), round(label.Y)
	return label
}

func round(x float64) float64 { return math.Round(x*10) / 10 }
