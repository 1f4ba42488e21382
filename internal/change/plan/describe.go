package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/compact"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/step"
)

// describer writes a plan's steps. A step that repeats another, with nothing but the names of nodes and waves changed,
// is one line; of many such steps in one wave, those that are done for the first group of nodes, and for which others.
type describer struct {
	*strings.Builder
	plan    *Plan
	names   compact.Namer
	repeats []int
	alike   alike
	told    map[string]int // the first step that was described with a text, by the text without names
	as      map[int]int    // steps that were described as another
	oneLine bool           // the last step was described in one line
	past    bool           // the point of no return
}

func describeSteps(b *strings.Builder, p *Plan) {
	d := &describer{Builder: b, plan: p, names: compact.NewNamer(p.Steps, nodes(p)), alike: newAlike(p),
		told: map[string]int{}, as: map[int]int{}}
	repeats, err := compact.Repeats(p.Steps, nodes(p))
	if err != nil { // then every step is described
		repeats = slices.Repeat([]int{-1}, len(p.Steps))
	}
	d.repeats = repeats
	chapter, titles := "", chapters()
	for i := 0; i < len(p.Steps); {
		s := &p.Steps[i]
		d.past = d.past || s.NoReturn
		if s.NoReturn {
			b.WriteString("\n======== POINT OF NO RETURN: Theseus can undo every step above, " +
				"and no step below ========\n")
		}
		if now := chapterOf(titles, s); now != chapter {
			fmt.Fprintf(b, "\n== %s ==\n", now)
			chapter, d.oneLine = now, false
		}
		if d.repeats[i] < 0 {
			d.step(i)
			i++
			continue
		}
		d.startLine()
		i += d.repeated(i)
	}
}

// repeated describes steps that repeat others, and says how many.
func (d *describer) repeated(i int) int {
	best, times := 1, 1
	for period := 1; period <= 8; period++ {
		if n := d.cycles(i, period); n > 1 && n*period > best*times {
			best, times = period, n
		}
	}
	if best*times <= 3 {
		d.same(i, d.repeats[i])
		return 1
	}
	var as, groups []string
	for _, at := range d.repeats[i : i+best] {
		as = append(as, fmt.Sprint(d.first(at)+1))
	}
	estimate := step.Duration(0)
	for k, s := range d.plan.Steps[i : i+best*times] {
		estimate += s.Estimate
		if k%best == 0 {
			groups = append(groups, extent(s.Nodes()))
		}
	}
	word := "step"
	if best > 1 {
		word = "steps"
	}
	fmt.Fprintf(d, "%d-%d. The same as %s %s for %d groups of nodes in turn: %s [about %s in total]\n",
		i+1, i+best*times, word, strings.Join(as, ", "), times, shortList(groups), estimate.About())
	return best * times
}

// extent is a group of nodes in few words.
func extent(nodes []string) string {
	switch len(nodes) {
	case 0:
		return "-"
	case 1:
		return nodes[0]
	}
	return fmt.Sprintf("%s to %s (%d)", nodes[0], nodes[len(nodes)-1], len(nodes))
}

// cycles counts how often the procedures of the first steps, as many as period, are done again and again within their
// wave.
func (d *describer) cycles(i, period int) int {
	n := 0
	for at := i; at+period <= len(d.repeats); at += period {
		for k := range period {
			if s := &d.plan.Steps[at+k]; d.repeats[at+k] < 0 || d.repeats[at+k] != d.repeats[i+k] || s.NoReturn ||
				s.Wave != d.plan.Steps[i].Wave {
				return n
			}
		}
		n++
	}
	return n
}

// startLine begins a step that is described in one line.
func (d *describer) startLine() {
	if !d.oneLine {
		d.WriteString("\n")
	}
	d.oneLine = true
}

// first is the step that was described in full for a step.
func (d *describer) first(i int) int {
	if as, known := d.as[i]; known {
		return as
	}
	return i
}

// same describes a step as another.
func (d *describer) same(i, as int) {
	s := &d.plan.Steps[i]
	as = d.first(as)
	d.as[i] = as
	fmt.Fprintf(d, "%d. %s [%s, about %s]: the same as step %d\n", i+1, s.Title, s.ID, s.Estimate.About(), as+1)
}

