// Package draw makes a picture (SVG) of BGP graphs, before a change and after it, side by side.
package draw

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/bgp"
)

// Row is one address family: the graph today and the one that the change leaves, under their titles. After is
// nil when nothing changes.
type Row struct {
	Family                  string
	Before, After           *bgp.Graph
	BeforeTitle, AfterTitle string
}

// The measures of a panel, in pixels.
const (
	width, height = 620, 560
	centerX       = width / 2
	centerY       = 310
	outer, inner  = 205.0, 85.0 // radii of the two rings
	margin        = 20
)

// SVG draws the rows one below the other. Up to 60 nodes are drawn one by one; of more, those that are alike
// are drawn as one.
func SVG(output io.Writer, rows []Row) error {
	columns := 1
	for _, r := range rows {
		if r.After != nil {
			columns = 2
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="BGP graph">`+"\n",
		columns*width, len(rows)*height+40, columns*width, len(rows)*height+40)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	for i, r := range rows {
		panel(&b, r.Before, r.Family+", "+r.BeforeTitle, 0, i*height)
		if r.After != nil {
			panel(&b, r.After, r.Family+", "+r.AfterTitle, width, i*height)
		}
	}
	legend(&b, len(rows)*height)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(output, b.String())
	return err
}

// The colours of nodes: by how many routes they lack. The shape of a line and the words say the same.
const (
	whole, part, none = "#2f7d4f", "#c77700", "#b3261e"
	lines             = "#8a94a6"
	ink               = "#1c2430"
)

func legend(b *strings.Builder, y int) {
	x := margin
	for _, entry := range []struct{ color, text string }{
		{whole, "has routes to all other nodes"}, {part, "lacks some"}, {none, "has none"},
	} {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="7" fill="%s"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", x+7, y+15, entry.color, x+20, y+19, ink, entry.text)
		x += 40 + 8*len(entry.text)
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="14" height="14" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%d" fill="%s">route reflector</text>`+"\n", x, y+8, ink, x+20, y+19, ink)
}

// mark is a node in the picture, or several that are alike.
type mark struct {
	nodes     []int
	reflector bool
	x, y      float64
}

func panel(b *strings.Builder, g *bgp.Graph, title string, x, y int) {
	routes := g.Routes()
	fmt.Fprintf(b, `<g transform="translate(%d %d)">`+"\n", x, y)
	fmt.Fprintf(b, `<rect x="8" y="8" width="%d" height="%d" fill="none" stroke="#d5dae3"/>`+"\n", width-16, height-16)
	fmt.Fprintf(b, `<text x="%d" y="34" font-size="16" font-weight="600" fill="%s">%s</text>`+"\n", margin, ink, html.EscapeString(title))
	fmt.Fprintf(b, `<text x="%d" y="54" fill="%s">%s</text>`+"\n", margin, ink, html.EscapeString(summary(g, routes)))
	marks := arrange(g)
	if mesh := g.MeshSize(); mesh > 1 {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="%.0f" fill="none" stroke="%s" stroke-dasharray="6 4"/>`+"\n", centerX, centerY, outer, lines)
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="%s">full mesh of %d nodes</text>`+"\n", centerX, height-24, ink, mesh)
	}
	edges(b, g, marks)
	for _, m := range marks {
		node(b, g, routes, m)
	}
	b.WriteString("</g>\n")
}

func summary(g *bgp.Graph, r *bgp.Routes) string {
	if !g.Started {
		return "BIRD does not run"
	}
	outside := 0
	for _, i := range g.Speakers() {
		outside += len(g.Outside(i))
	}
	text := fmt.Sprintf("%d nodes, %d reflectors, %d sessions; %d of %d pairs of nodes have routes",
		len(g.Speakers()), len(g.Reflectors()), g.Sessions(), r.Pairs()-r.Missing(), r.Pairs())
	if outside > 0 {
		text += fmt.Sprintf("; %d sessions to the outside", outside)
	}
	return text
}

