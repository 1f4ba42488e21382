package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/window"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// migration is one that the controller runs, changed by each of the functions.
func migration(change ...func(*v1alpha1.Migration)) *v1alpha1.Migration {
	m := &v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: v1alpha1.MigrationSpec{PlanHash: "hash", InCluster: true}}
	for _, one := range change {
		one(m)
	}
	return m
}

func inPhase(phase engine.Phase) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) { m.Status.Phase = string(phase) }
}

func onTerminal(m *v1alpha1.Migration) { m.Spec.InCluster = false }

func wanting(desire v1alpha1.Desire) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) { m.Spec.Desire = desire }
}

func observing(attempt int, desire v1alpha1.Desire) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) { m.Status.Observed = &v1alpha1.Observed{Attempt: attempt, Desire: desire} }
}

func saying(c Conditions) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) { m.Status.Conditions, _ = c.onto(m.Status.Conditions, noon) }
}

// within are the windows of a migration.
func within(texts ...string) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) {
		for _, text := range texts {
			one, err := window.Parse(text)
			if err != nil {
				panic(err)
			}
			m.Spec.Windows = append(m.Spec.Windows, one)
		}
	}
}

// zone is the time zone of the first window.
func zone(name string) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) { m.Spec.Windows[0].TimeZone = name }
}

// heldBy is a run that has paused until something is over.
func heldBy(why string) func(*v1alpha1.Migration) {
	return func(m *v1alpha1.Migration) { m.Status.Phase, m.Status.Held = string(engine.PhasePaused), why }
}

// by is an approval an hour after the policy was created.
func by(user string) v1alpha1.Approval { return on(user, "m", "hash", noon.Add(time.Hour)) }

func on(user, name, hash string, at time.Time) v1alpha1.Approval {
	return v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Name: "a-" + user, CreationTimestamp: metav1.NewTime(at)},
		Spec: v1alpha1.ApprovalSpec{Migration: name, PlanHash: hash, User: user}}
}

