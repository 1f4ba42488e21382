// Package draw draws BGP graphs as SVG, before and after a change, side by side.
package draw

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// Row is one address family: the graphs before and after the change, with their titles. After is nil if nothing
// changes.
type Row struct {
	Family                  string
	Before, After           *bgp.Graph
	BeforeTitle, AfterTitle string
}

// The measures of a panel, in pixels.
const (
	width, height    = 620, 640
	centerX, centerY = width / 2, 362
	margin           = 20
)

// SVG draws the rows one below the other. A node has the same position before and after the change, and sessions that
// the change ends are drawn as such. Up to 60 nodes are drawn individually; with more, similar nodes are drawn as one.
func SVG(output io.Writer, rows []Row) error {
	columns := 1
	for _, r := range rows {
		if r.After != nil {
			columns = 2
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="BGP graph" style="max-width:100%%">`+
			"\n",
		columns*width, len(rows)*height+40, columns*width)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	for i, r := range rows {
		marks := arrange(r)
		panel(&b, r.Before, nil, marks, r.Family+", "+r.BeforeTitle, 0, i*height)
		if r.After != nil {
			panel(&b, r.After, r.Before, marks, r.Family+", "+r.AfterTitle, width, i*height)
		}
	}
	legend(&b, columns == 2, len(rows)*height)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(output, b.String())
	return err
}

// The colours of nodes, by how many routes they lack, and of sessions. Signs in the nodes, the strokes of the lines and
// the words also show the state.
const (
	whole, part, none = "#2f7d4f", "#b86e00", "#b3261e"
	same, come        = "#8a94a6", "#1f5fbf"
	ink               = "#1c2430"
)

// sign is the sign in a node, in addition to its colour.
var sign = map[string]string{part: "!", none: "×"}

func legend(b *strings.Builder, compared bool, y int) {
	x := float64(margin)
	text := func(words string) {
		fmt.Fprintf(b, `<text x="%.0f" y="%d" fill="%s">%s</text>`+"\n", x, y+19, ink, words)
		x += 22 + 6.4*float64(len(words))
	}
	for _, entry := range []struct{ color, text string }{
		{whole, "has routes to all other nodes"}, {part, "lacks some"}, {none, "has none"},
	} {
		dot(b, x+7, float64(y)+15, 7, entry.color, false)
		x += 20
		text(entry.text)
	}
	dot(b, x+7, float64(y)+15, 7, "none", true)
	x += 20
	text("route reflector")
	for _, entry := range []struct{ color, text string }{{same, "session"}, {none, "gone"}, {come, "new"}} {
		if entry.color == same || compared {
			fmt.Fprintf(b, `<path d="M%.0f %dh28" %s/>`+"\n", x, y+15, stroke(entry.color))
			x += 34
			text(entry.text)
		}
	}
}

// stroke is the line style of sessions, by their colour.
func stroke(color string) string {
	more := map[string]string{none: ` stroke-dasharray="4 4" opacity="0.7"`, come: ` stroke-width="2"`}[color]
	return fmt.Sprintf(`fill="none" stroke="%s"%s`, color, more)
}

func panel(b *strings.Builder, g, before *bgp.Graph, all layout, title string, x, y int) {
	routes := g.Routes()
	fmt.Fprintf(b, `<g transform="translate(%d %d)">`+"\n", x, y)
	fmt.Fprintf(b, `<rect x="8" y="8" width="%d" height="%d" fill="none" stroke="#d5dae3"/>`+"\n", width-16, height-16)
	fmt.Fprintf(b, `<text x="%d" y="34" font-size="16" font-weight="600" fill="%s">%s</text>`+"\n",
		margin, ink, escape(title))
	verdict, color := outcome(g, routes)
	fmt.Fprintf(b, `<text x="%d" y="55" font-size="13" font-weight="600" fill="%s">%s</text>`+"\n",
		margin, color, verdict)
	fmt.Fprintf(b, `<text x="%d" y="73" fill="%s">%s</text>`+"\n", margin, ink, summary(g))
	places := all.in(g)
	mesh(b, g, before, all, places)
	edges(b, g, before, all, places)
	for _, m := range all.marks {
		node(b, g, routes, all, places, m)
	}
	b.WriteString("</g>\n")
}

// outcome describes how many nodes reach each other, with a colour.
func outcome(g *bgp.Graph, r *bgp.Routes) (text, color string) {
	switch missing := r.Missing(); {
	case !g.Started:
		return "BIRD does not run: no route is by BGP", ink
	case missing == 0:
		return fmt.Sprintf("all %d pairs of nodes have routes", r.Pairs()), whole
	case g.Spare:
		return fmt.Sprintf("%d of %d pairs of nodes have routes by BGP, which pods do not need: Felix makes those of "+
			"all pools", r.Pairs()-missing, r.Pairs()), ink
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

// mesh draws the full mesh as a circle, with a spoke to each member inside of it.
func mesh(b *strings.Builder, g, before *bgp.Graph, all layout, places map[int]int) {
	color := same
	switch {
	case g.MeshSize() > 1 && before != nil && before.MeshSize() < 2:
		color = come
	case g.MeshSize() > 1:
	case before != nil && before.MeshSize() > 1:
		color = none
	default:
		return
	}
	fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="%.0f" %s/>`+"\n", centerX, centerY, all.radius, stroke(color))
	inside := map[int]bool{}
	for i, at := range places {
		m := all.marks[at]
		dx, dy := m.x-centerX, m.y-centerY
		if far := math.Hypot(dx, dy); g.InMesh(i) && far > 1 && far < all.radius-1 && !inside[at] {
			inside[at] = true
			fmt.Fprintf(b, `<path d="M%.1f %.1fL%.1f %.1f" %s/>`+"\n", m.x, m.y, centerX+dx*all.radius/far,
				centerY+dy*all.radius/far, stroke(color))
		}
	}
}

// edges draws the sessions outside of the mesh, one line between two marks: first sessions that end, then those that
// stay, then new ones.
func edges(b *strings.Builder, g, before *bgp.Graph, all layout, places map[int]int) {
	now := pairs(g, places)
	was := now
	if before != nil {
		was = pairs(before, all.in(before))
	}
	fresh := without(now, was)
	for _, kind := range []struct {
		color string
		pairs []pair
	}{{none, without(was, now)}, {same, without(now, fresh)}, {come, fresh}} {
		for _, p := range kind.pairs {
			fmt.Fprintf(b, `<path d="%s" %s/>`+"\n", all.path(all.marks[p[0]], all.marks[p[1]]), stroke(kind.color))
		}
	}
}

// pair is two marks with sessions between them, the lower one first.
type pair [2]int

func pairs(g *bgp.Graph, places map[int]int) []pair {
	var found []pair
	drawn := map[pair]bool{}
	for _, i := range g.Speakers() {
		for _, j := range g.Peers(i) {
			p := pair{min(places[i], places[j]), max(places[i], places[j])}
			if p[0] != p[1] && !drawn[p] {
				drawn[p] = true
				found = append(found, p)
			}
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

func node(b *strings.Builder, g *bgp.Graph, r *bgp.Routes, all layout, places map[int]int, m mark) {
	lacks, others := 0, len(g.Speakers())-1
	here, reflects := false, false
	for i, at := range places {
		if at == m.at {
			here, reflects, lacks = true, reflects || g.Nodes[i].ClusterID != "", max(lacks, r.Lacks(i))
		}
	}
	if !here {
		return // it is only in the other graph
	}
	color := whole
	switch {
	case !g.Started, g.Spare && lacks > 0:
		color = same // not an error: Felix may program all routes
	case lacks > 0 && lacks == others:
		color = none
	case lacks > 0:
		color = part
	}
	label, size := m.names[0], 8.0
	if len(m.names) > 1 {
		label, size = cluster.Count(len(m.names), "node"), 8+6*math.Log10(float64(len(m.names)))
	}
	const mostNamed = 20
	tip := fmt.Sprintf("%s: lacks the routes of %d of %d nodes",
		strings.Join(m.names[:min(len(m.names), mostNamed)], ", "), lacks, others)
	fmt.Fprintf(b, `<g><title>%s</title>`, escape(tip))
	dot(b, m.x, m.y, size, color, reflects)
	all.label(b, m, size, short(label))
	b.WriteString("</g>\n")
}

// dot is a node: a square for a reflector.
func dot(b *strings.Builder, x, y, size float64, color string, reflector bool) {
	if reflector {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="%s" stroke-width="2"/>`,
			x-size, y-size, 2*size, 2*size, color, ink)
	} else {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`, x, y, size, color)
	}
	if sign[color] != "" {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-weight="700" fill="#ffffff">%s</text>`,
			x, y+4.2, sign[color])
	}
	b.WriteByte('\n')
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

// escape escapes any text for XML.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a Builder cannot fail
	return b.String()
}
