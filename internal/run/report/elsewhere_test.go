package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestElsewhere: what another machine lost between the answers of the two gates is a proven loss in the report; before
// and after, the probe pods are not there. Results that do not cover the guard prove nothing.
func TestElsewhere(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 9000}
	made := func() Input {
		in := guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0)
		in.Plan.Change.MaxLost = 2
		return in
	}
	gates := Build(made()).Gates
	if len(gates) != 2 {
		t.Fatalf("%+v", gates)
	}
	from, to := gates[0].Answer, gates[1].Answer
	gap := func(at time.Time, millis float64, probes int64) v1alpha1.Gap {
		return v1alpha1.Gap{From: at, Millis: millis, Probes: probes}
	}
	whole := v1alpha1.PathResult{ID: "tcp-new://192.0.2.7:30001", Sent: 900, Answered: 890,
		Since: from.Add(-time.Minute), Last: to.Add(time.Minute),
		Gaps: []v1alpha1.Gap{gap(from.Add(-30*time.Second), 1000, 10)},
		Open: &v1alpha1.Gap{From: to.Add(time.Second), Millis: 5000, Probes: 50}}
	during := from.Add(time.Millisecond)
	for name, test := range map[string]struct {
		change func(*v1alpha1.PathResult)
		denied bool
		level  Level
		says   string
	}{
		"nothing lost": {func(*v1alpha1.PathResult) {}, false, Good,
			"1 path (tcp-new://192.0.2.7:30001), 900 probes, 0 lost"},
		"too few to count": {func(r *v1alpha1.PathResult) { r.Gaps = append(r.Gaps, gap(during, 100, 2)) }, false, Good,
			"2 lost, longest gap 100 ms"},
		"lost": {func(r *v1alpha1.PathResult) { r.Gaps = append(r.Gaps, gap(during, 100, 3)) }, false, Bad, "3 lost"},
		"one long gap": {func(r *v1alpha1.PathResult) { r.Gaps = append(r.Gaps, gap(during, 1100, 2)) }, false, Bad,
			"longest gap 1.1 s"},
		"a gap that reaches in": {func(r *v1alpha1.PathResult) {
			r.Gaps = append(r.Gaps, gap(from.Add(-time.Second), 1500, 15))
		}, false, Bad, "15 lost"},
		"open, from within": {func(r *v1alpha1.PathResult) { r.Open.From = during }, false, Bad, "50 lost"},
		"denied and answered": {func(r *v1alpha1.PathResult) { r.Gaps = append(r.Gaps, gap(during, 100, 1)) }, true,
			Bad, "1 answered although denied"},
		"began late": {func(r *v1alpha1.PathResult) { r.Since = during }, false, Unknown, "was measured from"},
		"ended early": {func(r *v1alpha1.PathResult) { r.Last = to.Add(-time.Millisecond) }, false, Unknown,
			"was measured from"},
		"another day": {func(r *v1alpha1.PathResult) {
			r.Since, r.Last = r.Since.Add(-48*time.Hour), r.Last.Add(-48*time.Hour)
		}, false, Unknown, "was measured from"},
		"a clock that is fast": {func(r *v1alpha1.PathResult) { r.Last = to.Add(time.Hour) }, false, Unknown,
			"the clocks differ"},
		"never asked": {func(r *v1alpha1.PathResult) { r.Sent, r.Answered = 0, 0 }, true, Unknown,
			"was never asked"},
		"never answered": {func(r *v1alpha1.PathResult) { r.Answered = 0 }, false, Unknown, "never answered"},
		"gaps dropped": {func(r *v1alpha1.PathResult) { r.Dropped = 1 }, false, Unknown,
			"more gaps than the file holds"},
	} {
		one := whole
		one.Gaps, one.Open = slices.Clone(whole.Gaps), &v1alpha1.Gap{}
		*one.Open = *whole.Open
		test.change(&one)
		in := made()
		in.At = to.Add(2 * time.Minute)
		in.Elsewhere = []Elsewhere{{Name: "gate", Paths: []v1alpha1.Path{{ID: one.ID, Denied: test.denied}},
			Results: []v1alpha1.PathResult{one}}}
		m := Build(in)
		said := strings.Join(append(m.Verdict.Notes, m.Verdict.Missing...), "\n")
		if m.Verdict.Level != test.level || !strings.Contains(said, test.says) ||
			!strings.Contains(said, "From gate, ") {
			t.Errorf("%s: %s, %q\n%s", name, m.Verdict.Level, m.Verdict.Title, said)
		}
		if lost := strings.HasPrefix(m.Verdict.Title, "A loss is proven: ") &&
			strings.Contains(m.Verdict.Title, "from gate lost"); lost != (test.level == Bad) {
			t.Errorf("%s: %q", name, m.Verdict.Title)
		}
	}
	in := made()
	in.Elsewhere = []Elsewhere{{Name: "gate"}}
	if v := Build(in).Verdict; v.Level != Unknown {
		t.Errorf("without results: %+v", v)
	}
}

