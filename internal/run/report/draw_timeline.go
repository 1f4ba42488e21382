package report

import (
	"fmt"
	"math"
	"sort"
	"time"
)

// The timeline's dimensions, in units of its drawing.
const (
	drawWidth  = 1120
	drawLeft   = 150
	drawRight  = 10
	laneHeight = 74
	rowHeight  = 24
	axisHeight = 22
	// maxMarks is how many gaps at most are drawn one by one; more are gathered by moment.
	maxMarks = 600
	// tallest is the gap in ms whose mark fills the lane.
	tallest = 10_000
)

// timeline is a drawing, laid out: only numbers and texts.
type timeline struct {
	Width, Height, Left, Right int
	Ticks                      []tick
	Marks                      []mark
	// Lane is the line that gaps stand on; Limit is the height of the longest allowed gap, 0 for none.
	Lane, Limit float64
	LimitText   string
	Measured    []box
	MeasuredY   float64
	Rows        []row
	Pauses      []box
	NoReturn    float64
	// NoReturnText is where its label is centred, within the drawing.
	NoReturnText float64
	Top, Bottom  float64
	// Gathered is true when each mark stands for all gaps of a moment.
	Gathered bool
	NoGaps   string
}

type tick struct {
	X    float64
	Text string
}

type box struct {
	X, Y, W, H float64
	Tone, Text string
}

// mark is one gap, or all of a moment.
type mark struct {
	box
}

type row struct {
	Y, TextY   float64
	Name, Note string
	Boxes      []box
}

// scale maps times to the drawing.
type scale struct {
	from time.Time
	unit float64 // units per second
}

func (s scale) x(at time.Time) float64 { return round1(drawLeft + at.Sub(s.from).Seconds()*s.unit) }

func round1(v float64) float64 { return math.Round(v*10) / 10 }

// newTimeline lays out the run; nil when there is nothing to lay out.
func newTimeline(m Model) *timeline {
	from, to := extent(m)
	if !to.After(from) {
		return nil
	}
	s := scale{from, (drawWidth - drawLeft - drawRight) / to.Sub(from).Seconds()}
	t := &timeline{Width: drawWidth, Left: drawLeft, Right: drawWidth - drawRight, Top: axisHeight,
		Lane: axisHeight + laneHeight}
	t.Ticks = ticks(s, from, to)
	t.gaps(s, m)
	t.MeasuredY = t.Lane + 14
	for _, span := range m.Run.Measured {
		t.Measured = append(t.Measured,
			s.box(span.From, span.To, t.MeasuredY, 6, "measured", "measured "+clock(span.From)+" to "+clock(span.To)))
	}
	y := t.MeasuredY + 18
	for _, g := range m.Groups {
		t.Rows = append(t.Rows, groupRow(s, m, g, y))
		y += rowHeight
	}
	if back := m.Run.Rollback; back != nil {
		t.Rows = append(t.Rows, row{Y: y, TextY: y + 15, Name: "rollback", Boxes: []box{s.box(back.From, back.To, y+3,
			rowHeight-7, "back", "rolled back "+clock(back.From)+" to "+clock(back.To))}})
		y += rowHeight
	}
	t.Bottom, t.Height = y, int(y)+18
	for _, p := range m.Run.Pauses {
		t.Pauses = append(t.Pauses,
			s.box(p.From, p.To, t.Top, t.Bottom-t.Top, "pause", "paused "+clock(p.From)+" to "+clock(p.To)))
	}
	if !m.Run.NoReturn.IsZero() {
		t.NoReturn = s.x(m.Run.NoReturn)
		t.NoReturnText = min(t.NoReturn, drawWidth-50)
	}
	return t
}

// extent spans all times that are known.
func extent(m Model) (from, to time.Time) {
	from, to = m.Run.Begin, m.Run.End
	for _, span := range m.Run.Measured {
		from, to = widen(from, to, span.From, span.To)
	}
	for _, gap := range m.Gaps {
		from, to = widen(from, to, gap.From, gap.From.Add(time.Duration(gap.Millis*float64(time.Millisecond))))
	}
	return from, to
}

func (s scale) box(from, to time.Time, y, h float64, tone, text string) box {
	x := s.x(from)
	return box{X: x, Y: y, W: max(1.2, round1(s.x(to)-x)), H: h, Tone: tone, Text: text}
}

