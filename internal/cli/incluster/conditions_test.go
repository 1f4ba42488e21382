package incluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func condition(kind string, is metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: is, Reason: reason, Message: "message of " + reason}
}

// TestWaits: a person sees what a migration waits for, and nothing that the journal says already.
func TestWaits(t *testing.T) {
	all := []metav1.Condition{
		condition(v1alpha1.ConditionApproved, metav1.ConditionTrue, v1alpha1.ReasonEnoughApprovals),
		condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRunning),
		condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonAsked),
		condition(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonHealthy),
		condition(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonNotYet),
	}
	migration := &v1alpha1.Migration{Status: v1alpha1.MigrationStatus{Conditions: all}}
	if lines := Waits(migration); len(lines) > 0 {
		t.Errorf("a run that needs no one waits for %q", lines)
	}
	migration.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionApproved, metav1.ConditionFalse, v1alpha1.ReasonTooFewApprovals),
		condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonHeldByAnother),
		condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonHindered),
		condition(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonRightsMissing),
	}
	pulls := &v1alpha1.Migration{Status: v1alpha1.MigrationStatus{Conditions: []metav1.Condition{
		condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonImageUnavailable)}}}
	if lines := Waits(pulls); len(lines) != 1 || !strings.Contains(lines[0], "message of ImageUnavailable") {
		t.Errorf("a run that waits for an image says %q", lines)
	}
	want := "Approved=False (TooFewApprovals): message of TooFewApprovals\n" +
		"Progressing=False (HeldByAnother): message of HeldByAnother\n" +
		"Paused=True (Hindered): message of Hindered\nDegraded=True (RightsMissing): message of RightsMissing"
	if got := strings.Join(Waits(migration), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestWaitsForWindow: both conditions say that a migration waits for a window, and a person reads when that is, once.
func TestWaitsForWindow(t *testing.T) {
	for _, reason := range []string{v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonFrozen} {
		migration := &v1alpha1.Migration{Status: v1alpha1.MigrationStatus{Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, reason),
			condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, reason)}}}
		if got, want := strings.Join(Waits(migration), "\n"), "Paused=True ("+reason+
			"): message of "+reason; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// TestObstacle: only a verdict about the spec as it is now counts, and missing rights are looked for again.
func TestObstacle(t *testing.T) {
	for name, test := range map[string]struct {
		spec     v1alpha1.MigrationSpec
		observed *v1alpha1.Observed
		reason   string
		want     bool
	}{
		"needs a person": {v1alpha1.MigrationSpec{InCluster: true, Attempt: 1}, &v1alpha1.Observed{Attempt: 1},
			v1alpha1.ReasonNeedsPerson, true},
		"rights are missing": {v1alpha1.MigrationSpec{InCluster: true}, &v1alpha1.Observed{},
			v1alpha1.ReasonRightsMissing, false},
		"an earlier attempt": {v1alpha1.MigrationSpec{InCluster: true, Attempt: 2}, &v1alpha1.Observed{Attempt: 1},
			v1alpha1.ReasonNeedsPerson, false},
		"another desire": {v1alpha1.MigrationSpec{InCluster: true, Desire: v1alpha1.DesireRollback},
			&v1alpha1.Observed{}, v1alpha1.ReasonNeedsPerson, false},
		"not observed":        {v1alpha1.MigrationSpec{InCluster: true}, nil, v1alpha1.ReasonNeedsPerson, false},
		"a laptop has it":     {v1alpha1.MigrationSpec{}, &v1alpha1.Observed{}, v1alpha1.ReasonNeedsPerson, false},
		"the cluster changed": {v1alpha1.MigrationSpec{InCluster: true}, nil, v1alpha1.ReasonStalePlan, true},
	} {
		migration := &v1alpha1.Migration{Spec: test.spec, Status: v1alpha1.MigrationStatus{Observed: test.observed,
			Conditions: []metav1.Condition{condition(v1alpha1.ConditionDegraded, metav1.ConditionTrue, test.reason)}}}
		if got := Obstacle(migration); (got != nil) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSubject: the hint for a user without the right can be pasted.
func TestSubject(t *testing.T) {
	for user, want := range map[string]string{
		"alice": "user:alice", "it's me": `'user:it'\''s me'`,
		"system:serviceaccount:ops:theseus": "serviceaccount:ops/theseus",
	} {
		if got := Subject(user); got != want {
			t.Errorf("%s: %s, not %s", user, got, want)
		}
	}
}

// TestApprovedWith: a user is told to sign only where the controller says so in a field. No text is parsed: a
// controller of an earlier release has said it in a message alone.
func TestApprovedWith(t *testing.T) {
	for name, test := range map[string]struct {
		counts *v1alpha1.ApprovalCount
		want   string
	}{
		"not counted, or an earlier release": {nil, ""},
		"any approval counts":                {&v1alpha1.ApprovalCount{Needed: 1}, ""},
		"signed ones count": {&v1alpha1.ApprovalCount{Needed: 1, SignedOnly: true},
			"theseus approve m --plan FILE --sign KEY"},
	} {
		m := &v1alpha1.Migration{}
		m.Name, m.Status.Approval = "m", test.counts
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonTooFewApprovals, Message: "`theseus approve m --plan FILE --sign KEY` adds one"}}
		if got := ApprovedWith(m); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
