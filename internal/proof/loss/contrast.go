package loss

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

const (
	// settling is how many slots are kept open: losses that turn out to be those of stalled responders are taken out
	// of them again.
	settling = 8
	// mostNodes is up to how many nodes each node is compared on its own, and mostKept how many slots with losses of
	// all parts are kept of a baseline. Slots are joined beyond that, which changes their likelihood little.
	mostNodes, mostKept = 500, 4000
	// A run of lost probes on one path of more than shortSilence (ms) is never good, unless the baseline had one as
	// long. It is a loss if it is more than longTimes the longest of the baseline and longSilence, or fewSilence if the
	// baseline lost probes in fewer than enoughBad slots: it may not have seen a burst then.
	shortSilence, longTimes, longSilence, fewSilence, enoughBad = 750.0, 3, 1000.0, 3000.0, 5
)

// Contrast compares what is lost since a baseline that may lose probes with what the baseline lost: by all paths, by
// those of each class, and by those from or to each node. Its parts are named "", "class NAME" and "node NAME".
type Contrast struct {
	base []v1alpha1.ProbeReport // later probes count
	last map[string]Counts      // of each path since then
	at   time.Time              // the last look
	open []map[string]nodeSum   // slots that are not counted yet, the newest last

	before map[string]*slots
	since  map[string]*rate // nil during the baseline
	// quiet and silence are the longest runs of lost probes on a path, in the baseline and since then, in ms.
	quiet, silence float64
	// took and lasted are how long the baseline and the time since then are.
	took, lasted time.Duration
	lossy        bool    // a slot lost probes since the evidence was weighed
	most         float64 // evidence that more is lost
	worst        string  // the part with the most evidence
}

// NewContrast begins a baseline.
func NewContrast() *Contrast {
	return &Contrast{before: map[string]*slots{}, last: map[string]Counts{}}
}

// Lossy is what a baseline has counted, for the journal.
type Lossy struct {
	Parts []LossyPart `json:"parts"`
	// QuietMillis is the longest run of lost probes on a path, and Millis how long the baseline took.
	QuietMillis float64 `json:"quietMillis"`
	Millis      int64   `json:"millis"`
}

// LossyPart is what paths of one part of the network lost in a baseline.
type LossyPart struct {
	Name string `json:"name,omitempty"`
	// Clean are probes of seconds in which none was lost, Slots the probes sent and lost in each other second.
	Clean int64      `json:"clean"`
	Slots [][2]int64 `json:"slots,omitempty"`
}

// Against is how a network compares with its baseline.
type Against struct {
	// Proven is true if more is lost than in the baseline. Harmless is true if it is proven that there is no such harm
	// as harmText names.
	Proven   bool `json:"proven,omitempty"`
	Harmless bool `json:"harmless,omitempty"`
	// Why has the figures. Needs says what is missing for one of the two.
	Why   string `json:"why"`
	Needs string `json:"needs,omitempty"`
}

// Look takes the reports of a moment, unless the last look was less than slotLength ago. left are the nodes that have
// left the cluster (Account.Leave).
func (c *Contrast) Look(paths []v1alpha1.Path, now []v1alpha1.ProbeReport, left map[string]time.Time, at time.Time) {
	// a time before the last look is of another clock, such as that of the nodes (Resume)
	if since := at.Sub(c.at); c.base == nil || since < 0 || since >= slotLength {
		c.Last(paths, now, left, at)
	}
}

// Last takes the reports of a moment, however soon after the last look: no answer, and no end of the baseline, may
// leave out what is known.
func (c *Contrast) Last(paths []v1alpha1.Path, now []v1alpha1.ProbeReport, left map[string]time.Time, at time.Time) {
	if c.base == nil {
		c.base, c.at = append([]v1alpha1.ProbeReport{}, now...), at
		return
	}
	spent := max(0, at.Sub(c.at))
	if c.at = at; c.since == nil {
		c.took += spent
	} else {
		c.lasted += spent
	}
	nodes := len(now) <= mostNodes
	slot := map[string]nodeSum{}
	add := func(name string, sent, lost int64) {
		n := slot[name]
		slot[name] = nodeSum{n.sent + sent, n.lost + lost}
	}
	longest := 0.0
	account := NewAccount(paths, c.base, now, 0)
	account.Leave(left)
	for _, p := range account {
		if p.Denied {
			continue
		}
		longest = max(longest, p.silence())
		before := c.last[p.ID]
		if c.last[p.ID] = p.Counts; p.Sent < before.Sent {
			before = Counts{} // its prober restarted
		}
		// a probe that is no loss since its responder was stalled or gone says nothing about the network
		sent, lost := p.compared()-before.compared(), p.Lost-before.Lost
		if sent == 0 && lost == 0 {
			continue
		}
		add("", sent, lost)
		add("class "+p.Class, sent, lost)
		if from, to := p.Source.Node, p.Target.Node; nodes {
			add("node "+from, sent, lost)
			if to != "" && to != from {
				add("node "+to, sent, lost)
			}
		}
	}
	if c.since == nil {
		c.quiet = longest // the account is that of the whole time, and what is excused meanwhile is no silence
	} else {
		c.silence = longest
	}
	c.keep(slot)
}

