package report

import (
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Elsewhere is what another machine measured with `theseus probe run`.
type Elsewhere struct {
	// Name is what the machine calls itself.
	Name  string
	Paths []v1alpha1.Path
	// Results are on that machine's clock, which is taken for the journal's.
	Results []v1alpha1.PathResult
}

// FromElsewhere sums up what another machine measured during a guard. Gaps count from the answer of the baseline to
// that of the result, or until Theseus began to remove the probe pods: before, they were not there yet. Whether the
// targets belong to the cluster of the guard cannot be known, as an address in front of it may be in no object. So they
// are named.
type FromElsewhere struct {
	Name  string `json:"name"`
	Paths int    `json:"paths"`
	// Targets are the IDs of the paths.
	Targets []string `json:"targets,omitempty"`
	// Sent counts all probes, also those before and after.
	Sent   int64 `json:"sent"`
	Lost   int64 `json:"lost"`
	Leaked int64 `json:"leaked"`
	// LongestMillis is the longest gap.
	LongestMillis float64 `json:"longestGapMillis"`
	Measured      Span    `json:"measured"`
	// Lacks says why these results do not show the whole guard; empty if they do.
	Lacks string `json:"lacks,omitempty"`
}

// elsewhere sums up the measurements of other machines.
func elsewhere(in Input, end time.Time) (all []FromElsewhere) {
	if in.Plan == nil || !in.Plan.Foreign() {
		return nil
	}
	during := lasted(in)
	if during.To.IsZero() {
		during.To = end
	}
	for i := range in.Elsewhere {
		all = append(all, during.from(&in.Elsewhere[i], in.At))
	}
	return all
}

// lasted is from the answer of the baseline to that of the result, or to the first record of an undo or of the steps
// after the result, which remove the probe pods. An end that the journal does not have is zero.
func lasted(in Input) (during Span) {
	baseline, watch, removes := "", "", map[string]bool{}
	for i := range in.Plan.Steps {
		switch one := &in.Plan.Steps[i]; {
		case one.Gate != nil && one.Gate.Baseline:
			baseline = one.ID
		case one.Gate != nil && one.Gate.Result:
			watch = one.ID
		case watch != "":
			removes[one.ID] = true
		}
	}
	answered := false
	for i := range in.Records {
		switch r := &in.Records[i]; {
		case r.Event == engine.GateAnswer && r.Step == baseline:
			during, answered = Span{From: r.At}, false
		case during.From.IsZero():
		case r.Event == engine.GateAnswer && r.Step == watch:
			during.To, answered = r.At, true
		case !answered && during.To.IsZero() && (r.Undo || r.Event == engine.RollingBack ||
			r.Event == engine.TakingBack || removes[r.Step]):
			during.To = r.At
		}
	}
	return during
}

// from sums up one measurement, which was made before at.
func (during Span) from(e *Elsewhere, at time.Time) FromElsewhere {
	f := FromElsewhere{Name: e.Name, Paths: len(e.Results)}
	denied := map[string]bool{}
	for _, path := range e.Paths {
		denied[path.ID] = path.Denied
	}
	lacks := func(format string, args ...any) {
		if f.Lacks == "" {
			f.Lacks = fmt.Sprintf(format, args...)
		}
	}
	if during.From.IsZero() {
		lacks("the guard has no baseline yet")
	}
	for _, result := range e.Results {
		f.Sent += result.Sent
		f.Targets = append(f.Targets, result.ID)
		if f.Measured.From.IsZero() || result.Since.Before(f.Measured.From) {
			f.Measured.From = result.Since
		}
		if result.Last.After(f.Measured.To) {
			f.Measured.To = result.Last
		}
		gaps := result.Gaps
		if result.Open != nil {
			gaps = append(gaps[:len(gaps):len(gaps)], *result.Open)
		}
		for _, gap := range gaps {
			ends := gap.From.Add(time.Duration(gap.Millis * float64(time.Millisecond)))
			switch {
			case during.From.IsZero() || !gap.From.Before(during.To) || !ends.After(during.From):
				continue
			case denied[result.ID]:
				f.Leaked += gap.Probes
			default:
				f.Lost += gap.Probes
				f.LongestMillis = max(f.LongestMillis, gap.Millis)
			}
		}
		switch {
		case result.Sent == 0:
			lacks("%s was never asked", result.ID)
		case result.Answered == 0 && !denied[result.ID]:
			lacks("%s never answered", result.ID)
		case !at.IsZero() && result.Last.After(at.Add(time.Second)):
			lacks("%s was measured until %s, after this report was made at %s: the clocks differ", result.ID,
				clock(result.Last), clock(at))
		case result.Since.After(during.From) || result.Last.Before(during.To):
			lacks("%s was measured from %s to %s, and the guard lasted from %s to %s", result.ID, clock(result.Since),
				clock(result.Last), clock(during.From), clock(during.To))
		case result.Dropped > 0:
			lacks("%s had more gaps than the file holds", result.ID)
		}
	}
	if len(e.Results) == 0 {
		lacks("the file has no results")
	}
	return f
}

// losesElsewhere reports whether another machine saw a loss beyond the limits. Losses are none where the baseline may
// lose probes too: what other machines lost in it is not compared.
func (m *Model) losesElsewhere(maxLost int64) bool {
	lost, longest := int64(0), 0.0
	for _, f := range m.Elsewhere {
		if f.Leaked > 0 {
			return true
		}
		lost, longest = lost+f.Lost, max(longest, f.LongestMillis)
	}
	return !m.compared && (lost > maxLost || longest > millis(joint.DefaultMaxGap))
}

// String says what a machine measured.
func (f FromElsewhere) String() string {
	text := fmt.Sprintf("From %s, %s to %s UTC: %s (%s), %s, %s lost", f.Name, clock(f.Measured.From),
		clock(f.Measured.To), countOf(int64(f.Paths), "path"), some(f.Targets), countOf(f.Sent, "probe"),
		number(f.Lost))
	if f.LongestMillis > 0 {
		text += ", longest gap " + duration(f.LongestMillis)
	}
	if f.Leaked > 0 {
		text += ", " + number(f.Leaked) + " answered although denied"
	}
	return text + "."
}
