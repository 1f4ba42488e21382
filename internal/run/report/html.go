package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"time"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
)

// page is the data of the template: the model, shortened to a readable size, with all drawings laid out.
type page struct {
	Model
	Style    template.CSS
	Script   template.JS
	Figures  []figure
	Timeline *timeline
	Matrix   *matrix
	Networks *matrix
	Runbook  []chapter
	// Troubled are the steps with the worst gaps, Listed the worst gaps, Lines the journal's lines; Cut texts say what
	// was left out.
	Troubled     []Incident
	TroubledCut  string
	Listed       []Gap
	ListedCut    string
	Lines        []Entry
	LinesCut     string
	Moved        []Move
	MovedCut     string
	Leftover     []ResidueItem
	LeftoverCut  string
	Bad, Pending int
	Graph        template.HTML
}

// HTML is the report as one self-contained page: it needs no network and no other file.
func HTML(m Model) ([]byte, error) {
	t, err := template.New("page").Funcs(functions(m)).Parse(pageHTML + loadHTML)
	if err != nil {
		return nil, fmt.Errorf("report's page: %w", err)
	}
	p := newPage(m)
	if p.Graph, err = picture(m.BGP); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("report's page: %w", err)
	}
	return out.Bytes(), nil
}

func newPage(m Model) *page {
	p := &page{Model: m, Style: template.CSS(pageCSS), Script: template.JS(pageJS),
		Figures: figures(m), Timeline: newTimeline(m), Matrix: newMatrix(m),
		Networks: newNetworks(m), Runbook: chapters(m)}
	p.Troubled, p.TroubledCut = worstIncidents(m.Incidents, maxIncidentRows)
	p.Listed, p.ListedCut = worstGaps(m)
	p.Lines, p.LinesCut = journalLines(m)
	p.Moved, p.MovedCut = movedRows(m)
	p.Leftover, p.LeftoverCut = residueRows(m)
	for _, gate := range m.Gates {
		switch {
		case gate.Pending:
			p.Pending++
		case !gate.Pass:
			p.Bad++
		}
	}
	return p
}

// functions are the template's functions; all are pure.
func functions(m Model) template.FuncMap {
	return template.FuncMap{
		"number": number, "ms": duration, "clock": func(at time.Time) string {
			if at.IsZero() {
				return "–"
			}
			return clock(at)
		},
		"num":     func(n int) string { return number(int64(n)) },
		"msOf":    func(ms int64) string { return duration(float64(ms)) },
		"day":     func(at time.Time) string { return at.UTC().Format("2 January 2006, 15:04:05 UTC") },
		"micros":  func(us int64) string { return duration(float64(us) / 1000) },
		"between": func(from, to time.Time) string { return between(from, to) },
		"gapTone": m.gapTone,
		"rowTone": m.rowTone,
		"gateTone": func(g Gate) string {
			if m.compared {
				return m.rowTone(g)
			}
			return "bad"
		},
		"compared": func() bool { return m.compared },
		"tone":     stateTone,
		"count":    func(n int, noun string) string { return countOf(int64(n), noun) },
		"residue":  func(Model) string { return residueText(m) },
		"short":    short,
		"moved":    func(Model) string { return movesText(m) },
		"gates":    func(Model) string { return gatesText(m) },
	}
}

func between(from, to time.Time) string {
	if from.IsZero() || to.Before(from) {
		return "–"
	}
	return duration(millis(to.Sub(from)))
}

// gapTone is the class of a gap's colour.
func gapTone(limit, ms float64) string {
	switch {
	case ms == 0:
		return "ok"
	case ms <= limit:
		return "warn"
	}
	return "bad"
}

func stateTone(s State) string {
	switch s {
	case StepDone:
		return "ok"
	case StepFailed:
		return "bad"
	case StepUndone:
		return "back"
	case StepRunning:
		return "warn"
	}
	return "none"
}

// word is the level in words.
func word(l Level) string {
	switch l {
	case Good:
		return "passed"
	case Partial:
		return "passed, outside not measured"
	case Fair:
		return "passed, with losses within the limit"
	case Stopped:
		return "not completed"
	case Unknown:
		return "not proven"
	}
	return "failed"
}

// Style is the style sheet of the report, for pages that look like it.
func Style() string { return pageCSS }