// keep adds a slot to the open ones. Losses that are excused now are taken from the newest slots that have some, and so
// are their probes if they are more than were sent since.
func (c *Contrast) keep(slot map[string]nodeSum) {
	for name, n := range slot {
		for i := len(c.open) - 1; i >= 0 && (n.lost < 0 || n.sent < 0); i-- {
			former := c.open[i][name]
			lost := min(former.lost, max(0, -n.lost))
			former.lost -= lost
			sent := min(former.sent-former.lost, max(0, -n.sent))
			former.sent -= sent
			n = nodeSum{n.sent + sent, n.lost + lost}
			c.open[i][name] = former
		}
		n.lost = max(n.lost, 0)
		slot[name] = nodeSum{max(n.sent, n.lost), n.lost}
	}
	c.open = append(c.open, slot)
	for len(c.open) > settling {
		c.settle()
	}
}

// settle counts the oldest open slot.
func (c *Contrast) settle() {
	for name, n := range c.open[0] {
		c.add(name, n.sent, n.lost)
	}
	c.open = c.open[1:]
	c.look()
}

// silence is the longest run of lost probes on a path, in ms. Gaps that may yet be excused do not count.
func (p *PathAccount) silence() (longest float64) {
	for _, gap := range p.Gaps {
		if p.Second != "" && len(p.Results) > 0 && gap.pending(p.Results[len(p.Results)-1].Last) {
			continue
		}
		longest = max(longest, float64((gap.Probes-gap.Excused-1)*int64(p.IntervalMillis)))
	}
	return longest
}

// Begin ends the baseline at a moment. What is lost after these reports is compared with it.
func (c *Contrast) Begin(reports []v1alpha1.ProbeReport, at time.Time) *Lossy {
	for len(c.open) > 0 {
		c.settle()
	}
	kept := &Lossy{QuietMillis: c.quiet, Millis: c.took.Milliseconds()}
	each := max(2, mostKept/max(1, len(c.before)))
	for _, name := range slices.Sorted(maps.Keys(c.before)) {
		kept.Parts = append(kept.Parts, LossyPart{name, c.before[name].clean, joined(c.before[name].seen, each)})
	}
	c.Resume(kept, reports)
	c.at = at
	return kept
}

// joined joins neighbouring slots until at most so many are left.
func joined(all [][2]int64, most int) [][2]int64 {
	for len(all) > most {
		var half [][2]int64
		for i := 0; i < len(all); i += 2 {
			one := all[i]
			if i+1 < len(all) {
				one[0], one[1] = one[0]+all[i+1][0], one[1]+all[i+1][1]
			}
			half = append(half, one)
		}
		all = half
	}
	return all
}

// Resume compares with a baseline that was taken before, maybe by another process. What was lost between these reports
// and the next look counts as one slot, which begins at the time of these reports, on the clocks of the nodes.
func (c *Contrast) Resume(baseline *Lossy, reports []v1alpha1.ProbeReport) {
	*c = Contrast{before: map[string]*slots{}, last: map[string]Counts{}, quiet: baseline.QuietMillis,
		took: time.Duration(baseline.Millis) * time.Millisecond, base: reports}
	for _, report := range reports {
		c.at = later(c.at, report.Status.At)
	}
	if c.base == nil {
		c.base = []v1alpha1.ProbeReport{}
	}
	for _, part := range baseline.Parts {
		s := &slots{}
		s.add(part.Clean, 0)
		for _, slot := range part.Slots {
			s.add(slot[0], slot[1])
		}
		c.before[part.Name] = s
	}
	c.begin()
}