// step describes a step in full, or in one line if a step before has the same text for other nodes.
func (d *describer) step(i int) {
	s, out := &d.plan.Steps[i], d.Builder
	d.Builder = &strings.Builder{}
	d.body(s)
	text := d.String()
	d.Builder = out
	key := d.alike.without(s.Title + "\n" + text)
	if as, told := d.told[key]; told && !s.NoReturn {
		d.startLine()
		d.same(i, as)
		return
	}
	d.told[key], d.oneLine = i, false
	fmt.Fprintf(d, "\n%d. %s [%s, about %s]\n%s", i+1, s.Title, s.ID, s.Estimate.About(), text)
}

// body describes what a step does and how it is undone.
func (d *describer) body(s *step.Step) {
	if s.Why != "" {
		fmt.Fprintf(d, "   Why: %s\n", s.Why)
	}
	if s.Stop {
		d.WriteString("   Stop: the run pauses here until `theseus resume`, or until the controller's next window in " +
			"which the steps up to the next stop fit\n")
	}
	for _, condition := range d.phrases(s.Before) {
		fmt.Fprintf(d, "   Before: %s\n", condition)
	}
	for _, line := range d.titles(s.Actions, s.ID+"/") {
		fmt.Fprintf(d, "   - %s\n", line)
	}
	for _, condition := range d.phrases(s.After) {
		fmt.Fprintf(d, "   After: %s\n", condition)
	}
	if s.Gate != nil {
		signals := d.plan.Change.SLO
		if SignalsAt(d.plan, s) == kind.SignalsLeft {
			signals = nil
		}
		fmt.Fprintf(d, "   Gate: %s; %s%s\n", s.Gate.Title, demand(s.Gate), signal.AtGate(signals))
	}
	d.undo(s)
}

// demand says what a gate demands, and for how long.
func demand(g *step.Gate) string {
	watch, lost := "in two fresh reports from every node", "no probe may be lost"
	if g.Bake > 0 {
		watch = "for " + g.Bake.About()
	}
	switch {
	case g.Args != nil && g.MaxLost > 0:
		lost = fmt.Sprintf("at most %d requests may fail", g.MaxLost)
	case g.Args != nil:
		lost = "no request may fail"
	case g.MaxLost > 0:
		lost = fmt.Sprintf("at most %d probes may be lost, with no gap above %s", g.MaxLost, time.Duration(g.MaxGap))
	case g.Compares():
		lost = fmt.Sprintf("changed nodes may lose no more than the others (e-process test), with no gap above %s "+
			"and no leak", time.Duration(g.MaxGap))
	}
	if g.Sessions != nil {
		lost += ", and BIRD must have all sessions and routes on every node"
	}
	return watch + ", " + lost
}

// undo describes how a step is undone.
func (d *describer) undo(s *step.Step) {
	for _, line := range d.titles(s.Undo, s.ID+"/undo-") {
		fmt.Fprintf(d, "   Undo: %s\n", line)
	}
	if s.Stop {
		d.WriteString("   On failure: Theseus leaves the cluster as it is, and stops for a decision\n")
		return
	}
	if d.past && s.Alone {
		d.WriteString("   On failure: Theseus undoes this step only, and stops for a decision\n")
	}
	if d.past || len(s.Undo) > 0 {
		return
	}
	for _, k := range kinds() {
		if k.Words.Undo == nil {
			continue
		}
		if text := k.Words.Undo(s); text != "" {
			fmt.Fprintf(d, "   Undo: %s\n", text)
			return
		}
	}
	if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Apply }) {
		d.WriteString("   Undo: restore every object, or delete it if it did not exist before, in reverse order\n")
		return
	}
	if i := slices.IndexFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Evict }); i >= 0 {
		back := "the undo switches their node back"
		if s.Actions[i].Pods.LeaveDaemons {
			back = "the undo taints the new nodes again"
		}
		fmt.Fprintf(d, "   Undo: none for this step; the pods move back when %s\n", back)
	}
}

// titles are the lines of a list of actions. What is done to several nodes is said of the first.
func (d *describer) titles(actions []step.Action, id string) []string {
	runs, err := d.names.Actions(actions, id)
	if err != nil {
		runs = []compact.Run[step.Action]{{First: actions}}
	}
	return lines(runs, func(a step.Action) string { return a.Title })
}

// phrases says conditions in words. What must hold of several nodes is said of the first.
func (d *describer) phrases(conditions []step.Condition) []string {
	runs, err := d.names.Conditions(conditions)
	if err != nil {
		runs = []compact.Run[step.Condition]{{First: conditions}}
	}
	return lines(runs, verify.Phrase)
}
