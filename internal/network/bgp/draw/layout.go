package draw

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// layout has the positions of nodes, before and after a change: reflectors in a line above the others if they are few,
// else on a ring inside of the others' ring.
type layout struct {
	marks  []mark
	places map[string]int // of nodes among the marks, by name
	lines  bool
	radial bool    // names are drawn like spokes, so that they do not overlap
	radius float64 // of the outer ring
}

// mark is a node in the picture, or several similar nodes.
type mark struct {
	at    int // among the marks
	nth   int // of its line or ring
	names []string
	inner bool // on the upper line, or the inner ring
	x, y  float64
}

// The limits of layouts: the number of marks of one kind, in a line, and on a ring without radial names.
const (
	most, mostInLine, mostPlain = 60, 8, 10
	upperLine, lowerLine        = 190, 520
	inner                       = 85.0
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
		l.radius = 158
	}
	l.place(reflectors, others)
	return l
}

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
		m.x, m.y = centerX+radius*math.Cos(angle), centerY+radius*math.Sin(angle)
		if l.lines {
			m.x, m.y = margin+(width-2*margin)*(float64(m.nth)+0.5)/float64(of), y
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

// path draws a line from one mark to another, around marks between them in the same line.
func (l *layout) path(from, to mark) string {
	between := float64(max(from.nth-to.nth, to.nth-from.nth) - 1)
	if !l.lines || from.inner != to.inner || between == 0 {
		return fmt.Sprintf("M%.1f %.1fL%.1f %.1f", from.x, from.y, to.x, to.y)
	}
	bend := 30 + 30*between
	if from.inner {
		bend = -bend
	}
	return fmt.Sprintf("M%.1f %.1fQ%.1f %.1f %.1f %.1f", from.x, from.y, (from.x+to.x)/2, from.y+bend, to.x, to.y)
}

// label writes a name next to its mark: outside of the ring, or alternately above and below a line.
func (l *layout) label(b *strings.Builder, m mark, size float64, name string) {
	x, y, anchor, turn := m.x, m.y-size-6, "middle", ""
	stagger := float64(15 * (m.nth % 2))
	switch {
	case l.lines && m.inner:
		y -= stagger
	case l.lines:
		y = m.y + size + 15 + stagger
	case l.radial && !m.inner:
		angle := math.Atan2(m.y-centerY, m.x-centerX)
		x, y = m.x+(size+6)*math.Cos(angle), m.y+(size+6)*math.Sin(angle)
		anchor = "start"
		if math.Cos(angle) < -1e-9 {
			anchor, angle = "end", angle+math.Pi
		}
		turn = fmt.Sprintf(` dominant-baseline="central" transform="rotate(%.1f %.1f %.1f)"`, angle*180/math.Pi, x, y)
	case m.y > centerY+1:
		y = m.y + size + 15
	}
	fmt.Fprintf(b,
		`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" stroke="#ffffff" stroke-width="3" paint-order="stroke"%s>%s</text>`,
		x, y, anchor, ink, turn, escape(name))
}