func (c *Contrast) add(name string, sent, lost int64) {
	if c.since == nil {
		if c.before[name] == nil {
			c.before[name] = &slots{}
		}
		c.before[name].add(sent, lost)
		if sent > 0 && lost > 0 {
			c.before[name].seen = append(c.before[name].seen, [2]int64{sent, lost})
		}
		return
	}
	if c.since[name] == nil {
		before := c.before[name]
		if before == nil {
			before = &slots{}
		}
		c.since[name] = newRate(name, before)
	}
	c.lossy = c.lossy || lost > 0
	c.since[name].add(sent, lost)
}

func (c *Contrast) begin() { c.since = map[string]*rate{} }

// look weighs the evidence that more is lost: half of the stake is bet on the network as a whole, and half on its parts
// alike.
func (c *Contrast) look() {
	if !c.lossy {
		return // there is less evidence than before
	}
	c.lossy = false
	sum, most, worst := 0.0, 0.0, ""
	for name, r := range c.since {
		share := 0.5
		if name != "" {
			share /= float64(len(c.since) - 1)
		}
		value := r.worse()
		sum += share * value
		if value > most || value == most && name < worst {
			most, worst = value, name
		}
	}
	if sum > c.most {
		c.most, c.worst = sum, worst
	}
}

// long is the silence that proves a loss, in ms, and short the one up to which a result may be good.
func (c *Contrast) long() float64 {
	least := fewSilence
	if before := c.before[""]; before != nil && before.bad >= enoughBad {
		least = longSilence
	}
	return least + longTimes*c.quiet
}

func (c *Contrast) short() float64 { return max(shortSilence, c.quiet) }

// harmText is what a good comparison excludes.
const harmText = "twice the rate, and at least 0.1 percentage points more in all, or 1 point more in one class or " +
	"on one node"

// Answer compares. End is true if no look follows: then all that was seen counts.
func (c *Contrast) Answer(end bool) Against {
	if c.since == nil {
		return Against{Why: "there is no baseline", Needs: "a baseline"}
	}
	for end && len(c.open) > 0 {
		c.settle()
	}
	before, since := c.sum("")
	a := Against{Proven: c.most >= 1/Alpha || c.silence > c.long(),
		Why: fmt.Sprintf("%s before the change, longest silence %s; %s since, longest silence %s", share(before),
			ms(c.quiet), share(since), ms(c.silence))}
	switch {
	case c.silence > c.long():
		a.Why += fmt.Sprintf("; a silence of more than %s is a loss", ms(c.long()))
		return a
	case a.Proven:
		a.Why += fmt.Sprintf("; more is lost (evidence %s to 1, most of it on %s)", stake(c.most), partName(c.worst))
		return a
	}
	switch undecided := c.undecided(); {
	case c.silence > c.short():
		a.Needs = fmt.Sprintf("a silence of more than %s may be the change's, and one of more than %s would prove it",
			ms(c.short()), ms(c.long()))
	case c.most >= doubt:
		a.Needs = fmt.Sprintf("there is some evidence that more is lost (%s to 1 of %.0f to 1), most of it on %s",
			stake(c.most), 1/Alpha, partName(c.worst))
	case len(undecided) > 0:
		a.Needs = c.needs(undecided)
	case since.sent == 0:
		a.Needs = "no probe was compared"
	default:
		a.Harmless = true
		if since.lost > 0 {
			a.Why += "; more would have been seen: " + harmText
		}
	}
	return a
}

// sum is what a part lost in the baseline and since.
func (c *Contrast) sum(name string) (before, since nodeSum) {
	if s := c.before[name]; s != nil {
		before = nodeSum{s.sent, s.lost}
	}
	if r := c.since[name]; r != nil {
		since = nodeSum{r.all.sent, r.all.lost}
	}
	return before, since
}

// undecided are the parts that may lose more, sorted.
func (c *Contrast) undecided() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.since)) {
		if !c.since[name].harmless() {
			names = append(names, name)
		}
	}
	return names
}

