package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// Live draws one graph again and again, with the measured state of its sessions. Its marks keep their places.
type Live struct {
	family string
	graph  *bgp.Graph
	layout layout
	marks  []Mark // without a state
	places map[int]int
}

// The limits of a picture: of lines, of which those that are down come first, of troubles, of names of a mark, and of
// the characters of what a node says.
const (
	maxLines, maxTroubles, maxNames, maxSaid = 1200, 20, 5, 200
)

// NewLive places the nodes of a graph.
func NewLive(family string, g *bgp.Graph) *Live {
	l := &Live{family: family, graph: g, layout: arrange(Row{Before: g})}
	l.places = l.layout.in(g)
	first := map[int]int{} // a node of each mark
	for _, i := range slices.Backward(g.Speakers()) {
		first[l.places[i]] = i
	}
	for _, m := range l.layout.marks {
		i := first[m.at]
		drawn := l.layout.mark(m, !m.router && g.Nodes[i].ClusterID != "", idle)
		if drawn.Role = "router outside of the cluster"; !m.router {
			drawn.Role = l.role(i, m.mixed)
		}
		if len(m.names) > 1 {
			drawn.Names = m.names[:min(len(m.names), maxNames)]
		}
		l.marks = append(l.marks, drawn)
	}
	return l
}

// role is a node's part in BGP.
func (l *Live) role(i int, mixed bool) string {
	var parts, via []string
	if l.graph.Nodes[i].ClusterID != "" {
		parts = append(parts, "route reflector")
	}
	if l.graph.InMesh(i) {
		parts = append(parts, "in the full mesh")
	}
	for _, j := range l.graph.Via(i) {
		via = append(via, l.graph.Nodes[j].Name)
	}
	if len(via) > maxNames {
		via = append(via[:maxNames], fmt.Sprintf("%d more", len(via)-maxNames))
	}
	switch {
	case mixed:
		return "nodes of several kinds"
	case len(via) > 0 && l.graph.Nodes[i].ClusterID == "":
		parts = append(parts, "peer of "+strings.Join(via, ", "))
	case len(parts) == 0:
		parts = append(parts, "no reflector")
	}
	return strings.Join(parts, ", ")
}

// Picture is the graph with what nodes say of their sessions now, by name. Of a node without an entry nothing is known.
func (l *Live) Picture(seen map[string]bgp.Seen) *Picture {
	p := &Picture{Title: l.family, Height: l.layout.height(), Summary: summary(l.graph), Marks: slices.Clone(l.marks),
		Lines: []Line{}}
	between := map[pair]bgp.Tally{}
	mute := l.mute(p, seen)
	health := l.graph.Judge(seen, func(s bgp.Session) {
		at, to, peer := l.places[s.From], 0, s.Router.IP.String()
		if s.To >= 0 {
			to, peer = l.places[s.To], l.graph.Nodes[s.To].Name
		} else {
			to = l.layout.routers[s.Router.IP]
			p.Marks[to].Tally.Add(s.Tally)
		}
		if s.Down > 0 && !mute[s.From] && !mute[s.To] {
			p.trouble(l.graph.Nodes[s.From].Name + " and " + peer + ": the session is down")
		}
		if at != to {
			one := pair{min(at, to), max(at, to)}
			sum := between[one]
			sum.Add(s.Tally)
			between[one] = sum
		}
	})
	p.Verdict, p.Class = judged(l.graph, health.All)
	for _, i := range l.graph.Speakers() {
		p.Marks[l.places[i]].Tally.Add(health.Nodes[i])
	}
	for i := range p.Marks {
		m := &p.Marks[i]
		m.Class, m.Sign = stateOf(m.Tally)
		m.Tip = m.Name + ", " + m.Role + ": " + words(m.Tally)
	}
	if l.graph.MeshSize() > 1 {
		p.circle(l.graph, &l.layout, lineOf(health.Mesh))
		p.Ring.Label = l.layout.count(health.Mesh, centerX, l.layout.centerY()+l.layout.radius-8)
	}
	p.between(between, &l.layout)
	return p
}

