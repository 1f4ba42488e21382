package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/compact"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/step"
)

// describer writes a plan's steps. What is done again, with nothing but the names of nodes and waves changed, refers to
// the steps that were described in full: a step, the steps of one group of nodes after the other, or whole waves.
type describer struct {
	*strings.Builder
	plan    *Plan
	names   *compact.Namer
	alike   alike
	as      []int            // of each step, the first with the same text without names: itself, where it is the first
	texts   map[int]string   // of those
	titled  map[string][]int // those that were described in full, by their titles without names
	waves   map[string]span  // the first wave of each course of steps
	oneLine bool             // the last step was described in one line
	narrows bool             // some gates ask only some nodes
	last    int              // the step at that point; the number of steps, where there is none
}

// span are steps: from one on, and before another.
type span struct{ from, to int }

func describeSteps(b *strings.Builder, p *Plan) {
	d := &describer{Builder: b, plan: p, names: compact.NewNamer(p.Steps, nodes(p)), alike: newAlike(p),
		texts: map[int]string{}, titled: map[string][]int{}, waves: map[string]span{}, last: len(p.Steps)}
	if i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.NoReturn }); i >= 0 {
		d.last = i
	}
	d.narrows = slices.ContainsFunc(p.Steps, func(s step.Step) bool { return s.Gate != nil && s.Gate.Near })
	d.compare()
	chapter, titles := "", chapters()
	for i := 0; i < len(p.Steps); {
		s := &p.Steps[i]
		if s.NoReturn {
			b.WriteString("\n======== POINT OF NO RETURN: Theseus can undo every step above, " +
				"and no step below ========\n")
		}
		if now := chapterOf(titles, s); now != chapter {
			chapter, d.oneLine = now, false
			waves := d.again(i)
			if n := len(waves); n > 1 {
				now += " to " + p.Steps[waves[n-1].from].Wave
			}
			fmt.Fprintf(b, "\n== %s ==\n", now)
			if len(waves) > 0 {
				i = d.repeatedWaves(waves)
				continue
			}
		}
		if d.as[i] == i {
			d.step(i)
			i++
			continue
		}
		d.startLine()
		i += d.repeated(i)
	}
}

// undoes says whether a line of a step says how it is undone.
func undoes(line string) bool { return strings.HasPrefix(line, "   Undo: ") }

// compare finds out which steps are the same but for names. After the point of no return, where no step can be undone,
// those that do the same are.
func (d *describer) compare() {
	p, out := d.plan, d.Builder
	repeats, err := d.names.Repeats()
	if err != nil { // then texts alone are compared
		repeats = slices.Repeat([]int{-1}, len(p.Steps))
	}
	told, undone := map[string]int{}, map[string]int{} // the latter without what undoes a step
	for i := range p.Steps {
		s := &p.Steps[i]
		past := i >= d.last
		if repeats[i] >= 0 && !s.NoReturn {
			d.as = append(d.as, d.as[repeats[i]])
			continue
		}
		d.Builder = &strings.Builder{}
		d.body(s, past)
		text := d.String()
		title, lines := d.alike.without(s.Title), d.alike.lines(text)
		key := title + "\n" + strings.Join(lines, "\n")
		does := title + "\n" + strings.Join(slices.DeleteFunc(lines, undoes), "\n")
		as, known := told[key]
		if !known && past && !s.Alone {
			as, known = undone[does]
		}
		if known && !s.NoReturn {
			d.as = append(d.as, as)
			continue
		}
		if _, known := undone[does]; !known {
			undone[does] = i
		}
		told[key], d.texts[i] = i, text
		d.as = append(d.as, i)
	}
	d.Builder = out
}

// fewSteps is how many steps of waves that repeat another one are still described one by one.
const fewSteps = 8

// again are the waves from a step on that repeat the course of an earlier wave.
func (d *describer) again(i int) (waves []span) {
	wave, course := d.wave(i)
	if course == "" {
		return nil
	}
	if _, known := d.waves[course]; !known {
		d.waves[course] = wave
		return nil
	}
	for next := course; next == course; {
		waves = append(waves, wave)
		if wave.to == len(d.plan.Steps) {
			break
		}
		wave, next = d.wave(wave.to)
	}
	if waves[len(waves)-1].to-i <= fewSteps {
		return nil
	}
	return waves
}

