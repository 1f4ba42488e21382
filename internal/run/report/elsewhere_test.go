package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
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