// TestElsewhereWhen: only what was lost between the baseline and the removal of the probe pods counts, also where a
// gate never answered.
func TestElsewhereWhen(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 9000}
	whole := guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0)
	at := func(event engine.Event, step string) int {
		return slices.IndexFunc(whole.Records, func(r engine.Record) bool { return r.Event == event && r.Step == step })
	}
	baseline, asked := at(engine.GateAnswer, guard.StepProbes), at(engine.GateAsked, guard.StepWatch)
	last := whole.Records[len(whole.Records)-1].At
	back := func(records []engine.Record) []engine.Record {
		return append(slices.Clone(records), engine.Record{Event: engine.RollingBack, At: last, Result: "asked"},
			engine.Record{Event: engine.StepUndone, At: last.Add(time.Minute), Step: guard.StepProbes},
			engine.Record{Event: engine.Finished, At: last.Add(2 * time.Minute), Result: engine.ResultRolledBack})
	}
	for name, test := range map[string]struct {
		records []engine.Record
		lost    time.Time
		counts  bool
		missing string
	}{
		"without a baseline":     {whole.Records[:baseline], last, false, "the guard has no baseline yet"},
		"a baseline that failed": {back(whole.Records[:baseline]), last.Add(time.Second), false, "no baseline yet"},
		"while it is undone":     {back(whole.Records[:asked]), last.Add(time.Second), false, ""},
		"before it is undone":    {back(whole.Records[:asked]), last.Add(-time.Second), true, ""},
		"before the baseline":    {whole.Records, whole.Records[baseline].At.Add(-time.Second), false, ""},
		"after the result":       {whole.Records, last.Add(-time.Second), false, ""},
		"while it is removed": {append(slices.Clone(whole.Records[:asked]), engine.Record{Event: engine.StepBegan,
			Step: "finish/probes", At: last}, engine.Record{Event: engine.Finished, At: last.Add(time.Minute),
			Result: engine.ResultDone}), last.Add(time.Second), false, ""},
	} {
		in := whole
		steps := *in.Plan
		steps.Steps = append(slices.Clone(in.Plan.Steps), step.Step{ID: "finish/probes"})
		in.Plan, in.Records, in.At = &steps, test.records, last.Add(time.Hour)
		in.Elsewhere = []Elsewhere{{Name: "gate", Results: []v1alpha1.PathResult{{ID: "tcp-new://192.0.2.7:30001",
			Sent: 900, Answered: 890, Since: epoch.Add(-time.Hour), Last: last.Add(30 * time.Minute),
			Gaps: []v1alpha1.Gap{{From: test.lost, Millis: 100, Probes: 10}}}}}}
		m := Build(in)
		if f := m.Elsewhere[0]; (f.Lost == 10) != test.counts || (f.Lost == 0) == test.counts ||
			(f.Lacks == "") != (test.missing == "") || !strings.Contains(f.Lacks, test.missing) {
			t.Errorf("%s: %+v", name, f)
		}
		if (m.Verdict.Level == Bad) != test.counts {
			t.Errorf("%s: %s, %q", name, m.Verdict.Level, m.Verdict.Title)
		}
	}
}

// TestElsewhereCompared: where losses are compared with those of the baseline, those of another machine are not, so
// they prove nothing. The limits are those of every guard else, whatever its gates say.
func TestElsewhereCompared(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 9000, Lost: 5, LongestGapMillis: 30,
		Against: &loss.Against{Harmless: true, Why: "no more"}}
	for name, test := range map[string]struct {
		lossy  bool
		millis float64
		denied bool
		level  Level
	}{
		"lossy":           {true, 100, false, Unknown},
		"lossy, long":     {true, 9000, false, Unknown},
		"lossy, a leak":   {true, 100, true, Bad},
		"limits":          {false, 100, false, Fair},
		"limits, too far": {false, 1100, false, Bad},
	} {
		in := guarded(t, kind.Guard{LossyBefore: test.lossy}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 5)
		in.Plan.Change.MaxLost = 20
		for i := range in.Plan.Steps {
			if gate := in.Plan.Steps[i].Gate; gate != nil {
				gate.MaxGap = 0
			}
		}
		from, to := Build(in).Gates[0].Answer, Build(in).Gates[1].Answer
		id := "tcp-new://192.0.2.7:30001"
		in.Elsewhere = []Elsewhere{{Name: "gate", Paths: []v1alpha1.Path{{ID: id, Denied: test.denied}},
			Results: []v1alpha1.PathResult{{ID: id, Sent: 900, Answered: 890, Since: from.Add(-time.Minute),
				Last: to.Add(time.Minute), Gaps: []v1alpha1.Gap{{From: from.Add(time.Millisecond), Millis: test.millis,
					Probes: 10}}}}}}
		v := Build(in).Verdict
		if missing := strings.Join(v.Missing, ""); v.Level != test.level ||
			strings.Contains(missing, "10 probes from gate lost: what other machines lose is not compared") !=
				(test.level == Unknown) {
			t.Errorf("%s: %s, %q, %q", name, v.Level, v.Title, v.Missing)
		}
	}
}

