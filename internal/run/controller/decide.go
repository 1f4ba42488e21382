package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Situation is everything that the decision about one Migration depends on.
type Situation struct {
	Migration *v1alpha1.Migration
	// Unfit is why the controller cannot run the plan in the Migration: it cannot be read, or is of a kind that the
	// controller does not support. nil if neither is so.
	Unfit *Obstacle
	// Approvals are all in the cluster, and Needed is how many users, or signers, must approve.
	Approvals []v1alpha1.Approval
	Needed    int
	// OldCRDs is true if the CRDs in the cluster are of a version that has no approvals.
	OldCRDs bool
	Policy  Policy
	Signers Signers
	// Freeze is why nothing may begin in this cluster; "" if it may.
	Freeze string
	// Now is the time, and Next is how long the next step takes; 0 if that is not known.
	Now  time.Time
	Next time.Duration
}

// Obstacle is why a run does not continue by itself, as the condition Degraded says it.
type Obstacle struct{ Reason, Message string }

// Do is what to do about a Migration.
type Do string

// The decisions.
const (
	// Leave: it is not the controller's, or waits for a change of its spec.
	Leave Do = "leave"
	// Tell: write the conditions of the decision, and look again later.
	Tell Do = "tell"
	// Recount: the run has ended, paused, or needs a person, and the conditions do not say so. Derive them from the
	// journal.
	Recount Do = "recount"
	// Execute: carry the plan out from where its journal ends.
	Execute Do = "execute"
)

// Decision is what to do about a Migration, and the conditions that change with it.
type Decision struct {
	Do         Do
	Conditions Conditions
}

// Decide decides what to do about a Migration. It is a pure function of the situation.
func Decide(s Situation) Decision {
	m := s.Migration
	phase := engine.Phase(m.Status.Phase)
	switch {
	case !mine(m):
		return Decision{Do: Leave}
	case phase == engine.PhaseDone || phase == engine.PhaseRolledBack:
		if finished(m.Status.Conditions) {
			return Decision{Do: Leave}
		}
		return Decision{Do: Recount}
	case !m.Spec.InCluster:
		return Decision{Tell, handedOver(m)}
	case s.Unfit != nil:
		told := obstructed(*s.Unfit)
		told.Approved, told.Count = approval(s)
		return Decision{Tell, told}
	case waits(m) && !held(m):
		if told(m.Status.Conditions, phase) {
			return Decision{Do: Leave}
		}
		return Decision{Do: Recount}
	case m.Spec.Desire == v1alpha1.DesirePause &&
		(phase == "" || phase == engine.PhaseNew || phase == engine.PhasePaused):
		told := Conditions{Progressing: no(v1alpha1.ReasonWaiting, "the migration is paused, as requested"),
			Paused: yes(v1alpha1.ReasonAsked, "paused as requested: "+resumes(m.Name))}
		told.Approved, told.Count = approval(s)
		return Decision{Tell, told}
	}
	approved, count := approval(s)
	do := Tell
	told, closed := closed(s)
	switch {
	case !approved.True:
		told = Conditions{Progressing: no(v1alpha1.ReasonWaiting, "waits until the plan is approved")}
	case !closed:
		do, told = Execute, opened(m)
	}
	told.Approved, told.Count = approved, count
	return Decision{do, told}
}

// handedOver are the conditions of a migration that a command line runs. What the controller told before is about its
// own run; the phase in the status is that of the command line's.
func handedOver(m *v1alpha1.Migration) Conditions {
	c := Conditions{Paused: initial.Paused, Degraded: initial.Degraded, Progressing: no(v1alpha1.ReasonHandedOver,
		"a command line runs this migration; `theseus resume --in-cluster "+m.Name+"` gives it back to the controller")}
	const says = "; `theseus status` says why"
	switch phase := engine.Phase(m.Status.Phase); {
	case phase == engine.PhasePaused && m.Status.Held == engine.ResultMeasuring:
		measures := until(engine.Hold{Result: engine.ResultMeasuring,
			Cause: "the probes measure what others change, until `theseus guard stop`"}, nil)
		c.Progressing, c.Paused = measures.Progressing, measures.Paused
	case phase == engine.PhasePaused && m.Status.Held != "":
		c.Paused = until(engine.Hold{Result: m.Status.Held, Cause: "the command line has paused it" + says}, nil).Paused
	case phase == engine.PhasePaused:
		c.Paused = yes(v1alpha1.ReasonAsked, "the command line has paused it"+says)
	case phase == engine.PhaseNeedsPerson:
		c.Degraded = yes(v1alpha1.ReasonNeedsPerson, "a command line ran it, and stopped"+says)
	}
	return c
}

