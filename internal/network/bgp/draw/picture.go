package draw

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// Picture is a graph as marks and lines in their places. SVG writes it, and the live page draws it. Classes are those
// of the report's style sheet; lengths are in pixels.
type Picture struct {
	Title  string `json:"title"`
	Height int    `json:"height"`
	// Verdict is the result in one sentence, Class its class, and Summary what there is.
	Verdict string `json:"verdict"`
	Class   string `json:"c"`
	Summary string `json:"summary"`
	Ring    *Ring  `json:"ring,omitempty"`
	Lines   []Line `json:"lines"`
	Marks   []Mark `json:"marks"`
	// Troubles name what is down, and Untold counts what they leave out.
	Troubles []string `json:"troubles,omitempty"`
	Untold   int      `json:"untold,omitempty"`
}

// Ring is the full mesh: a circle on which, or around which, its members are.
type Ring struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Radius float64 `json:"r"`
	Class  string  `json:"c"`
	Label  Label   `json:"label,omitzero"`
}

// Line is all sessions between two marks.
type Line struct {
	// From and To are marks, by index; To is -1 for a line from a mark to the ring.
	From  int    `json:"from"`
	To    int    `json:"to"`
	Path  string `json:"d"`
	Class string `json:"c"`
	Label Label  `json:"label,omitzero"`
	bgp.Tally
}

// Mark is a node, several similar nodes, or routers outside of the cluster.
type Mark struct {
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	Size  float64 `json:"size"`
	Shape string  `json:"shape"`
	Class string  `json:"c"`
	Sign  string  `json:"sign,omitempty"`
	Label Label   `json:"label"`
	// Name is the name of the node, or how many nodes there are; Names are some of them. Role is their part in BGP.
	Name  string   `json:"name"`
	Names []string `json:"names,omitempty"`
	Role  string   `json:"role,omitempty"`
	// Tip says what is measured, or known, of them.
	Tip string `json:"tip,omitempty"`
	bgp.Tally
}

// The shapes of marks.
const disc, square, diamond = "node", "reflector", "router"

// Label is a text in the picture. Turn is the angle of a label that is turned, in degrees; 0 if it is not.
type Label struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Anchor string  `json:"anchor"`
	Turn   float64 `json:"turn,omitempty"`
	Text   string  `json:"text"`
}

// still draws a graph by the routes that its sessions make, next to the graph before a change, which may be nil.
func still(g, before *bgp.Graph, all *layout, title string) *Picture {
	p := &Picture{Title: title, Height: all.height(), Summary: summary(g)}
	routes := g.Routes()
	p.Verdict, p.Class = outcome(g, routes)
	p.ring(g, before, all)
	p.edges(g, before, all)
	for _, m := range all.marks {
		if mark, here := nodeMark(g, routes, all, m); here {
			p.Marks = append(p.Marks, mark)
		}
	}
	return p
}

// outcome describes how many nodes reach each other, with a class.
func outcome(g *bgp.Graph, r *bgp.Routes) (text, class string) {
	switch missing := r.Missing(); {
	case !g.Started:
		return "BIRD does not run: no route is from BGP", idle
	case missing == 0:
		return fmt.Sprintf("all %d pairs of nodes have routes", r.Pairs()), whole
	case g.Spare:
		return fmt.Sprintf("%d of %d pairs of nodes have routes by BGP; pods do not need them, because Felix "+
			"makes the "+
			"routes of all pools", r.Pairs()-missing, r.Pairs()), idle
	case missing == r.Pairs():
		return fmt.Sprintf("none of %d pairs of nodes has routes", r.Pairs()), none
	default:
		return fmt.Sprintf("%d of %d pairs of nodes have routes, %d have none",
			r.Pairs()-missing, r.Pairs(), missing), part
	}
}

func summary(g *bgp.Graph) string {
	outside := 0
	for _, i := range g.Speakers() {
		outside += len(g.Outside(i))
	}
	text := fmt.Sprintf("%s, %s, %s", cluster.Count(len(g.Speakers()), "node"),
		cluster.Count(len(g.Reflectors()), "reflector"), cluster.Count(g.Sessions(), "session"))
	if members := g.MeshSize(); members > 1 {
		text += fmt.Sprintf("; full mesh of %d nodes", members)
	}
	if outside > 0 {
		text += "; " + cluster.Count(outside, "session") + " to the outside"
	}
	return text
}

// ring draws the full mesh as a circle, with a spoke to each member inside of it.
func (p *Picture) ring(g, before *bgp.Graph, all *layout) {
	class := same
	switch {
	case g.MeshSize() > 1 && before != nil && before.MeshSize() < 2:
		class = come
	case g.MeshSize() > 1:
	case before != nil && before.MeshSize() > 1:
		class = gone
	default:
		return
	}
	p.circle(g, all, class)
}