// wave are the steps of the wave that begins with a step, and their course: which steps they are the same as, where
// what is done for one group of nodes after the other counts once. The course is empty where the steps are not those of
// a wave.
func (d *describer) wave(i int) (all span, course string) {
	s := &d.plan.Steps[i]
	if s.Wave == "" || s.Wave != s.Group {
		return span{i, i + 1}, ""
	}
	all = span{i, i}
	for all.to < len(d.plan.Steps) && d.plan.Steps[all.to].Group == s.Group {
		if d.plan.Steps[all.to].NoReturn || d.plan.Steps[all.to].Stop {
			return span{i, i + 1}, ""
		}
		all.to++
	}
	for at := i; at < all.to; {
		period, times := d.cycle(at)
		for _, as := range d.as[at : at+period] {
			course += fmt.Sprintf("%d ", as)
		}
		course += "| "
		at += period * times
	}
	return all, course
}

// repeatedWaves describes waves that repeat an earlier one, and returns the step after them.
func (d *describer) repeatedWaves(waves []span) int {
	_, course := d.wave(waves[0].from)
	like, after := d.waves[course], waves[len(waves)-1].to
	var each []string
	estimate := step.Duration(0)
	for _, wave := range waves {
		name := d.plan.Steps[wave.from].Wave
		each = append(each, name+": "+extent(d.nodes(name)))
		for k := wave.from; k < wave.to; k++ {
			estimate += d.plan.Steps[k].Estimate
		}
	}
	groups := ""
	if n := d.plan.Parallel.Nodes; n > 0 {
		groups = fmt.Sprintf(", in which pods move on at most %s at once", cluster.Count(n, "node"))
	}
	d.startLine()
	fmt.Fprintf(d, "%d-%d. The same as steps %d to %d (%s)%s, wave by wave%s: %s [about %s in total]\n",
		waves[0].from+1, after, like.from+1, like.to, d.plan.Steps[like.from].Wave,
		d.undoneAbove(like.from, waves[0].from), groups, shortList(each), estimate.About())
	return after
}

// cycle is how many steps are done again and again from a step on, and how often; 1 and 1 where none are.
func (d *describer) cycle(i int) (period, times int) {
	period, times = 1, 1
	for p := 1; p <= 8; p++ {
		if n := d.cycles(i, p); n > 1 && n*p > period*times {
			period, times = p, n
		}
	}
	return period, times
}

// repeated describes steps that repeat others, and says how many.
func (d *describer) repeated(i int) int {
	best, times := d.cycle(i)
	var as, groups []string
	for k, at := range d.as[i : i+best] {
		if best*times <= 3 || at == i+k { // which is described on its own
			d.same(i)
			return 1
		}
		as = append(as, fmt.Sprint(at+1))
	}
	estimate := step.Duration(0)
	for k, s := range d.plan.Steps[i : i+best*times] {
		estimate += s.Estimate
		if k%best == 0 {
			groups = append(groups, extent(d.among(&s)))
		}
	}
	word := "step"
	if best > 1 {
		word = "steps"
	}
	fmt.Fprintf(d, "%d-%d. The same as %s %s%s for %d groups of nodes in turn: %s [about %s in total]\n",
		i+1, i+best*times, word, strings.Join(as, ", "), d.undoneAbove(d.as[i], i), times, shortList(groups),
		estimate.About())
	return best * times
}

// among are the nodes that a step is about: those of its wave, or those in their place, where it does not say.
func (d *describer) among(s *step.Step) []string {
	if nodes := s.Nodes(); len(nodes) > 0 {
		return nodes
	}
	nodes := d.nodes(s.Wave)
	for _, a := range s.Actions {
		if a.Node() != "" && !slices.Contains(nodes, a.Node()) {
			if i := slices.IndexFunc(d.plan.Waves, func(w kind.Wave) bool { return w.Name == s.Wave }); i >= 0 {
				return d.plan.Others(i)
			}
		}
	}
	return nodes
}

