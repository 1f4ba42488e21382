package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/compact"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// describer writes a plan's steps. A step that repeats another, with nothing but the names of nodes and waves changed, is one
// line; of many such steps in one wave, those that are done for the first group of nodes, and for which others.
type describer struct {
	*strings.Builder
	plan    *Plan
	names   compact.Namer
	repeats []int
	past    bool // the point of no return
}

func describeSteps(b *strings.Builder, p *Plan) {
	d := &describer{Builder: b, plan: p, names: compact.NewNamer(p.Steps, nodes(p))}
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
			b.WriteString("\n======== POINT OF NO RETURN: until here everything can be taken back, from here on nothing can ========\n")
		}
		if now := chapterOf(titles, s); now != chapter {
			fmt.Fprintf(b, "\n== %s ==\n", now)
			chapter = now
		}
		if d.repeats[i] < 0 {
			d.step(i)
			i++
			continue
		}
		if i == 0 || d.repeats[i-1] < 0 {
			b.WriteString("\n")
		}
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
		s := &d.plan.Steps[i]
		fmt.Fprintf(d, "%d. %s [%s, about %s]: as step %d\n", i+1, s.Title, s.ID, s.Estimate.About(), d.repeats[i]+1)
		return 1
	}
	var as, groups []string
	for _, at := range d.repeats[i : i+best] {
		as = append(as, fmt.Sprint(at+1))
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
	fmt.Fprintf(d, "%d-%d. For %d groups of nodes in turn, %s: as %s %s, about %s in all\n", i+1, i+best*times, times,
		shortList(groups), word, strings.Join(as, ", "), estimate.About())
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

// cycles counts how often the procedures of the first steps, as many as period, are done again and again within their wave.
func (d *describer) cycles(i, period int) int {
	n := 0
	for at := i; at+period <= len(d.repeats); at += period {
		for k := range period {
			if s := &d.plan.Steps[at+k]; d.repeats[at+k] < 0 || d.repeats[at+k] != d.repeats[i+k] || s.NoReturn || s.Wave != d.plan.Steps[i].Wave {
				return n
			}
		}
		n++
	}
	return n
}

// step describes a step in full.
func (d *describer) step(i int) {
	s := &d.plan.Steps[i]
	fmt.Fprintf(d, "\n%d. %s [%s, about %s]\n", i+1, s.Title, s.ID, s.Estimate.About())
	if s.Why != "" {
		fmt.Fprintf(d, "   Why: %s\n", s.Why)
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
		watch := "on two fresh reports of every node"
		if s.Gate.Bake > 0 {
			watch = "watched for " + s.Gate.Bake.About()
		}
		lost := "no probe lost"
		if s.Gate.Args != nil {
			lost = fmt.Sprintf("at most %d requests lost", s.Gate.MaxLost)
		} else if s.Gate.Compares() {
			lost = fmt.Sprintf("changed nodes lose no more than the others (an e-process), no gap above %s, nothing leaked", time.Duration(s.Gate.MaxGap))
		}
		if s.Gate.MaxLost > 0 && s.Gate.Args == nil {
			lost = fmt.Sprintf("at most %d probes lost, no gap above %s", s.Gate.MaxLost, time.Duration(s.Gate.MaxGap))
		}
		if s.Gate.Sessions != nil {
			lost += ", BIRD's sessions and routes whole on every node"
		}
		fmt.Fprintf(d, "   Gate: %s; %s, %s\n", s.Gate.Title, lost, watch)
	}
	d.undo(s)
}

// undo describes how a step is taken back.
func (d *describer) undo(s *step.Step) {
	for _, line := range d.titles(s.Undo, s.ID+"/undo-") {
		fmt.Fprintf(d, "   Undo: %s\n", line)
	}
	if d.past && s.Alone {
		d.WriteString("   Where it fails: this step alone is taken back, and a person is asked\n")
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
		d.WriteString("   Undo: put every object back as it was found, or delete it where there was none, last first\n")
		return
	}
	if i := slices.IndexFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Evict }); i >= 0 {
		back := "their node is switched back"
		if s.Actions[i].Pods.LeaveDaemons {
			back = "the new nodes are shut again"
		}
		fmt.Fprintf(d, "   Undo: nothing of its own; pods move back when %s\n", back)
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