// TestDecide: what is done about a Migration, and which conditions say so.
func TestDecide(t *testing.T) {
	needsPerson := obstructed(Obstacle{v1alpha1.ReasonNeedsPerson, "x"})
	ann := []v1alpha1.Approval{by("ann")}
	sound := Policy{Since: noon}
	for _, test := range []struct {
		name string
		s    Situation
		do   Do
		// says is a reason, or a part of a message, that the decision's conditions have.
		says string
	}{
		{"of a command line", Situation{Migration: migration(onTerminal)}, Leave, ""},
		{"approved", Situation{Migration: migration(), Approvals: ann, Policy: sound}, Execute, "approved by ann"},
		{"approved, while it runs", Situation{Migration: migration(inPhase(engine.PhaseRunning), observing(0, "")),
			Approvals: ann, Policy: sound}, Execute, ""},
		{"not approved", Situation{Migration: migration(), Policy: sound}, Tell,
			"0 approvals of 1: `theseus approve m --plan FILE`"},
		{"another plan was approved", Situation{Migration: migration(), Policy: sound,
			Approvals: []v1alpha1.Approval{on("ann", "m", "other", noon.Add(time.Hour)),
				on("bob", "n", "hash", noon.Add(time.Hour))}}, Tell, v1alpha1.ReasonTooFewApprovals},
		{"one user twice is one", Situation{Migration: migration(), Policy: sound, Needed: 2,
			Approvals: []v1alpha1.Approval{by("ann"), by("ann")}}, Tell, "1 approval of 2"},
		{"two users", Situation{Migration: migration(), Policy: sound, Needed: 2,
			Approvals: []v1alpha1.Approval{by("ann"), by("bob")}}, Execute, "approved by ann, bob"},
		{"approved before the policy", Situation{Migration: migration(), Policy: sound,
			Approvals: []v1alpha1.Approval{on("ann", "m", "hash", noon.Add(-time.Second))}},
			Tell, "or than the migration, so delete and approve again: a-ann"},
		{"approved before it was made again", Situation{Migration: migration(func(m *v1alpha1.Migration) {
			m.CreationTimestamp = metav1.NewTime(noon.Add(2 * time.Hour))
		}),
			Approvals: ann, Policy: sound}, Tell, "so delete and approve again: a-ann"},
		{"no policy", Situation{Migration: migration(), Approvals: ann,
			Policy: Policy{Reason: v1alpha1.ReasonPolicyMissing, Object: "V/x"}}, Tell, "V/x does not exist"},
		{"another policy", Situation{Migration: migration(), Approvals: ann,
			Policy: Policy{Reason: v1alpha1.ReasonPolicyChanged, Object: "V/x"}}, Tell, v1alpha1.ReasonPolicyChanged},
		{"unfit", Situation{Migration: migration(), Approvals: ann, Policy: sound,
			Unfit: &Obstacle{v1alpha1.ReasonNotSupported, "it runs commands"}}, Tell, "it runs commands"},
		{"paused before it began", Situation{Migration: migration(wanting(v1alpha1.DesirePause)), Approvals: ann,
			Policy: sound}, Tell, v1alpha1.ReasonAsked},
		{"paused before it began, and the approvals are counted", Situation{Migration: migration(wanting(
			v1alpha1.DesirePause)), Approvals: ann, Policy: sound}, Tell, "approved by ann"},
		{"a pause is asked of the engine", Situation{Migration: migration(wanting(v1alpha1.DesirePause),
			inPhase(engine.PhaseRunning)), Approvals: ann, Policy: sound}, Execute, ""},
		{"paused by the cluster", Situation{Migration: migration(inPhase(engine.PhasePaused), observing(0, ""),
			saying(Conditions{Paused: yes(v1alpha1.ReasonHindered, "x")})), Approvals: ann, Policy: sound}, Leave, ""},
		{"paused, and the controller died before it said so", Situation{Migration: migration(
			inPhase(engine.PhasePaused), observing(0, "")), Approvals: ann, Policy: sound}, Recount, ""},
		{"paused, and resumed", Situation{Migration: migration(inPhase(engine.PhasePaused),
			observing(0, v1alpha1.DesirePause)), Approvals: ann, Policy: sound}, Execute, ""},
		{"needs a person", Situation{Migration: migration(inPhase(engine.PhaseNeedsPerson), observing(0, ""),
			saying(needsPerson)), Approvals: ann, Policy: sound}, Leave, ""},
		{"needs a person, and is paused",
			Situation{Migration: migration(inPhase(engine.PhaseNeedsPerson), observing(0, ""), saying(needsPerson),
				wanting(v1alpha1.DesirePause)), Approvals: ann, Policy: sound}, Leave, ""},
		{"needs a person after one step was undone", Situation{Migration: migration(inPhase(engine.PhaseRunning),
			observing(0, ""), saying(needsPerson)), Approvals: ann, Policy: sound}, Leave, ""},
		{"needed a person, who has resumed",
			Situation{Migration: migration(inPhase(engine.PhaseNeedsPerson), observing(0, ""), saying(needsPerson),
				func(m *v1alpha1.Migration) { m.Spec.Attempt = 1 }), Approvals: ann, Policy: sound}, Execute, ""},
		{"needed a person, who rolls back",
			Situation{Migration: migration(inPhase(engine.PhaseNeedsPerson), observing(0, ""), saying(needsPerson),
				wanting(v1alpha1.DesireRollback)), Approvals: ann, Policy: sound}, Execute, ""},
		{"needed a person at a command line", Situation{Migration: migration(inPhase(engine.PhaseNeedsPerson)),
			Approvals: ann, Policy: sound}, Execute, ""},
		{"taken by a command line", Situation{Migration: migration(onTerminal, observing(0, ""),
			inPhase(engine.PhaseRunning))}, Tell, v1alpha1.ReasonHandedOver},
		{"a guard that measures, begun by a command line",
			Situation{Migration: migration(onTerminal, observing(0, ""), heldBy(engine.ResultMeasuring))}, Tell,
			"Measuring: the probes measure what others change, until `theseus guard stop`"},
		{"taken before it began", Situation{Migration: migration(onTerminal, saying(Conditions{}))},
			Tell, v1alpha1.ReasonHandedOver},
		{"outside of its windows, before it began",
			Situation{Migration: migration(within("22:00-05:00 Europe/Berlin")), Approvals: ann, Policy: sound}, Tell,
			"OutsideWindow: outside of its windows; the next window opens Fri 2026-01-02 22:00 CET (Europe/Berlin)"},
		{"within one of its windows", Situation{Migration: migration(within("22:00-05:00 Europe/Berlin",
			"Fri 13:00-14:00 Europe/Berlin")), Approvals: ann, Policy: sound}, Execute, ""},
		{"the next step does not fit", Situation{Migration: migration(within("11:00-12:05 UTC")), Approvals: ann,
			Policy: sound, Next: 6 * time.Minute}, Tell,
			"the next step takes about 6 min, and the window closes Fri 2026-01-02 12:05 UTC; the next window " +
				"opens Sat 2026-01-03 11:00 UTC"},
		{"the next step fits", Situation{Migration: migration(within("11:00-12:05 UTC")), Approvals: ann, Policy: sound,
			Next: 5 * time.Minute}, Execute, ""},
		{"the next step never fits", Situation{Migration: migration(within("11:00-12:05 UTC")), Approvals: ann,
			Policy: sound, Next: 2 * time.Hour}, Tell, v1alpha1.ReasonBadWindows},
		{"an unknown time zone", Situation{Migration: migration(within("11:00-12:05 UTC"), zone("Europe/Belin")),
			Approvals: ann, Policy: sound}, Tell,
			`BadWindows: window 1 (11:00-12:05 Europe/Belin): unknown time zone "Europe/Belin"`},
		{"not approved, and outside of its windows", Situation{Migration: migration(within("22:00-05:00 UTC")),
			Policy: sound}, Tell, v1alpha1.ReasonTooFewApprovals},
		{"a window closes in the middle of a step", Situation{Migration: migration(within("22:00-05:00 UTC"),
			inPhase(engine.PhaseRunning), observing(0, "")), Approvals: ann, Policy: sound}, Execute, ""},
		{"paused until a window opens", Situation{Migration: migration(within("22:00-05:00 UTC"),
			heldBy(engine.ResultOutsideWindow), observing(0, "")), Approvals: ann, Policy: sound}, Tell,
			"Fri 2026-01-02 22:00 UTC"},
		{"the window opens", Situation{Migration: migration(within("12:00-13:00 UTC"),
			heldBy(engine.ResultOutsideWindow), observing(0, "")), Approvals: ann, Policy: sound}, Execute, ""},
		{"at the end of a window of its plan",
			Situation{Migration: migration(heldBy(engine.ResultWindowEnded), observing(0, ""),
				saying(Conditions{Paused: yes(v1alpha1.ReasonWindowEnded, "x")})), Approvals: ann, Policy: sound},
			Leave, ""},
		{"at the end of a window of its plan, and a person continues it",
			Situation{Migration: migration(heldBy(engine.ResultWindowEnded), observing(0, v1alpha1.DesirePause)),
				Approvals: ann, Policy: sound}, Execute, ""},
		{"the window opens, and a person has paused it", Situation{Migration: migration(within("12:00-13:00 UTC"),
			heldBy(engine.ResultOutsideWindow), observing(0, ""), wanting(v1alpha1.DesirePause)), Approvals: ann,
			Policy: sound}, Tell, v1alpha1.ReasonAsked},
		{"a person has paused it within a window", Situation{Migration: migration(within("12:00-13:00 UTC"),
			inPhase(engine.PhasePaused), observing(0, v1alpha1.DesirePause), wanting(v1alpha1.DesirePause),
			saying(Conditions{Paused: yes(v1alpha1.ReasonAsked, "x")})),
			Approvals: ann, Policy: sound}, Leave, ""},
		{"a person resumes it outside of its windows, perhaps in the middle of a step",
			Situation{Migration: migration(within("22:00-05:00 UTC"), inPhase(engine.PhasePaused),
				observing(0, v1alpha1.DesirePause)), Approvals: ann, Policy: sound}, Execute, ""},
		{"rolled back outside of its windows", Situation{Migration: migration(within("22:00-05:00 UTC"),
			heldBy(engine.ResultOutsideWindow), observing(0, ""), wanting(v1alpha1.DesireRollback)), Approvals: ann,
			Policy: sound}, Execute, ""},
		{"frozen before it began",
			Situation{Migration: migration(), Approvals: ann, Policy: sound, Freeze: "incident 12"}, Tell,
			"Frozen: frozen: incident 12; kubectl annotate namespace theseus-system " +
				"theseus.dev/freeze- ends the freeze"},
		{"frozen on the way", Situation{Migration: migration(heldBy(engine.ResultFrozen), observing(0, "")),
			Approvals: ann, Policy: sound, Freeze: "incident 12"}, Tell, v1alpha1.ReasonFrozen},
		{"the freeze has ended", Situation{Migration: migration(heldBy(engine.ResultFrozen), observing(0, ""),
			saying(Conditions{Paused: yes(v1alpha1.ReasonFrozen, "x")})),
			Approvals: ann, Policy: sound}, Execute, "NotPaused"},
		{"the freeze has ended outside of the windows", Situation{Migration: migration(within("22:00-05:00 UTC"),
			heldBy(engine.ResultFrozen), observing(0, "")), Approvals: ann, Policy: sound},
			Tell, v1alpha1.ReasonOutsideWindow},
		{"frozen on the way, and an older CRD has dropped why", Situation{Migration: migration(
			inPhase(engine.PhasePaused), observing(0, ""), saying(Conditions{Paused: yes(v1alpha1.ReasonFrozen, "x")})),
			Approvals: ann, Policy: sound, Freeze: "incident 12"}, Tell, v1alpha1.ReasonFrozen},
		{"the freeze has ended, and an older CRD has dropped it", Situation{Migration: migration(
			inPhase(engine.PhasePaused), observing(0, ""), saying(Conditions{Paused: yes(v1alpha1.ReasonFrozen, "x")})),
			Approvals: ann, Policy: sound}, Execute, "NotPaused"},
		{"taken by a command line after it needed a person", Situation{Migration: migration(onTerminal,
			inPhase(engine.PhaseRunning), saying(needsPerson))}, Tell, "Healthy"},
		{"taken by a command line after a pause", Situation{Migration: migration(onTerminal, inPhase(
			engine.PhaseRunning), saying(Conditions{Paused: yes(v1alpha1.ReasonAsked, "x")}))}, Tell, "NotPaused"},
		{"a command line needs a person", Situation{Migration: migration(onTerminal, inPhase(engine.PhaseNeedsPerson),
			saying(Conditions{}))}, Tell, "NeedsPerson: a command line ran it, and stopped"},
		{"a command line has paused", Situation{Migration: migration(onTerminal, inPhase(engine.PhasePaused),
			saying(Conditions{}))}, Tell, "Asked: the command line has paused it"},
		{"ended", Situation{Migration: migration(inPhase(engine.PhaseDone), observing(0, ""))}, Recount, ""},
		{"ended at a command line that had taken it",
			Situation{Migration: migration(onTerminal, inPhase(engine.PhaseDone), observing(0, ""))}, Recount, ""},
		{"ended and told", Situation{Migration: migration(inPhase(engine.PhaseDone),
			saying(Conditions{Complete: yes(v1alpha1.ReasonDone, "")}))}, Leave, ""},
		{"rolled back and told", Situation{Migration: migration(inPhase(engine.PhaseRolledBack),
			saying(Conditions{Complete: no(v1alpha1.ReasonRolledBack, "")}))}, Leave, ""},
	} {
		test.s.Needed, test.s.Now = max(test.s.Needed, 1), noon
		got := Decide(test.s)
		all, _ := got.Conditions.onto(nil, noon)
		said := ""
		for _, c := range all {
			said += c.Reason + ": " + c.Message + "\n"
		}
		if got.Do != test.do || !strings.Contains(said, test.says) {
			t.Errorf("%s: %s, want %s and %q in\n%s", test.name, got.Do, test.do, test.says, said)
		}
	}
}

