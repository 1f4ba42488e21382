package web

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// maxMoments bounds the timeline.
const maxMoments = 200

// Timeline is what happened: in the run, in the cluster, and to the probes.
type Timeline struct {
	// Moments are the newest, newest first; More is how many older ones there are.
	Moments []Moment
	More    int
	// Note says how far it is complete.
	Note string
}

// Moment is a line of the timeline.
type Moment struct {
	// Key is what a moment keeps while its text changes.
	Key string    `json:"k"`
	At  time.Time `json:"at"`
	// Kind is "run", "step", "failed", "mark", "event" or "loss".
	Kind string `json:"kind"`
	Text string `json:"text"`
	// During says during which step a loss began.
	During string `json:"beside,omitempty"`
	Bad    bool   `json:"bad,omitempty"`
}

// The kinds of moments.
const (
	kindRun    = "run"
	kindStep   = "step"
	kindFailed = "failed"
	kindMark   = "mark"
	kindEvent  = "event"
	kindLoss   = "loss"
)

// newestFirst orders moments.
func newestFirst(a, b Moment) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Key, b.Key)) }

// TimelineDelta is what a viewer of an earlier timeline lacks. Moments with a known key replace those.
type TimelineDelta struct {
	More int      `json:"more,omitempty"`
	Note string   `json:"note"`
	Add  []Moment `json:"add,omitempty"`
	Gone []string `json:"gone,omitempty"`
}

// since is nil if nothing is new.
func (t Timeline) since(before Timeline) *TimelineDelta {
	d := TimelineDelta{More: t.More, Note: t.Note}
	known := map[string]Moment{}
	for _, m := range before.Moments {
		known[m.Key] = m
	}
	for _, m := range t.Moments {
		if known[m.Key] != m {
			d.Add = append(d.Add, m)
		}
		delete(known, m.Key)
	}
	for _, m := range before.Moments {
		if _, left := known[m.Key]; left {
			d.Gone = append(d.Gone, m.Key)
		}
	}
	if t.More == before.More && t.Note == before.Note && len(d.Add)+len(d.Gone) == 0 {
		return nil
	}
	return &d
}

func (t Timeline) apply(d *TimelineDelta) Timeline {
	if d == nil {
		return t
	}
	t.More, t.Note = d.More, d.Note
	t.Moments = slices.DeleteFunc(slices.Clone(t.Moments), func(m Moment) bool {
		return slices.Contains(d.Gone, m.Key) ||
			slices.ContainsFunc(d.Add, func(a Moment) bool { return a.Key == m.Key })
	})
	t.Moments = append(t.Moments, d.Add...)
	slices.SortFunc(t.Moments, newestFirst)
	return t
}

// timeline collects what happened.
type timeline struct {
	journal []Moment // the newest, oldest first
	older   int      // those of the journal that are not kept
	begun   map[string]time.Time
	losses  []report.Moment
	events  []observe.Event
	dropped int
	looks   []kube.Looks
}

// record adds a record of the journal. Actions that went well, and gates that passed, are in the journal alone.
func (t *timeline) record(script *run.Script, r engine.Record, line Line) {
	m := Moment{Key: fmt.Sprintf("r%d", r.Seq), At: r.At, Kind: kindRun, Text: line.Text, Bad: line.Bad}
	title := r.Step
	if one := script.Step(r.Step); one != nil {
		title = one.Title
	}
	switch r.Event {
	case engine.Started:
		m.Text = "started by " + cmp.Or(r.By, "an unknown user")
	case engine.StepBegan:
		if t.begun == nil {
			t.begun = map[string]time.Time{}
		}
		t.begun[r.Step] = r.At
		m.Kind, m.Text = kindStep, "began: "+line.Text
	case engine.StepUndone:
		m.Kind, m.Text = kindStep, "undone: "+title
	case engine.Acted, engine.GateAnswer:
		if !line.Bad {
			return
		}
		m.Kind = kindFailed
	case engine.Marked:
		m.Kind, m.Text = kindMark, engine.MarkOf(r)
		if r.By != "" {
			m.Text += " (" + r.By + ")"
		}
	}
	t.add(m)
}

// ended adds the end of a step, which the journal's lines for people do not tell.
func (t *timeline) ended(script *run.Script, r engine.Record) {
	text := "done"
	if begun, known := t.begun[r.Step]; known && r.At.After(begun) {
		text += " after " + lasted(r.At.Sub(begun))
		delete(t.begun, r.Step)
	}
	t.add(Moment{Key: fmt.Sprintf("r%d", r.Seq), At: r.At, Kind: kindStep, Text: text + ": " + script.Place(r.Step)})
}

func lasted(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	s := int(d.Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
}

func (t *timeline) add(m Moment) {
	t.journal = append(t.journal, m)
	if len(t.journal) >= 2*maxMoments { // not at each record
		t.older += len(t.journal) - maxMoments
		t.journal = slices.Clone(t.journal[len(t.journal)-maxMoments:])
	}
}

// show is the timeline so far.
func (t *timeline) show(script *run.Script, guard bool, unseen string) Timeline {
	shown := Timeline{More: t.older + len(t.journal) + len(t.events) + t.dropped + len(t.losses),
		Note: t.note(guard, unseen)}
	shown.Moments = slices.Clone(last(t.journal))
	for _, event := range last(t.events) {
		shown.Moments = append(shown.Moments, Moment{At: event.At, Kind: kindEvent, Text: event.String(),
			Key: fmt.Sprintf("e%d %s %s", event.At.UnixNano(), event.Object, event.What)})
	}
	for _, one := range last(t.losses) { // no two of them begin together
		m := Moment{Key: fmt.Sprintf("l%d", one.At.UnixNano()), At: one.At, Kind: kindLoss, Text: one.Text,
			Bad: one.Bad, During: "began " + during(script, one)}
		if one.Cause != "" {
			m.During += "; the first error: " + one.Cause
		}
		shown.Moments = append(shown.Moments, m)
	}
	slices.SortFunc(shown.Moments, newestFirst)
	shown.Moments = slices.CompactFunc(shown.Moments, func(a, b Moment) bool { return a.Key == b.Key })
	shown.Moments = shown.Moments[:min(len(shown.Moments), maxMoments)]
	shown.More -= len(shown.Moments)
	return shown
}

// last are the newest of a list that is in the order of time.
func last[T any](all []T) []T { return all[max(len(all)-maxMoments, 0):] }

// during says where in the run a loss began. Places that are no steps are phrases already.
func during(script *run.Script, one report.Moment) string {
	switch {
	case one.Undoing != "":
		return "during the rollback of " + script.Place(one.Undoing)
	case script.Step(one.Step) != nil:
		return "during " + script.Place(one.Step)
	}
	return one.Step
}

// note says how far it is known what happened in the cluster. Only guards look at it.
func (t *timeline) note(guard bool, unseen string) string {
	if !guard && len(t.looks) == 0 {
		return "events of the cluster are not shown: only guards store them"
	}
	text := "events of the cluster are not known yet: the run has not stored any"
	if n := len(t.looks); n > 0 {
		text = "events of the cluster are known until " + t.looks[n-1].To.UTC().Format(time.TimeOnly) + " UTC"
		if n > 1 {
			text += fmt.Sprintf(", in %d periods", n)
		}
		if t.dropped > 0 {
			text += ", without the oldest " + cluster.Count(t.dropped, "event")
		}
	}
	if unseen != "" {
		text += "; it cannot be read now: " + unseen
	}
	return text
}