func (p *Picture) circle(g *bgp.Graph, all *layout, class string) {
	p.Ring = &Ring{X: centerX, Y: all.centerY(), Radius: all.radius, Class: class}
	inside := map[int]bool{}
	for i, at := range all.in(g) {
		m := all.marks[at]
		dx, dy := m.x-centerX, m.y-all.centerY()
		if far := math.Hypot(dx, dy); g.InMesh(i) && far > 1 && far < all.radius-1 && !inside[at] {
			inside[at] = true
			p.Lines = append(p.Lines, Line{From: at, To: -1, Class: class,
				Path: fmt.Sprintf("M%.1f %.1fL%.1f %.1f", m.x, m.y, centerX+dx*all.radius/far,
					all.centerY()+dy*all.radius/far)})
		}
	}
	slices.SortFunc(p.Lines, func(x, y Line) int { return cmp.Compare(x.From, y.From) })
}

// edges draws the sessions outside of the mesh, one line between two marks: first sessions that end, then those that
// stay, then new ones.
func (p *Picture) edges(g, before *bgp.Graph, all *layout) {
	now := pairs(g, all)
	was := now
	if before != nil {
		was = pairs(before, all)
	}
	fresh := without(now, was)
	for _, kind := range []struct {
		class string
		pairs []pair
	}{{gone, without(was, now)}, {same, without(now, fresh)}, {come, fresh}} {
		for _, one := range kind.pairs {
			path, _, _ := all.line(all.marks[one[0]], all.marks[one[1]])
			p.Lines = append(p.Lines, Line{From: one[0], To: one[1], Class: kind.class, Path: path})
		}
	}
}

// pair is two marks with sessions between them, the lower one first.
type pair [2]int

func pairs(g *bgp.Graph, all *layout) []pair {
	places := all.in(g)
	var found []pair
	drawn := map[pair]bool{}
	add := func(a, b int) {
		if p := (pair{min(a, b), max(a, b)}); a != b && !drawn[p] {
			drawn[p] = true
			found = append(found, p)
		}
	}
	for _, i := range g.Speakers() {
		for _, j := range g.Peers(i) {
			add(places[i], places[j])
		}
		for _, router := range g.Outside(i) {
			add(places[i], all.routers[router.IP])
		}
	}
	slices.SortFunc(found, func(x, y pair) int { return slices.Compare(x[:], y[:]) })
	return found
}

// without returns the pairs that are not in others.
func without(all, others []pair) []pair {
	gone := make(map[pair]bool, len(others))
	for _, p := range others {
		gone[p] = true
	}
	var left []pair
	for _, p := range all {
		if !gone[p] {
			left = append(left, p)
		}
	}
	return left
}

// nodeMark colours a mark by the routes that its nodes lack.
func nodeMark(g *bgp.Graph, r *bgp.Routes, all *layout, m mark) (drawn Mark, here bool) {
	if m.router {
		drawn = all.mark(m, false, same)
		for _, i := range g.Speakers() {
			here = here || slices.ContainsFunc(g.Outside(i), func(o bgp.Outer) bool {
				return all.routers[o.IP] == m.at
			})
		}
		return drawn, here
	}
	lacks, others, reflects := 0, len(g.Speakers())-1, false
	for i, at := range all.in(g) {
		if at == m.at {
			here, reflects, lacks = true, reflects || g.Nodes[i].ClusterID != "", max(lacks, r.Lacks(i))
		}
	}
	class := whole
	switch {
	case !g.Started, g.Spare && lacks > 0:
		class = idle // not an error: Felix may program all routes
	case lacks > 0 && lacks == others:
		class = none
	case lacks > 0:
		class = part
	}
	drawn = all.mark(m, reflects, class)
	const mostNamed = 20
	drawn.Tip = fmt.Sprintf("%s: lacks the routes of %d of %d nodes",
		strings.Join(m.names[:min(len(m.names), mostNamed)], ", "), lacks, others)
	return drawn, here
}

// mark is a mark in its place.
func (l *layout) mark(m mark, reflects bool, class string) Mark {
	drawn := Mark{X: round(m.x), Y: round(m.y), Size: 8, Shape: disc, Class: class, Sign: sign[class],
		Name: m.names[0]}
	noun := "node"
	switch {
	case m.router:
		drawn.Shape, noun = diamond, "router"
	case reflects:
		drawn.Shape = square
	}
	label := short(drawn.Name)
	if len(m.names) > 1 {
		drawn.Name = cluster.Count(len(m.names), noun)
		drawn.Size, label = round(8+6*math.Log10(float64(len(m.names)))), drawn.Name
	} else if m.router {
		label, _, _ = strings.Cut(drawn.Name, ",")
		label = short(label)
	}
	drawn.Label = l.label(m, drawn.Size, label)
	return drawn
}

// short abbreviates a long name in the middle.
func short(name string) string {
	const longest = 17
	runes := []rune(name)
	if len(runes) <= longest {
		return name
	}
	return string(runes[:longest/2]) + "…" + string(runes[len(runes)-longest/2:])
}