// held reports whether a run has paused between two steps until that is over by itself. The CRD of an older version
// drops the field; the condition says it too.
func held(m *v1alpha1.Migration) bool {
	return engine.Phase(m.Status.Phase) == engine.PhasePaused &&
		(m.Status.Held != "" && m.Status.Held != engine.ResultWindowEnded ||
			has(m.Status.Conditions, v1alpha1.ConditionPaused, v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonFrozen))
}

// closed are the conditions of a migration whose next step must not begin now, and true. A run that is under way is no
// such migration, as it may be in the middle of a step, nor is a rollback.
func closed(s Situation) (Conditions, bool) {
	m := s.Migration
	phase := engine.Phase(m.Status.Phase)
	if m.Spec.Desire == v1alpha1.DesireRollback || !held(m) && phase != "" && phase != engine.PhaseNew {
		return Conditions{}, false
	}
	hold, err := run.Held(m.Spec.Windows, s.Freeze, s.Now, s.Next)
	if err != nil {
		return Conditions{Progressing: no(v1alpha1.ReasonWaiting, "waits for a person"),
				Degraded: yes(v1alpha1.ReasonBadWindows,
					sentence(err.Error(),
						"change spec.windows of the migration, and the controller continues by itself"))},
			true
	}
	if hold == (engine.Hold{}) {
		return Conditions{}, false
	}
	return until(hold, m.Status.Conditions), true
}

// until are the conditions of a migration that continues by itself once its hold has passed, that stands at the end of
// a window, or of a guard that measures.
func until(hold engine.Hold, before []metav1.Condition) Conditions {
	reason := v1alpha1.ReasonOutsideWindow
	goesOn := "the migration is paused, and continues by itself"
	switch hold.Result {
	case engine.ResultFrozen:
		reason = v1alpha1.ReasonFrozen
	case engine.ResultWindowEnded:
		reason, goesOn = v1alpha1.ReasonWindowEnded,
			"the migration is paused until a person continues it: `theseus resume --in-cluster`"
	case engine.ResultMeasuring:
		reason, goesOn = v1alpha1.ReasonMeasuring, "no process needs to run while the probes measure"
	}
	c := Conditions{Progressing: no(reason, goesOn), Paused: yes(reason, hold.Cause)}
	if has(before, v1alpha1.ConditionDegraded, v1alpha1.ReasonBadWindows) {
		c.Degraded = initial.Degraded
	}
	return c
}

// opened are the conditions of a migration that is executed. They no longer say what held it.
func opened(m *v1alpha1.Migration) (c Conditions) {
	if has(m.Status.Conditions, v1alpha1.ConditionPaused, v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonFrozen) {
		c.Paused = initial.Paused
	}
	if has(m.Status.Conditions, v1alpha1.ConditionDegraded, v1alpha1.ReasonBadWindows) {
		c.Degraded = initial.Degraded
	}
	return c
}

// has reports whether a condition has one of some reasons.
func has(conditions []metav1.Condition, kind string, reasons ...string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == kind && slices.Contains(reasons, c.Reason)
	})
}

// mine reports whether the controller runs a migration, or has written conditions for it, which it keeps true.
func mine(m *v1alpha1.Migration) bool {
	return m.Spec.InCluster || len(m.Status.Conditions) > 0 || m.Status.Observed != nil
}

// waits reports whether a run has stopped for a person, and the person has not asked for anything since.
func waits(m *v1alpha1.Migration) bool {
	phase := engine.Phase(m.Status.Phase)
	stopped := phase == engine.PhasePaused || phase == engine.PhaseNeedsPerson ||
		slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionDegraded && c.Status == metav1.ConditionTrue &&
				c.Reason == v1alpha1.ReasonNeedsPerson
		})
	return stopped && answered(m)
}

// answered reports whether the controller has acted on what the spec asks for. A pause asks nothing of a run that has
// stopped.
func answered(m *v1alpha1.Migration) bool {
	seen := m.Status.Observed
	return seen != nil && seen.Attempt == m.Spec.Attempt &&
		(seen.Desire == m.Spec.Desire || m.Spec.Desire == v1alpha1.DesirePause)
}

