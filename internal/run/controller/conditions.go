package controller

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/kstatus"
)

// Condition is the value of one condition. The zero value leaves the condition as it is.
type Condition struct {
	True            bool
	Reason, Message string
}

func yes(reason, message string) Condition { return Condition{true, reason, message} }
func no(reason, message string) Condition  { return Condition{false, reason, message} }

// Conditions are the conditions of a Migration that change together.
type Conditions struct {
	Approved, Progressing, Paused, Degraded, Complete Condition
	// Count is what Approved was decided from; nil leaves it as it is, as the zero value of Approved does.
	Count *v1alpha1.ApprovalCount
}

// initial are the conditions of a Migration that has none yet.
var initial = Conditions{
	Approved:    no(v1alpha1.ReasonTooFewApprovals, "the approvals are not counted yet"),
	Progressing: no(v1alpha1.ReasonWaiting, "the controller has not begun"),
	Paused:      no(v1alpha1.ReasonNotPaused, ""),
	Degraded:    no(v1alpha1.ReasonHealthy, ""),
	Complete:    no(v1alpha1.ReasonNotYet, ""),
}

// message is the limit of metav1.Condition for a message, in bytes.
const maxMessage = 32 << 10

// onto returns a list of conditions with the changes, those that follow from them, and whether anything changes. The
// time of a transition changes with the status alone, as in all of Kubernetes.
func (c Conditions) onto(all []metav1.Condition, now time.Time) ([]metav1.Condition, bool) {
	all = append([]metav1.Condition(nil), all...)
	changed := false
	for _, one := range []struct {
		kind        string
		value, none Condition
	}{
		{v1alpha1.ConditionApproved, c.Approved, initial.Approved},
		{v1alpha1.ConditionProgressing, c.Progressing, initial.Progressing},
		{v1alpha1.ConditionPaused, c.Paused, initial.Paused},
		{v1alpha1.ConditionDegraded, c.Degraded, initial.Degraded},
		{v1alpha1.ConditionComplete, c.Complete, initial.Complete},
	} {
		value := one.value
		if value == (Condition{}) {
			if meta.FindStatusCondition(all, one.kind) != nil {
				continue
			}
			value = one.none
		}
		status := metav1.ConditionFalse
		if value.True {
			status = metav1.ConditionTrue
		}
		changed = meta.SetStatusCondition(&all, metav1.Condition{Type: one.kind, Status: status, Reason: value.Reason,
			Message: shortened(value.Message), LastTransitionTime: metav1.NewTime(now)}) || changed
	}
	all, derived := kstatus.Add(all, metav1.NewTime(now))
	return all, changed || derived
}

// shortened is a message within the limit.
func shortened(text string) string {
	for len(text) > maxMessage {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// obstructed are the conditions of a run that does not continue by itself.
func obstructed(o Obstacle) Conditions {
	return Conditions{Progressing: no(v1alpha1.ReasonWaiting, "waits for a person"), Degraded: yes(o.Reason, o.Message)}
}

// running are the conditions while a run goes forward or back. where is the current step.
func running(state engine.State, where string) Conditions {
	reason := v1alpha1.ReasonRunning
	if state.Undoing || state.Back != "" {
		reason = v1alpha1.ReasonRollingBack
	}
	return Conditions{Progressing: yes(reason, where), Paused: initial.Paused, Degraded: initial.Degraded,
		Complete: initial.Complete}
}

// retrying are the conditions after an error that may go away by itself.
func retrying(err error, pause time.Duration) Conditions {
	return Conditions{Progressing: no(v1alpha1.ReasonRetrying,
		"tries again in "+pause.String()+": "+sentence(err.Error(), engine.HintOf(err)))}
}

// ended are the conditions of a run that has ended, paused, or needs a person, and true. It is false for a state in
// which the engine would continue. hint says what a person can do.
func ended(state engine.State, hint string) (Conditions, bool) {
	c := Conditions{Progressing: no(v1alpha1.ReasonEnded, "the migration has ended"), Paused: initial.Paused,
		Degraded: initial.Degraded}
	switch state.Phase {
	case engine.PhaseDone:
		c.Complete = yes(v1alpha1.ReasonDone, "every step is done; `theseus report` shows what was measured")
	case engine.PhaseRolledBack:
		c.Complete = no(v1alpha1.ReasonRolledBack, sentence("every step was undone: "+state.Cause, hint))
		if state.Asked {
			c.Complete = no(v1alpha1.ReasonStopped, sentence("every step was undone, as requested", hint))
		}
	case engine.PhasePaused:
		c.Progressing = no(v1alpha1.ReasonWaiting, "the migration is paused")
		c.Paused = yes(v1alpha1.ReasonAsked, sentence("paused as requested; all pods stay connected", hint))
		if state.Held != "" {
			held := until(engine.Hold{Result: state.Held, Cause: state.Cause}, nil)
			c.Progressing, c.Paused = held.Progressing, held.Paused
		} else if state.Cause != "" {
			c.Paused = yes(v1alpha1.ReasonHindered, sentence("paused: "+state.Cause, hint))
		}
		c.Complete = initial.Complete
	case engine.PhaseNeedsPerson:
		c.Progressing = no(v1alpha1.ReasonWaiting, "waits for a person")
		c.Degraded = yes(v1alpha1.ReasonNeedsPerson, sentence(cmp.Or(state.Cause, "the run stopped"), hint))
		c.Complete = initial.Complete
	default:
		return Conditions{}, false
	}
	return c, true
}

// sentence joins what is wrong and what to do about it.
func sentence(what, hint string) string {
	if hint == "" {
		return what
	}
	return strings.TrimSuffix(what, ".") + "; " + hint
}