// TestComparedFigures: the figures of a guard that compares losses name no limit, and only the verdict makes them bad.
func TestComparedFigures(t *testing.T) {
	for _, proven := range []bool{false, true} {
		after := engine.Verdict{Pass: true, Sent: 9000, Lost: 5, LongestGapMillis: 30,
			Against: &loss.Against{Proven: proven, Harmless: !proven, Why: "a comparison"}}
		in := guarded(t, kind.Guard{LossyBefore: true}, after, result.Ran{}, result.Watched{Quiet: true}, &after, 5)
		for i := range in.Plan.Steps {
			if gate := in.Plan.Steps[i].Gate; gate != nil {
				gate.MaxGap = 0
			}
		}
		m, tone := Build(in), "warn"
		if proven {
			tone = "bad"
		}
		if lost, gap := probesFigure(m), gapFigure(m); lost.Tone != tone || gap.Tone != tone ||
			gap.Note != "compared with the baseline" {
			t.Errorf("proven %t: %+v, %+v", proven, lost, gap)
		}
	}
}

// TestAcceptedTones: where the baseline lost probes and that was accepted, a loss has the colour of failure only if
// more loss is proven, and it is more than the baseline had: a larger share of the probes, or a longer gap.
func TestAcceptedTones(t *testing.T) {
	lost := func(sent, lost int64, longest float64) engine.Verdict {
		return engine.Verdict{Pass: true, Sent: sent, Lost: lost, LongestGapMillis: longest}
	}
	parts := func(v engine.Verdict, sent, lost int64) engine.Verdict {
		v.Lossy = &loss.Lossy{}
		for _, name := range []string{"class outside", "node a"} {
			v.Lossy.Parts = append(v.Lossy.Parts, loss.LossyPart{Name: name, Clean: sent - 100,
				Slots: [][2]int64{{100, lost}}})
		}
		return v
	}
	for name, test := range map[string]struct {
		accepts, proven bool
		before          engine.Verdict
		cell, mark      string
	}{
		"without the flag":      {false, true, lost(9000, 0, 0), "bad", "bad"},
		"no more":               {true, false, lost(9000, 1, 10), "warn", "warn"},
		"more, and longer":      {true, true, lost(900, 9, 10), "bad", "bad"},
		"more, as long":         {true, true, lost(9000, 1, 30), "bad", "warn"},
		"more, but elsewhere":   {true, true, lost(900, 9, 30), "warn", "warn"},
		"a baseline that lacks": {true, true, lost(0, 0, 0), "bad", "bad"},
		"more than its own":     {true, true, parts(lost(900, 9, 30), 9000, 4), "bad", "warn"},
		"no more than its own":  {true, true, parts(lost(9000, 1, 30), 9000, 5), "warn", "warn"},
	} {
		after := engine.Verdict{Pass: true, Sent: 9000, Lost: 5, LongestGapMillis: 30}
		if test.accepts {
			after.Against = &loss.Against{Proven: test.proven, Harmless: !test.proven, Why: "a comparison"}
		}
		in := guarded(t, kind.Guard{LossyBefore: test.accepts}, test.before, result.Ran{},
			result.Watched{Quiet: true}, &after, 5)
		in.Looks = []Span{{epoch, epoch.Add(time.Minute)}} // then the report has the list of moments
		for i := range in.Plan.Steps {
			if gate := in.Plan.Steps[i].Gate; gate != nil {
				gate.MaxGap = 0
			}
		}
		m := Build(in)
		cell, mark := newMatrix(m).Rows[0].Squares[0].Tone, newTimeline(m).Marks[0].Tone
		if cell != test.cell || mark != test.mark {
			t.Errorf("%s: a cell is %s, a mark %s", name, cell, mark)
		}
		page, err := HTML(m)
		if err != nil {
			t.Fatal(err)
		}
		section := func(id string) string {
			_, text, _ := strings.Cut(string(page), `<section id="`+id+`">`)
			text, _, _ = strings.Cut(text, "</section>")
			return text
		}
		paths, row := section("paths"), `<td class="n `+test.cell+`" data-v="5">5</td>`
		pill := `<span class="pill warn">gap</span>`
		if test.proven {
			pill = `<span class="pill bad">gap</span>`
		}
		if !strings.Contains(paths, `<td class="`+test.cell+`" title="`) ||
			!strings.Contains(paths, row) || !strings.Contains(section("nodes"), row) ||
			!strings.Contains(section("moments"), pill) {
			t.Errorf("%s: the page has other colours", name)
		}
	}
}