// asked is what the spec of a Migration asks for now.
func asked(m *v1alpha1.Migration) v1alpha1.Observed {
	return v1alpha1.Observed{Attempt: m.Spec.Attempt, Desire: m.Spec.Desire}
}

// finished reports whether the conditions say how a migration has ended.
func finished(conditions []metav1.Condition) bool {
	return has(conditions, v1alpha1.ConditionComplete, v1alpha1.ReasonDone,
		v1alpha1.ReasonRolledBack, v1alpha1.ReasonStopped)
}

// told reports whether the conditions say that a run has paused, or needs a person.
func told(conditions []metav1.Condition, phase engine.Phase) bool {
	kind := v1alpha1.ConditionDegraded
	if phase == engine.PhasePaused {
		kind = v1alpha1.ConditionPaused
	}
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == kind && c.Status == metav1.ConditionTrue
	})
}

// approval says whether enough people have approved exactly this plan, and what it has counted.
func approval(s Situation) (Condition, *v1alpha1.ApprovalCount) {
	const install = "install or upgrade the chart of Theseus, which has it; no approval counts until then"
	counts := &v1alpha1.ApprovalCount{Needed: s.Needed, SignedOnly: s.signatures()}
	if condition, lacks := listed(s); lacks {
		return condition, counts
	}
	switch {
	case s.OldCRDs:
		return no(v1alpha1.ReasonOldCRDs, "this cluster does not know the kind Approval, so its CRDs are of an older "+
			"version: upgrade the chart of Theseus; until then, no approval can be created"), counts
	case s.Policy.Unserved: // signatures alone count
	case s.Policy.Reason == v1alpha1.ReasonPolicyMissing:
		return no(s.Policy.Reason,
			s.Policy.Object+" does not exist, so the API server does not check who approves: "+install), counts
	case s.Policy.Reason != "":
		return no(s.Policy.Reason, s.Policy.Object+" differs from that of this version: "+install), counts
	}
	found := count(s)
	counts.Counted, counts.ApprovedBy = len(found.who), found.who
	if counts.Counted >= s.Needed {
		return yes(v1alpha1.ReasonEnoughApprovals, "approved by "+strings.Join(found.who, ", ")), counts
	}
	return lacking(s, found), counts
}

// lacking is the condition of a plan that too few people have approved.
func lacking(s Situation, found counted) Condition {
	m, kind, sign := s.Migration, "approval", ""
	if s.signatures() {
		kind, sign = "signed approval", " "+journal.SignsWith
	}
	message := fmt.Sprintf("%s of %d: `theseus approve %s --plan FILE%s` adds one, after reading the plan with the "+
		"hash %s", cluster.Count(len(found.who), kind), s.Needed, m.Name, sign, m.Spec.PlanHash)
	if len(found.who) > 0 {
		message += "; approved so far by " + strings.Join(found.who, ", ")
	}
	if len(found.old) > 0 {
		message += "; older than the policy that checks who approves, or than the migration, so delete and approve " +
			"again: " + several(found.old)
	}
	if len(found.unsigned) > 0 {
		return no(v1alpha1.ReasonUnsigned,
			message+"; without a valid signature of a person on the list: "+several(found.unsigned))
	}
	return no(v1alpha1.ReasonTooFewApprovals, message)
}

func resumes(name string) string { return "`theseus resume --in-cluster " + name + "` continues" }

// pick chooses which of several Migrations to execute: one that has begun, else the one that was created first. The
// others wait. -1 if there is none.
func pick(all []v1alpha1.Migration) int {
	best := -1
	begun := func(m *v1alpha1.Migration) bool {
		return m.Status.Phase != "" && m.Status.Phase != string(engine.PhaseNew)
	}
	for i := range all {
		switch {
		case best < 0:
			best = i
		case begun(&all[i]) != begun(&all[best]):
			if begun(&all[i]) {
				best = i
			}
		case all[i].CreationTimestamp.Before(&all[best].CreationTimestamp):
			best = i
		}
	}
	return best
}

// pauseAfter is how long the controller waits before it tries again after a number of failures in a row: 10 s, 20 s, 40
// s, and then a minute.
func pauseAfter(failures int) time.Duration {
	return min(10*time.Second<<min(max(failures-1, 0), 3), time.Minute)
}