// needs says how much longer it would take until the harm can be excluded, if it goes on as until now.
func (c *Contrast) needs(undecided []string) string {
	times := []float64{1.5, 2, 3, 4, 6, 8, 12, 20, 30, 60, 120}
	// Of these, so many are tried with a longer watching alone, and then all with a longer baseline, and a watching
	// that is as many times as long, or long times.
	const soon, long = 8, 8
	watch, baseline := 1.0, 1.0
	for _, name := range undecided {
		before, since := c.before[name], &c.since[name].all
		if before == nil {
			before = &slots{}
		}
		var both slots // as if it lost the same all the time
		both.join(before)
		both.join(since)
		sure := func(b, s float64) bool {
			return harmless(both.likely(b*float64(before.sent)/float64(both.sent)),
				both.likely(s*float64(since.sent)/float64(both.sent)), harmOf(name)) >= math.Log(1/harmAlpha)
		}
		if i := slices.IndexFunc(times[:soon], func(x float64) bool { return sure(1, x) }); i >= 0 {
			watch = max(watch, times[i])
			continue
		}
		i := slices.IndexFunc(times, func(x float64) bool { return sure(x, max(x, long)) })
		if i < 0 {
			return fmt.Sprintf("more loss cannot be told from bursts on %s",
				partName(name)+more(len(undecided)-1, "part"))
		}
		baseline = max(baseline, times[i])
	}
	text := fmt.Sprintf("more loss could not be excluded on %s: to see %s, it needs about ",
		partName(undecided[0])+more(len(undecided)-1, "part"), harmText)
	if baseline > 1 {
		return text + fmt.Sprintf("--baseline %s", round(time.Duration(baseline*float64(c.took))))
	}
	return text + fmt.Sprintf("%s more of watching", round(time.Duration((watch-1)*float64(c.lasted))))
}

func round(d time.Duration) time.Duration { return max(d.Round(10*time.Second), 10*time.Second) }

func partName(name string) string { return cmp.Or(name, "the whole network") }

// share says what part of the probes was lost.
func share(n nodeSum) string {
	return fmt.Sprintf("%s of %s probes lost (%s)", count(n.lost), count(n.sent), percent(n))
}

func percent(n nodeSum) string {
	switch share := 100 * float64(n.lost) / float64(max(n.sent, 1)); {
	case share >= 10:
		return fmt.Sprintf("%.0f %%", share)
	case share > 0 && share < 0.001:
		return "less than 0.001 %"
	default:
		return fmt.Sprintf("%.2g %%", share)
	}
}

// mostNamed bounds the classes, and the nodes, that a baseline names.
const mostNamed = 5

// String says what the baseline lost, in all and by class and node.
func (l *Lossy) String() string {
	var all nodeSum
	named := map[string][]string{}
	for _, kind := range []string{"class", "node"} {
		var parts []LossyPart
		for _, part := range l.Parts {
			if part.Name == "" {
				all = part.sum()
			}
			if strings.HasPrefix(part.Name, kind+" ") && part.sum().lost > 0 {
				parts = append(parts, part)
			}
		}
		slices.SortStableFunc(parts, func(a, b LossyPart) int {
			x, y := a.sum(), b.sum()
			return cmp.Compare(float64(y.lost)/float64(y.sent), float64(x.lost)/float64(x.sent))
		})
		for _, part := range parts[:min(len(parts), mostNamed)] {
			named[kind] = append(named[kind], strings.TrimPrefix(part.Name, kind+" ")+" "+percent(part.sum()))
		}
		if n := len(parts) - mostNamed; n > 0 {
			named[kind] = append(named[kind], fmt.Sprintf("%d more", n))
		}
	}
	text := share(all)
	if len(named["class"]) > 0 {
		text += "; by class: " + strings.Join(named["class"], ", ")
	}
	if len(named["node"]) > 0 {
		text += "; from or to node: " + strings.Join(named["node"], ", ")
	}
	return text
}

// Lost reports whether the baseline lost probes.
func (l *Lossy) Lost() bool {
	return slices.ContainsFunc(l.Parts, func(p LossyPart) bool { return len(p.Slots) > 0 })
}

// Sum is what each part sent and lost, by the names of the parts.
func (l *Lossy) Sum() map[string]Counts {
	sums := map[string]Counts{}
	for _, part := range l.Parts {
		sum := part.sum()
		sums[part.Name] = Counts{Sent: sum.sent, Lost: sum.lost}
	}
	return sums
}

// sum is what the part sent and lost.
func (p LossyPart) sum() nodeSum {
	n := nodeSum{sent: p.Clean}
	for _, slot := range p.Slots {
		n.sent, n.lost = n.sent+slot[0], n.lost+slot[1]
	}
	return n
}