// TestConditions: every Migration has all conditions, a time changes with the status alone, and what stays the same is
// not written.
func TestConditions(t *testing.T) {
	all, changed := Conditions{}.onto(nil, noon)
	if !changed || len(all) != 8 {
		t.Fatalf("%t, %+v", changed, all)
	}
	if _, changed = (Conditions{}).onto(all, noon.Add(time.Hour)); changed {
		t.Error("nothing to say changes the conditions")
	}
	status := func(all []metav1.Condition) (text string) {
		for _, c := range all {
			text += c.Type + "=" + string(c.Status) + " " + c.Reason + " "
		}
		return text
	}
	state := engine.State{Phase: engine.PhaseRunning}
	first, _ := running(state, "[1/9] a").onto(all, noon)
	second, changed := running(state, "[2/9] b").onto(first, noon.Add(time.Hour))
	if !changed || !second[1].LastTransitionTime.Time.Equal(noon) || second[1].Message != "[2/9] b" {
		t.Errorf("%t, %+v", changed, second[1])
	}
	for _, test := range []struct {
		state engine.State
		want  string
	}{
		{engine.State{Phase: engine.PhaseDone},
			"Progressing=False Ended Paused=False NotPaused Degraded=False Healthy Complete=True Done " +
				"Reconciling=False Done Stalled=False Done Ready=True Done "},
		{engine.State{Phase: engine.PhaseRolledBack, Cause: "x"},
			"Progressing=False Ended Paused=False NotPaused Degraded=False Healthy Complete=False RolledBack " +
				"Reconciling=False RolledBack Stalled=True RolledBack Ready=False RolledBack "},
		{engine.State{Phase: engine.PhaseRolledBack, Asked: true},
			"Progressing=False Ended Paused=False NotPaused Degraded=False Healthy Complete=False Stopped " +
				"Reconciling=False Stopped Stalled=True Stopped Ready=False Stopped "},
		{engine.State{Phase: engine.PhasePaused},
			"Progressing=False Waiting Paused=True Asked Degraded=False Healthy Complete=False NotYet " +
				"Reconciling=True Asked Stalled=False Asked Ready=False Asked "},
		{engine.State{Phase: engine.PhasePaused, Held: engine.ResultOutsideWindow, Cause: "x"},
			"Progressing=False OutsideWindow Paused=True OutsideWindow Degraded=False Healthy Complete=False NotYet " +
				"Reconciling=True OutsideWindow Stalled=False OutsideWindow Ready=False OutsideWindow "},
		{engine.State{Phase: engine.PhasePaused, Held: engine.ResultWindowEnded, Cause: "x"},
			"Progressing=False WindowEnded Paused=True WindowEnded Degraded=False Healthy Complete=False NotYet " +
				"Reconciling=True WindowEnded Stalled=False WindowEnded Ready=False WindowEnded "},
		{engine.State{Phase: engine.PhasePaused, Held: engine.ResultFrozen, Cause: "x"},
			"Progressing=False Frozen Paused=True Frozen Degraded=False Healthy Complete=False NotYet " +
				"Reconciling=True Frozen Stalled=False Frozen Ready=False Frozen "},
		{engine.State{Phase: engine.PhasePaused, Held: engine.ResultMeasuring, Cause: "x"},
			"Progressing=False Measuring Paused=True Measuring Degraded=False Healthy Complete=False NotYet " +
				"Reconciling=True Measuring Stalled=False Measuring Ready=False Measuring "},
		{engine.State{Phase: engine.PhasePaused, Cause: "an upgrade"},
			"Progressing=False Waiting Paused=True Hindered Degraded=False Healthy Complete=False NotYet " +
				"Reconciling=False Hindered Stalled=True Hindered Ready=False Hindered "},
		{engine.State{Phase: engine.PhaseNeedsPerson, Cause: "x"},
			"Progressing=False Waiting Paused=False NotPaused Degraded=True NeedsPerson Complete=False NotYet " +
				"Reconciling=False NeedsPerson Stalled=True NeedsPerson Ready=False NeedsPerson "},
	} {
		told, over := ended(test.state, "do this")
		got, _ := told.onto(second, noon)
		if !over || !strings.HasSuffix(status(got), test.want) {
			t.Errorf("%s: %t, %s", test.state.Phase, over, status(got))
		}
	}
	if _, over := ended(state, ""); over {
		t.Error("a running migration has ended")
	}
	long, _ := Conditions{Degraded: yes("X", strings.Repeat("é", maxMessage))}.onto(nil, noon)
	if got := long[3].Message; len(got) > maxMessage || !strings.HasSuffix(got, "é") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestPick: a migration that has begun comes first, then the oldest.
func TestPick(t *testing.T) {
	at := func(minute int, phase engine.Phase) v1alpha1.Migration {
		return v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(
			noon.Add(time.Duration(minute) * time.Minute))},
			Status: v1alpha1.MigrationStatus{Phase: string(phase)}}
	}
	for _, test := range []struct {
		all  []v1alpha1.Migration
		want int
	}{
		{nil, -1},
		{[]v1alpha1.Migration{at(2, ""), at(1, ""), at(3, "")}, 1},
		{[]v1alpha1.Migration{at(1, ""), at(2, engine.PhaseRunning), at(3, engine.PhaseRunning)}, 1},
	} {
		if got := pick(test.all); got != test.want {
			t.Errorf("%d, want %d", got, test.want)
		}
	}
	if pauseAfter(1) != 10*time.Second || pauseAfter(3) != 40*time.Second || pauseAfter(50) != time.Minute {
		t.Error(pauseAfter(1), pauseAfter(3), pauseAfter(50))
	}
}

// TestOldCRDs: without the kind Approval, nothing begins, whatever was approved before, and the condition has the fix.
func TestOldCRDs(t *testing.T) {
	s := Situation{Migration: migration(), Needed: 1, Policy: Policy{Since: noon}, Now: noon, OldCRDs: true}
	d := Decide(s)
	if c := d.Conditions.Approved; d.Do != Tell || c.True || c.Reason != v1alpha1.ReasonOldCRDs ||
		!strings.Contains(c.Message, "upgrade the chart") {
		t.Errorf("%+v", d)
	}
	s.OldCRDs = false
	if c := Decide(s).Conditions.Approved; c.Reason != v1alpha1.ReasonTooFewApprovals {
		t.Errorf("%+v", c)
	}
}
