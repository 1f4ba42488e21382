package report

import (
	"cmp"
	"fmt"
	"slices"
)

// How many rows of each list the page shows; the JSON report has all of them.
const (
	maxGapRows      = 100
	maxIncidentRows = 30
	maxResidueRows  = 150
	maxLines        = 1200
	// edgeLines of a longer journal are shown from each end, and notableLines of the failures between them.
	edgeLines    = 200
	notableLines = 400
	// maxFullSteps is how many steps at most the runbook shows with all their actions.
	maxFullSteps = 120
)

// worstGaps are the longest, answers to denied probes first.
func worstGaps(m Model) ([]Gap, string) {
	list := slices.Clone(m.Gaps)
	slices.SortStableFunc(list, func(a, b Gap) int {
		if a.Denied != b.Denied {
			return boolRank(a.Denied) - boolRank(b.Denied)
		}
		return cmp.Compare(b.Millis, a.Millis)
	})
	if len(list) <= maxGapRows {
		return list, ""
	}
	return list[:maxGapRows], fmt.Sprintf("The longest %d of %s gaps.", maxGapRows, number(int64(len(list))))
}

// residueRows are the items that matter most to a reader: those that are left come first.
func residueRows(m Model) ([]ResidueItem, string) {
	list := m.Residue.Items
	if len(list) <= maxResidueRows {
		return list, ""
	}
	return list[:maxResidueRows], fmt.Sprintf("%d of %s things; those that are left come first.",
		maxResidueRows, number(int64(len(list))))
}

// journalLines are all lines, or of a long journal both ends and the failures between them.
func journalLines(m Model) ([]Entry, string) {
	list := m.Journal
	if len(list) <= maxLines {
		return list, ""
	}
	shown := slices.Clone(list[:edgeLines])
	notable := 0
	for _, entry := range list[edgeLines : len(list)-edgeLines] {
		if (entry.Bad || entry.Event == "paused" || entry.Event == "resumed") && notable < notableLines {
			shown = append(shown, entry)
			notable++
		}
	}
	shown = append(shown, list[len(list)-edgeLines:]...)
	return shown, fmt.Sprintf("The first and the last %d of %s lines, and the failures between them.",
		edgeLines, number(int64(len(list))))
}

// chapter is a group of the runbook.
type chapter struct {
	Group
	Steps []runbookStep
	Same  string
	// Open is true when something in it did not go as planned, so that it is shown unfolded.
	Open bool
}

// runbookStep is a step, with or without its actions.
type runbookStep struct {
	Step
	Short bool
}

// chapters lays out the plan. Of a long one, only the first node of each wave is shown in full, and the
// steps that did not go as planned.
func chapters(m Model) []chapter {
	var list []chapter
	for _, g := range m.Groups {
		c := chapter{Group: g}
		first := ""
		for _, i := range g.Steps {
			s := runbookStep{Step: m.Steps[i]}
			if first == "" {
				first = s.Node
			}
			plain := s.State == StepDone || s.State == StepNotReached
			s.Short = len(m.Steps) > maxFullSteps && s.Node != first && plain && s.Failure == ""
			if s.Short {
				c.Same = "The steps of " + first + " are shown in full; those of the other nodes do the same."
			}
			c.Open = c.Open || s.Failure != "" || s.State == StepRunning
			c.Steps = append(c.Steps, s)
		}
		list = append(list, c)
	}
	return list
}

// worstIncidents are the steps with the longest gaps, in the order of time, and a note on how many were left out.
func worstIncidents(all []Incident, limit int) ([]Incident, string) {
	if len(all) <= limit {
		return all, ""
	}
	few := slices.Clone(all)
	slices.SortStableFunc(few, func(a, b Incident) int {
		return cmp.Or(boolRank(a.Leaked > 0)-boolRank(b.Leaked > 0), cmp.Compare(worstOf(b), worstOf(a)))
	})
	few = few[:limit]
	slices.SortStableFunc(few, func(a, b Incident) int { return a.First.Compare(b.First) })
	return few, fmt.Sprintf("The %d steps with the longest gaps, of %s in which a gap began.",
		limit, countOf(int64(len(all)), "step"))
}
