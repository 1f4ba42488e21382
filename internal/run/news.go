package run

import (
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// News is what a record says to people who do not watch. Its Reason is empty for records that say nothing: actions are
// too many.
type News struct {
	// Warning is true if something went wrong.
	Warning bool
	// Reason is one word, as in an Event of Kubernetes.
	Reason  string
	Message string
}

// Narrator makes news of the records of one run, which it gets in their order.
type Narrator struct {
	script *Script
	group  string        // of the last step that began
	back   engine.Record // TakingBack, until its step is undone
}

// NewNarrator makes a Narrator of a plan whose script is given.
func NewNarrator(script *Script) *Narrator { return &Narrator{script: script} }

// News is the news in the next record.
func (n *Narrator) News(r engine.Record) News {
	switch r.Event {
	case engine.Started:
		return News{false, "Began", "began, by " + r.By}
	case engine.Resumed:
		return News{false, "Resumed", "resumed by " + r.By}
	case engine.StepBegan:
		before := n.group
		if n.group = n.groupOf(r.Step); before != "" && before != n.group {
			return News{false, "GroupDone", before + " is done; next: " + n.script.Place(r.Step)}
		}
	case engine.GateAnswer:
		if r.Verdict != nil && !r.Verdict.Pass {
			return News{true, "GateFailed", n.script.Place(r.Step) + ": " + r.Verdict.Reason}
		}
	case engine.Paused:
		if r.Error == "" {
			return News{false, "Paused", "paused, as requested"}
		}
		return News{r.Result == "", "Paused", "paused: " + r.Error} // with a result, it ends by itself
	case engine.RollingBack:
		n.back = engine.Record{}
		return News{true, "RollingBack", "rolling back: " + r.Error}
	case engine.TakingBack:
		n.back = r
		return News{true, "RollingBack", "undoing only " + n.script.Place(r.Step) + ": " + r.Error}
	case engine.StepUndone:
		if n.back.Step == r.Step { // the run ends with this record
			cause := n.back.Error
			n.back = engine.Record{}
			return News{true, "NeedsPerson", cause + "; that step was undone, and no other step was"}
		}
	case engine.Finished:
		return finished(r)
	}
	return News{}
}

func finished(r engine.Record) News {
	switch r.Result {
	case engine.ResultDone:
		return News{false, "Complete", "every step is done"}
	case engine.ResultRolledBack:
		return News{true, "RolledBack", "every step was undone: " + r.Error}
	}
	return News{true, "NeedsPerson", r.Error}
}

// groupOf is the wave of a step, or else its group.
func (n *Narrator) groupOf(id string) string {
	step := n.script.Step(id)
	switch {
	case step == nil:
		return ""
	case step.Wave != "":
		return step.Wave
	}
	return step.Group
}
