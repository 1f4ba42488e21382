// Package draw draws BGP graphs: as SVG before and after a change, side by side, and as a Picture with the measured
// state of the sessions, for the live page.
package draw

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// Row is one address family: the graphs before and after the change, with their titles. After is nil if nothing
// changes.
type Row struct {
	Family                  string
	Before, After           *bgp.Graph
	BeforeTitle, AfterTitle string
}

// The measures of a panel, in pixels. Routers outside of the cluster make it higher.
const (
	width, height   = 620, 640
	centerX, middle = width / 2, 362
	margin          = 20
)

// SVG draws the rows one below the other. A node has the same position before and after the change, and sessions that
// the change ends are drawn as such. Up to 60 nodes are drawn individually; with more, similar nodes are drawn as one.
func SVG(output io.Writer, rows []Row) error {
	var panels [][]*Picture
	columns, bottom := 1, 0
	var titles []string
	for _, r := range rows {
		all := arrange(r)
		row := []*Picture{still(r.Before, nil, &all, r.Family+", "+r.BeforeTitle)}
		if r.After != nil {
			row, columns = append(row, still(r.After, r.Before, &all, r.Family+", "+r.AfterTitle)), 2
		}
		for _, p := range row {
			titles = append(titles, p.Title+": "+p.Verdict+"; "+p.Summary)
		}
		panels, bottom = append(panels, row), bottom+row[0].Height
	}
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" class="bgp" viewBox="0 0 %d %d" width="%d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="%s" style="max-width:100%%">`+
			"\n",
		columns*width, bottom+40, columns*width, escape("BGP graph. "+strings.Join(titles, ". ")))
	fmt.Fprintf(&b, `<rect class="paper" width="100%%" height="100%%" fill="%s"/>`+"\n", paper)
	y := 0
	for _, row := range panels {
		for i, p := range row {
			p.panel(&b, i*width, y)
		}
		y += row[0].Height
	}
	legend(&b, columns == 2, bottom)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(output, b.String())
	return err
}

// The classes of marks and verdicts: by how many routes nodes lack, or by how many of their sessions are up. idle is
// what is not known, or not to be judged. Signs in the marks, the strokes of the lines and the words show the state,
// too.
const (
	whole, part, none, idle = "up", "part", "lost", "idle"
)

// The classes of sessions: before and after a change, or as they are measured.
const (
	same, gone, come = "same", "gone", "come"
	down, unknown    = "down", "unknown"
)

// The colours of the classes, where the style sheet of the report does not give others.
const (
	green, amber, red, grey, blue = "#2f7d4f", "#b86e00", "#b3261e", "#8a94a6", "#1f5fbf"
	ink, paper, frame             = "#1c2430", "#ffffff", "#d5dae3"
)

var colors = map[string]string{whole: green, part: amber, none: red, idle: grey, same: grey, gone: red, come: blue,
	down: red, unknown: grey}

// sign is the sign in a mark, in addition to its colour.
var sign = map[string]string{part: "!", none: "×"}

// stroke is the line style of sessions, by their class.
func stroke(class string) string {
	more := map[string]string{gone: ` stroke-dasharray="4 4" opacity="0.7"`, come: ` stroke-width="2"`,
		down: ` stroke-width="2.5"`, unknown: ` stroke-dasharray="2 5"`}[class]
	return fmt.Sprintf(`class="edge %s" fill="none" stroke="%s"%s`, class, colors[class], more)
}

func legend(b *strings.Builder, compared bool, y int) {
	x := float64(margin)
	text := func(words string) {
		fmt.Fprintf(b, `<text x="%.0f" y="%d" fill="%s">%s</text>`+"\n", x, y+19, ink, words)
		x += 22 + 6.4*float64(len(words))
	}
	for _, entry := range []struct{ class, text string }{
		{whole, "has routes to all other nodes"}, {part, "lacks some"}, {none, "has none"},
	} {
		shape(b, Mark{X: x + 7, Y: float64(y) + 15, Size: 7, Shape: disc, Class: entry.class, Sign: sign[entry.class]})
		x += 20
		text(entry.text)
	}
	shape(b, Mark{X: x + 7, Y: float64(y) + 15, Size: 7, Shape: square, Class: "blank"})
	x += 20
	text("route reflector")
	for _, entry := range []struct{ class, text string }{{same, "session"}, {gone, "gone"}, {come, "new"}} {
		if entry.class == same || compared {
			fmt.Fprintf(b, `<path d="M%.0f %dh28" %s/>`+"\n", x, y+15, stroke(entry.class))
			x += 34
			text(entry.text)
		}
	}
}

// panel writes a picture, with its texts above it.
func (p *Picture) panel(b *strings.Builder, x, y int) {
	fmt.Fprintf(b, `<g transform="translate(%d %d)">`+"\n", x, y)
	fmt.Fprintf(b, `<rect class="frame" x="8" y="8" width="%d" height="%d" fill="none" stroke="%s"/>`+"\n", width-16,
		p.Height-16, frame)
	fmt.Fprintf(b, `<text x="%d" y="34" font-size="16" font-weight="600" fill="%s">%s</text>`+"\n",
		margin, ink, escape(p.Title))
	color := colors[p.Class]
	if p.Class == idle {
		color = ink
	}
	fmt.Fprintf(b, `<text class="%s" x="%d" y="55" font-size="13" font-weight="600" fill="%s">%s</text>`+"\n",
		p.Class, margin, color, escape(p.Verdict))
	fmt.Fprintf(b, `<text x="%d" y="73" fill="%s">%s</text>`+"\n", margin, ink, escape(p.Summary))
	if r := p.Ring; r != nil {
		fmt.Fprintf(b, `<circle cx="%.0f" cy="%.0f" r="%.0f" %s/>`+"\n", r.X, r.Y, r.Radius, stroke(r.Class))
		text(b, r.Label)
	}
	for _, line := range p.Lines {
		fmt.Fprintf(b, `<path d="%s" %s/>`+"\n", line.Path, stroke(line.Class))
		text(b, line.Label)
	}
	for _, m := range p.Marks {
		b.WriteString("<g>")
		if m.Tip != "" {
			fmt.Fprintf(b, `<title>%s</title>`, escape(m.Tip))
		}
		shape(b, m)
		text(b, m.Label)
		b.WriteString("</g>\n")
	}
	b.WriteString("</g>\n")
}

// text writes a label, if there is one.
func text(b *strings.Builder, l Label) {
	if l.Text == "" {
		return
	}
	turn := ""
	if l.Turn != 0 {
		turn = fmt.Sprintf(` dominant-baseline="central" transform="rotate(%.1f %.1f %.1f)"`, l.Turn, l.X, l.Y)
	}
	fmt.Fprintf(b,
		`<text class="label" x="%.1f" y="%.1f" text-anchor="%s" fill="%s" stroke="%s" stroke-width="3" paint-order="stroke"%s>%s</text>`+
			"\n",
		l.X, l.Y, l.Anchor, ink, paper, turn, escape(l.Text))
}

// shape writes a mark: a circle for a node, a square for a reflector, a diamond for a router.
func shape(b *strings.Builder, m Mark) {
	color := cmp.Or(colors[m.Class], "none")
	switch m.Shape {
	case square:
		fmt.Fprintf(b, `<rect class="mark %s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="%s" `+
			`stroke-width="2"/>`, m.Class, m.X-m.Size, m.Y-m.Size, 2*m.Size, 2*m.Size, color, ink)
	case diamond:
		fmt.Fprintf(b, `<path class="mark %s" d="M%.1f %.1fl%[4]g %[4]gl-%[4]g %[4]gl-%[4]g -%[4]gz" fill="%[5]s"/>`,
			m.Class, m.X, m.Y-m.Size-2, m.Size+2, color)
	default:
		fmt.Fprintf(b, `<circle class="mark %s" cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`, m.Class, m.X, m.Y, m.Size,
			color)
	}
	if m.Sign != "" {
		fmt.Fprintf(b,
			`<text class="sign" x="%.1f" y="%.1f" text-anchor="middle" font-weight="700" fill="%s">%s</text>`,
			m.X, m.Y+4.2, paper, m.Sign)
	}
	b.WriteByte('\n')
}

// escape escapes any text for XML.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a Builder cannot fail
	return b.String()
}