// mute names the nodes whose daemon does not answer.
func (l *Live) mute(p *Picture, seen map[string]bgp.Seen) map[int]bool {
	mute := map[int]bool{}
	for _, i := range l.graph.Speakers() {
		name := l.graph.Nodes[i].Name
		one, heard := seen[name]
		if !heard || one.Down == "" || l.graph.Degree(i)+len(l.graph.Outside(i)) == 0 {
			continue
		}
		mute[i] = true
		said := []rune(one.Down)
		p.trouble(name + ": BIRD does not answer: " + string(said[:min(len(said), maxSaid)]))
	}
	return mute
}

func (p *Picture) trouble(text string) {
	if len(p.Troubles) == maxTroubles {
		p.Untold++
		return
	}
	p.Troubles = append(p.Troubles, text)
}

// between draws the sessions between marks: those that are down above the others.
func (p *Picture) between(sums map[pair]bgp.Tally, all *layout) {
	var lines []Line
	for marks, sum := range sums {
		path, x, y := all.line(all.marks[marks[0]], all.marks[marks[1]])
		lines = append(lines, Line{From: marks[0], To: marks[1], Path: path, Class: lineOf(sum), Tally: sum,
			Label: all.count(sum, x, y)})
	}
	order := map[string]int{down: 0, unknown: 1, same: 2}
	slices.SortFunc(lines, func(x, y Line) int {
		return cmp.Or(cmp.Compare(order[x.Class], order[y.Class]), cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To))
	})
	if len(lines) > maxLines {
		p.Summary += fmt.Sprintf("; %d lines are not drawn", len(lines)-maxLines)
		lines = lines[:maxLines]
	}
	slices.Reverse(lines)
	p.Lines = append(p.Lines, lines...)
}

// count labels sessions that are down.
func (l *layout) count(t bgp.Tally, x, y float64) Label {
	if t.Down == 0 {
		return Label{}
	}
	text := "× down"
	switch {
	case t.Total() > t.Down:
		text = fmt.Sprintf("× %d of %d down", t.Down, t.Total())
	case t.Down > 1:
		text = fmt.Sprintf("× %d down", t.Down)
	}
	return Label{X: round(x), Y: round(y + 4), Anchor: "middle", Text: text}
}

// judged is the state of all sessions in one sentence, with a class.
func judged(g *bgp.Graph, all bgp.Tally) (text, class string) {
	switch {
	case !g.Started:
		return "BIRD does not run: there are no sessions", idle
	case all.Total() == 0:
		return "The cluster's objects configure no session", idle
	case all.Unknown == all.Total():
		return "No session is known: no agent reports its sessions now", idle
	}
	text, class = "All sessions are up: "+words(all), whole
	switch {
	case all.Down > 0:
		text, class = "Sessions are down: "+words(all), none
	case all.Unknown > 0:
		text, class = "Not all sessions are known: "+words(all), idle
	}
	return text, class
}

// words counts sessions in words.
func words(t bgp.Tally) string {
	if t.Total() == 0 {
		return "no sessions"
	}
	text := fmt.Sprintf("%d of %s up", t.Up, cluster.Count(t.Total(), "session"))
	if t.Down > 0 {
		text += fmt.Sprintf(", %d down", t.Down)
	}
	if t.Unknown > 0 {
		text += fmt.Sprintf(", %d not known", t.Unknown)
	}
	return text
}

func stateOf(t bgp.Tally) (class, sign string) {
	switch {
	case t.Total() == 0:
		return idle, ""
	case t.Down == t.Total():
		return none, "×"
	case t.Down > 0:
		return part, "!"
	case t.Unknown > 0:
		return idle, "?"
	}
	return whole, ""
}

func lineOf(t bgp.Tally) string {
	switch {
	case t.Down > 0:
		return down
	case t.Unknown > 0:
		return unknown
	}
	return same
}