func groupRow(s scale, m Model, g Group, y float64) row {
	r := row{Y: y, TextY: y + 15, Name: g.Name}
	if g.Nodes > 0 {
		r.Note = countOf(int64(g.Nodes), "node")
	}
	for n, i := range g.Steps {
		st := &m.Steps[i]
		if st.Begin.IsZero() {
			continue
		}
		end := st.End
		if end.IsZero() {
			end = g.End
		}
		tone := stateTone(st.State)
		if st.Failure != "" {
			tone = "bad"
		}
		if tone == "ok" && n%2 == 1 {
			tone = "ok2"
		}
		text := fmt.Sprintf("%s: %s (%s to %s, %s)", st.ID, st.State, clock(st.Begin),
			clock(end), between(st.Begin, end))
		if st.Failure != "" {
			text += ": " + st.Failure
		}
		r.Boxes = append(r.Boxes, s.box(st.Begin, end, y+3, rowHeight-7, tone, text))
	}
	return r
}

// ticks puts about eight round moments on the axis.
func ticks(s scale, from, to time.Time) []tick {
	every := 24 * time.Hour
	for _, d := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute,
		5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
		6 * time.Hour, 12 * time.Hour} {
		if to.Sub(from)/d <= 9 {
			every = d
			break
		}
	}
	var list []tick
	for at := from.UTC().Truncate(every).Add(every); !at.After(to); at = at.Add(every) {
		format := "15:04:05"
		if every >= time.Minute {
			format = "15:04"
		}
		list = append(list, tick{s.x(at), at.Format(format)})
	}
	return list
}

// height is the mark of a gap: logarithmic from 1 ms up, so that 10 ms and 10 s can both be seen.
func height(ms float64) float64 {
	return round1(laneHeight * (0.08 + 0.88*min(1, math.Log10(1+ms)/math.Log10(1+tallest))))
}

func (t *timeline) gaps(s scale, m Model) {
	if m.Limit > 0 {
		t.Limit, t.LimitText = round1(t.Lane-height(m.Limit)), duration(m.Limit)
	}
	if len(m.Gaps) == 0 {
		t.NoGaps = "no gap on any path"
		if m.Totals.Sent == 0 {
			t.NoGaps = "not measured"
		}
		return
	}
	if len(m.Gaps) <= maxMarks {
		for _, gap := range m.Gaps {
			t.Marks = append(t.Marks, single(s, t.Lane, &m, gap))
		}
		return
	}
	t.Gathered = true
	t.gather(s, m)
}

func single(s scale, lane float64, m *Model, gap Gap) mark {
	text := fmt.Sprintf("%s, %s from %s to %s (%s), %s, in %s", clock(gap.From), duration(gap.Millis), gap.Source,
		gap.Target, gap.Class, countOf(gap.Probes, "lost probe"), gap.Step)
	tone := m.gapTone(gap.Millis)
	if gap.Denied {
		tone = "leak"
		text = fmt.Sprintf("%s, denied but answered for %s, from %s to %s, in %s",
			clock(gap.From), duration(gap.Millis), gap.Source, gap.Target, gap.Step)
	}
	h := height(gap.Millis)
	return mark{box{X: s.x(gap.From), Y: round1(lane - h), W: max(2.4, round1(gap.Millis/1000*s.unit)),
		H: h, Tone: tone, Text: text}}
}

// gather makes one mark of all gaps within two units, as tall as their longest.
func (t *timeline) gather(s scale, m Model) {
	type bin struct {
		n      int
		lost   int64
		worst  float64
		denied bool
		first  time.Time
	}
	bins := map[int]*bin{}
	for _, gap := range m.Gaps {
		x := int(s.x(gap.From)) / 2 * 2
		if bins[x] == nil {
			bins[x] = &bin{first: gap.From}
		}
		b := bins[x]
		b.n++
		b.lost += gap.Probes
		b.worst = max(b.worst, gap.Millis)
		b.denied = b.denied || gap.Denied
	}
	for x, b := range bins {
		tone := m.gapTone(b.worst)
		if b.denied {
			tone = "leak"
		}
		h := height(b.worst)
		text := fmt.Sprintf("%s: %s, longest %s, %s", clock(b.first), countOf(int64(b.n), "gap"),
			duration(b.worst), countOf(b.lost, "probe"))
		t.Marks = append(t.Marks, mark{box{X: float64(x), Y: round1(t.Lane - h), W: 1.8, H: h, Tone: tone, Text: text}})
	}
	sort.Slice(t.Marks, func(i, j int) bool { return t.Marks[i].X < t.Marks[j].X })
}