// nodes are those of a wave.
func (d *describer) nodes(wave string) []string {
	i := slices.IndexFunc(d.plan.Waves, func(w kind.Wave) bool { return w.Name == wave })
	if i < 0 {
		return nil
	}
	return d.plan.Waves[i].Nodes
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

// cycles counts how often the first steps, as many as period, are done again and again within their chapter.
func (d *describer) cycles(i, period int) int {
	n := 0
	for at := i; at+period <= len(d.as); at += period {
		for k := range period {
			s := &d.plan.Steps[at+k]
			if d.as[at+k] != d.as[i+k] || s.NoReturn || s.Stop || s.Group != d.plan.Steps[i].Group {
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

// same describes a step as another.
func (d *describer) same(i int) {
	s := &d.plan.Steps[i]
	end := "\n"
	if wider := d.wider(i); wider != "" {
		end, d.oneLine = ", except:\n"+wider, false
	}
	fmt.Fprintf(d, "%d. %s [%s, about %s]: the same as step %d%s%s", i+1, s.Title, s.ID, s.Estimate.About(), d.as[i]+1,
		d.differently(d.as[i], i), end)
}

// wider are the lines of a step of several nodes that are about more nodes than it moves pods of.
func (d *describer) wider(i int) string {
	s := &d.plan.Steps[i]
	moves := len(s.Nodes())
	if moves < 2 || !slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op() == step.OpEvict }) {
		return ""
	}
	text := ""
	for _, line := range d.titles(s.Actions, s.ID+"/") {
		if n := d.alike.covers(line); n > moves {
			text += "   - " + line + "\n"
		}
	}
	return text
}

// differently says that a step does for several nodes what another does for one, and that nothing undoes it.
func (d *describer) differently(one, several int) string {
	text := ""
	if len(d.among(&d.plan.Steps[one])) == 1 && len(d.among(&d.plan.Steps[several])) > 1 {
		text = ", for all these nodes"
	}
	return text + d.undoneAbove(one, several)
}

// undoneAbove says that nothing undoes a step that is the same as one that can be undone.
func (d *describer) undoneAbove(as, i int) string {
	if as < d.last && i >= d.last {
		return ", without undo"
	}
	return ""
}

// step describes a step that no earlier one is the same as: by what differs from one with the same title, where that is
// little, or else in full.
func (d *describer) step(i int) {
	s := &d.plan.Steps[i]
	fmt.Fprintf(d, "\n%d. %s [%s, about %s]", i+1, s.Title, s.ID, s.Estimate.About())
	d.oneLine = false
	title := d.alike.without(s.Title)
	for _, as := range slices.Backward(d.titled[title]) {
		if differs, ok := d.differs(as, i); ok {
			if differs != "" {
				differs = ", except:" + "\n" + differs
			}
			fmt.Fprintf(d, ": the same as step %d%s%s", as+1, d.differently(as, i), cmp.Or(differs, "\n"))
			return
		}
	}
	d.titled[title] = append(d.titled[title], i)
	fmt.Fprintf(d, "\n%s", d.texts[i])
}

// body describes what a step does and how it is undone.
func (d *describer) body(s *step.Step, past bool) {
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
		narrows := d.narrows && s.Local() && !verify.OnAll(s.Gate)
		fmt.Fprintf(d, "   Gate: %s; %s%s\n", s.Gate.Title, demand(s.Gate, narrows), signal.AtGate(signals))
	}
	d.undo(s, past)
}

// demand says what a gate demands, and for how long. Where a plan narrows gates like this one, it says the same of
// those that ask all nodes, so that steps which do the same have the same text.
func demand(g *step.Gate, narrows bool) string {
	watch, lost := "in two fresh reports from every node", "no probe may be lost"
	switch {
	case g.Bake > 0:
		watch = "for " + g.Bake.About()
	case narrows:
		watch = fmt.Sprintf("in fresh reports from these nodes, their peers and %d others (from every node whenever "+
			"the changed nodes have doubled, and at the end)", loss.Sample)
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

// undo describes how a step is undone; past says that it is after the point of no return.
func (d *describer) undo(s *step.Step, past bool) {
	for _, line := range d.titles(s.Undo, s.ID+"/undo-") {
		fmt.Fprintf(d, "   Undo: %s\n", line)
	}
	if s.Stop {
		d.WriteString("   On failure: Theseus leaves the cluster as it is, and stops for a decision\n")
		return
	}
	if s.Alone {
		d.WriteString("   On failure: Theseus undoes this step only, and stops for a decision\n")
	}
	if past || len(s.Undo) > 0 {
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
	if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op() == step.OpApply }) {
		d.WriteString("   Undo: restore every object, or delete it if it did not exist before, in reverse order\n")
		return
	}
	if i := slices.IndexFunc(s.Actions, func(a step.Action) bool { return a.Op() == step.OpEvict }); i >= 0 {
		back := "the undo switches their node back"
		if s.Actions[i].Do.(step.Evict).Pods.LeaveDaemons {
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
