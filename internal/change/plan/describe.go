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

func (d *describer) step(i int) {
	s := &d.plan.Steps[i]
	describeStep(d.Builder, i+1, s, d.names)
	describeUndo(d.Builder, s, d.past, d.names)
}

func describeStep(b *strings.Builder, n int, s *step.Step, names compact.Namer) {
	fmt.Fprintf(b, "\n%d. %s [%s, about %s]\n", n, s.Title, s.ID, s.Estimate.About())
	if s.Why != "" {
		fmt.Fprintf(b, "   Why: %s\n", s.Why)
	}
	for _, condition := range phrases(names, s.Before) {
		fmt.Fprintf(b, "   Before: %s\n", condition)
	}
	for _, line := range titles(names, s.Actions, s.ID+"/") {
		fmt.Fprintf(b, "   - %s\n", line)
	}
	for _, condition := range phrases(names, s.After) {
		fmt.Fprintf(b, "   After: %s\n", condition)
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
		fmt.Fprintf(b, "   Gate: %s; %s, %s\n", s.Gate.Title, lost, watch)
	}
}

func describeUndo(b *strings.Builder, s *step.Step, past bool, names compact.Namer) {
	for _, line := range titles(names, s.Undo, s.ID+"/undo-") {
		fmt.Fprintf(b, "   Undo: %s\n", line)
	}
	if past && s.Alone {
		b.WriteString("   Where it fails: this step alone is taken back, and a person is asked\n")
	}
	if past || len(s.Undo) > 0 {
		return
	}
	for _, k := range kinds() {
		if k.Words.Undo == nil {
			continue
		}
		if text := k.Words.Undo(s); text != "" {
			fmt.Fprintf(b, "   Undo: %s\n", text)
			return
		}
	}
	if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Apply }) {
		b.WriteString("   Undo: put every object back as it was found, or delete it where there was none, last first\n")
		return
	}
	if i := slices.IndexFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Evict }); i >= 0 {
		back := "their node is switched back"
		if s.Actions[i].Pods.LeaveDaemons {
			back = "the new nodes are shut again"
		}
		fmt.Fprintf(b, "   Undo: nothing of its own; pods move back when %s\n", back)
	}
}

// titles are the lines of a list of actions. What is done to several nodes is said of the first.
func titles(names compact.Namer, actions []step.Action, id string) []string {
	runs, err := names.Actions(actions, id)
	if err != nil {
		runs = []compact.Run[step.Action]{{First: actions}}
	}
	return lines(runs, func(a step.Action) string { return a.Title })
}

// phrases says conditions in words. What must hold of several nodes is said of the first.
func phrases(names compact.Namer, conditions []step.Condition) []string {
	runs, err := names.Conditions(conditions)
	if err != nil {
		runs = []compact.Run[step.Condition]{{First: conditions}}
	}
	return lines(runs, verify.Phrase)
}

func lines[T any](runs []compact.Run[T], say func(T) string) (all []string) {
	var open sentence
	for _, run := range runs {
		for _, entry := range run.First {
			text := say(entry)
			if len(run.Nodes) < 2 && open.takes(text) {
				all[len(all)-1] = open.text()
				continue
			}
			all, open = append(all, text), sentence{words: strings.Fields(text), at: -1}
		}
		if len(run.Nodes) < 2 {
			continue
		}
		open = sentence{}
		others := strings.Join(run.Nodes[1:], ", ")
		if len(run.Nodes) > 4 {
			others = fmt.Sprintf("%d more nodes", len(run.Nodes)-1)
		}
		same := "the same"
		if len(run.First) > 1 {
			same = fmt.Sprintf("these %d", len(run.First))
		}
		all[len(all)-1] += "; " + same + " for " + others
		if run.Batches > 1 {
			all[len(all)-1] += fmt.Sprintf(", in %d batches", run.Batches)
		}
	}
	return all
}

// longest is how long a line grows by what it takes.
const longest = 150

// sentence is a line that takes the lines after it that differ from it in one word: "create Service a, b, c".
type sentence struct {
	words []string
	at    int      // the word in which they differ; -1 until there are two
	more  []string // that word in the lines that were taken
}

// takes says whether a line became part of the sentence.
func (s *sentence) takes(line string) bool {
	words := strings.Fields(line)
	if len(words) != len(s.words) || len(words) == 0 || len(s.text())+len(words[len(words)-1]) > longest {
		return false
	}
	differs := -1
	for i := range words {
		if words[i] == s.words[i] {
			continue
		}
		if differs >= 0 || s.at >= 0 && s.at != i {
			return false
		}
		differs = i
	}
	if differs <= 0 || !strings.ContainsAny(words[differs], "./") { // only names of objects
		return false
	}
	s.at = differs
	s.more = append(s.more, words[differs])
	return true
}

func (s *sentence) text() string {
	words := slices.Clone(s.words)
	if s.at >= 0 {
		words[s.at] = strings.Join(append([]string{words[s.at]}, s.more...), ", ")
	}
	return strings.Join(words, " ")
}