// arrange puts reflectors on the inner ring and all others on the outer one.
func arrange(g *bgp.Graph) []mark {
	const most = 60
	speakers := g.Speakers()
	one := len(speakers) <= most
	var reflectors, others []mark
	group := map[string]int{}
	for _, i := range speakers {
		if g.Nodes[i].ClusterID != "" && len(g.Reflectors()) <= most {
			reflectors = append(reflectors, mark{nodes: []int{i}, reflector: true})
			continue
		}
		key := fmt.Sprint(g.Peers(i), g.InMesh(i), len(g.Outside(i)) > 0, g.Nodes[i].ClusterID != "")
		at, known := group[key]
		if one || !known && len(others) < most {
			group[key] = len(others)
			others = append(others, mark{nodes: []int{i}, reflector: g.Nodes[i].ClusterID != ""})
			continue
		}
		if !known {
			at = len(others) - 1 // there are more sorts than there is room: the last one takes the rest
		}
		others[at].nodes = append(others[at].nodes, i)
	}
	ring(reflectors, inner, 0.35) // turned a little, so that no line runs through a name
	ring(others, outer, 0)
	return append(reflectors, others...)
}

func ring(marks []mark, radius, turn float64) {
	for i := range marks {
		angle := 2*math.Pi*float64(i)/float64(len(marks)) - math.Pi/2 + turn
		marks[i].x, marks[i].y = centerX+radius*math.Cos(angle), centerY+radius*math.Sin(angle)
	}
}

// edges draws the sessions outside of the mesh, one line between two marks.
func edges(b *strings.Builder, g *bgp.Graph, marks []mark) {
	of := map[int]int{}
	for m := range marks {
		for _, i := range marks[m].nodes {
			of[i] = m
		}
	}
	drawn := map[[2]int]bool{}
	for m := range marks {
		for _, i := range marks[m].nodes {
			for _, j := range g.Peers(i) {
				other, ok := of[j]
				pair := [2]int{min(m, other), max(m, other)}
				if !ok || other == m || drawn[pair] {
					continue
				}
				drawn[pair] = true
				fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", marks[m].x, marks[m].y, marks[other].x, marks[other].y, lines)
			}
		}
	}
}

func node(b *strings.Builder, g *bgp.Graph, r *bgp.Routes, m mark) {
	lacks, others := 0, len(g.Speakers())-1
	for _, i := range m.nodes {
		lacks = max(lacks, r.Lacks(i))
	}
	color := whole
	switch {
	case lacks > 0 && lacks == others:
		color = none
	case lacks > 0:
		color = part
	}
	names := make([]string, 0, len(m.nodes))
	for _, i := range m.nodes {
		names = append(names, g.Nodes[i].Name)
	}
	slices.Sort(names)
	label, size := names[0], 8.0
	if len(names) > 1 {
		label, size = fmt.Sprintf("%d nodes", len(names)), 8+3*math.Log10(float64(len(names)))*2
	}
	const most = 20
	tip := fmt.Sprintf("%s: lacks the routes of %d of %d nodes", strings.Join(names[:min(len(names), most)], ", "), lacks, others)
	b.WriteString("<g>")
	fmt.Fprintf(b, `<title>%s</title>`, html.EscapeString(tip))
	if m.reflector {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="%s" stroke-width="2"/>`, m.x-size, m.y-size, 2*size, 2*size, color, ink)
	} else {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`, m.x, m.y, size, color)
	}
	below := m.y + size + 13
	if m.y < centerY-1 {
		below = m.y - size - 5
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="%s" stroke="#ffffff" stroke-width="3" paint-order="stroke">%s</text></g>`+"\n", m.x, below, ink, html.EscapeString(short(label)))
}

// short cuts a long name in its middle.
func short(name string) string {
	const most = 24
	if len(name) <= most {
		return name
	}
	return name[:most/2] + "…" + name[len(name)-most/2+1:]
}
