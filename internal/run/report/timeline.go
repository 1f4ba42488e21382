package report

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Names for moments outside of all steps.
const (
	beforeRun  = "before the run"
	afterRun   = "after the run"
	betweenRun = "between steps"
	whilePause = "while paused"
)

// groups makes rows of consecutive steps with the same first part of their ids, and one for a rollback.
func (h *history) groups() []Group {
	var rows []Group
	for i, s := range h.steps {
		if n := len(rows); n == 0 || rows[n-1].Name != s.Group {
			rows = append(rows, Group{Name: s.Group})
		}
		row := &rows[len(rows)-1]
		row.Steps = append(row.Steps, i)
	}
	for i := range rows {
		h.sum(&rows[i])
	}
	return rows
}

// sum derives a row's interval and state from its steps: the worst state wins.
func (h *history) sum(row *Group) {
	nodes, states := map[string]bool{}, map[State]int{}
	for _, i := range row.Steps {
		s := &h.steps[i]
		for _, node := range s.Nodes {
			nodes[node] = true
		}
		states[s.State]++
		if s.Begin.IsZero() {
			continue
		}
		if row.Begin.IsZero() || s.Begin.Before(row.Begin) {
			row.Begin = s.Begin
		}
		if end := h.endOf(s); end.After(row.End) {
			row.End = end
		}
	}
	row.Nodes = len(nodes)
	switch {
	case states[StepFailed] > 0:
		row.State = StepFailed
	case states[StepUndone] > 0:
		row.State = StepUndone
	case states[StepRunning] > 0:
		row.State = StepRunning
	case states[StepNotReached] == len(row.Steps):
		row.State = StepNotReached
	case states[StepNotReached] > 0:
		row.State = StepRunning
	default:
		row.State = StepDone
	}
}

// endOf is when a step ended; one that has not ended lasts to the end of the journal or to the rollback.
func (h *history) endOf(s *Step) time.Time {
	switch {
	case !s.End.IsZero():
		return s.End
	case h.run.Rollback != nil:
		return h.run.Rollback.From
	}
	return h.run.End
}

// place finds the step in which a moment lies, and the step that was rolled back then. The sender's clock and the
// engine's may differ slightly, in spite of NTP.
func (h *history) place(at time.Time, order []int) (place, undoing string) {
	switch {
	case h.run.Begin.IsZero() || at.Before(h.run.Begin):
		return beforeRun, ""
	case at.After(h.run.End):
		return h.latest(order)
	}
	for _, u := range h.undone {
		if !at.Before(u.span.From) && at.Before(u.span.To) {
			return "rollback of " + u.step, u.step
		}
	}
	for _, p := range h.run.Pauses {
		if !at.Before(p.From) && at.Before(p.To) {
			return whilePause, ""
		}
	}
	// The last step that began at or before the moment.
	i := sort.Search(len(order), func(i int) bool { return h.steps[order[i]].Begin.After(at) })
	if i == 0 {
		return betweenRun, ""
	}
	if s := &h.steps[order[i-1]]; at.Before(h.endOf(s)) {
		return s.ID, ""
	}
	return betweenRun, ""
}

// latest is where the run is after its last record: that of a step that is under way may be old.
func (h *history) latest(order []int) (place, undoing string) {
	last := func(holds func(State) bool) string {
		for _, i := range slices.Backward(order) {
			if holds(h.steps[i].State) {
				return h.steps[i].ID
			}
		}
		return ""
	}
	n := len(h.journal)
	switch {
	case h.run.Outcome == Paused:
		return whilePause, ""
	case h.run.Outcome == Running || h.run.Outcome == Measuring:
		return cmp.Or(last(func(s State) bool { return s == StepRunning }), betweenRun), ""
	case h.run.Outcome == RollingBack || n > 0 && h.journal[n-1].Event != string(engine.Finished) &&
		h.run.Outcome == NeedsPerson: // a step is taken back
		if step := last(func(s State) bool { return s != StepUndone }); step != "" {
			return "rollback of " + step, step
		}
	}
	return afterRun, ""
}

// begun lists the steps that began, by time.
func (h *history) begun() []int {
	var order []int
	for i := range h.steps {
		if !h.steps[i].Begin.IsZero() {
			order = append(order, i)
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return h.steps[order[i]].Begin.Before(h.steps[order[j]].Begin) })
	return order
}

// gaps assigns every gap to its step, oldest first, and counts them by step.
func (h *history) gaps(all loss.Account) []Gap {
	gaps := h.placed(all)
	for _, gap := range gaps {
		if i, ok := h.index[gap.Step]; ok {
			h.steps[i].Gaps++
		}
	}
	return gaps
}

// placed assigns every gap to its step, oldest first.
func (h *history) placed(all loss.Account) []Gap {
	order := h.begun()
	var gaps []Gap
	for _, p := range all {
		for _, one := range p.Gaps {
			gap := gapOf(p, one)
			gap.Step, gap.Undoing = h.place(gap.From, order)
			gaps = append(gaps, gap)
		}
	}
	sort.SliceStable(gaps, func(i, j int) bool { return gaps[i].From.Before(gaps[j].From) })
	return gaps
}

// incidents sums the gaps up by the step in which they began, in order of time.
func incidents(gaps []Gap) []Incident {
	var all []Incident
	index, paths := map[string]int{}, map[string]map[string]bool{}
	for _, gap := range gaps {
		i, ok := index[gap.Step]
		if !ok {
			i = len(all)
			index[gap.Step], paths[gap.Step] = i, map[string]bool{}
			all = append(all, Incident{Step: gap.Step, First: gap.From})
		}
		in := &all[i]
		in.Gaps++
		paths[gap.Step][gap.Path] = true
		in.Paths = len(paths[gap.Step])
		if gap.Denied {
			in.Leaked += gap.Probes
			in.LongestLeakMillis = max(in.LongestLeakMillis, gap.Millis)
			continue
		}
		in.Lost += gap.Probes
		in.LongestMillis = max(in.LongestMillis, gap.Millis)
	}
	return all
}
