package incluster

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Line is a condition on one line.
func Line(c metav1.Condition) string {
	return fmt.Sprintf("%s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
}

// Tells reports whether a condition says more than the journal does: who has to approve, what a run waits for, and why
// it does not go on.
func Tells(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionApproved:
		return true
	case v1alpha1.ConditionDegraded:
		return c.Status == metav1.ConditionTrue
	case v1alpha1.ConditionPaused:
		return c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonAsked
	case v1alpha1.ConditionProgressing:
		// the condition Paused says until when
		paused := c.Reason == v1alpha1.ReasonOutsideWindow || c.Reason == v1alpha1.ReasonFrozen
		if c.Status == metav1.ConditionTrue { // a run that waits for pods which do not start says so
			return c.Reason != v1alpha1.ReasonRunning && c.Reason != v1alpha1.ReasonRollingBack
		}
		return c.Reason != v1alpha1.ReasonEnded && !paused
	}
	return false
}

// Waits are the conditions that say what a migration waits for, one on a line.
func Waits(migration *v1alpha1.Migration) []string {
	var lines []string
	for _, c := range migration.Status.Conditions {
		if Tells(c) && !(c.Type == v1alpha1.ConditionApproved && c.Status == metav1.ConditionTrue) {
			lines = append(lines, Line(c))
		}
	}
	return lines
}

// Obstacle is the condition Degraded of a migration that the controller does not run as it is; nil if it does, or if
// only permissions are missing. Before the first record of a journal, the controller looks again by itself, at least
// once a minute; after it, only once a person has asked for something.
func Obstacle(migration *v1alpha1.Migration) *metav1.Condition {
	degraded := meta.FindStatusCondition(migration.Status.Conditions, v1alpha1.ConditionDegraded)
	if !migration.Spec.InCluster || degraded == nil || degraded.Status != metav1.ConditionTrue ||
		degraded.Reason == v1alpha1.ReasonRightsMissing {
		return nil
	}
	observed := v1alpha1.Observed{Attempt: migration.Spec.Attempt, Desire: migration.Spec.Desire}
	if seen := migration.Status.Observed; degraded.Reason == v1alpha1.ReasonNeedsPerson &&
		(seen == nil || *seen != observed) {
		return nil // the condition is about an earlier attempt
	}
	return degraded
}

// Unapproved is the condition that says which approvals of a migration are missing; nil if none are, or if the
// controller has not looked yet.
func Unapproved(migration *v1alpha1.Migration) *metav1.Condition {
	if c := meta.FindStatusCondition(migration.Status.Conditions, v1alpha1.ConditionApproved); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

// ApprovedWith is the command that approves a migration where the controller says that only signed approvals count; ""
// where it does not. A controller of an earlier release never does.
func ApprovedWith(migration *v1alpha1.Migration) string {
	if counts := migration.Status.Approval; counts == nil || !counts.SignedOnly {
		return ""
	}
	return "theseus approve " + migration.Name + " --plan FILE " + journal.SignsWith
}

// Able returns why the controller cannot act on a migration that it has, such as approvals that are missing; nil if it
// can, also if it waits for a person to ask for something.
func Able(migration *v1alpha1.Migration) error {
	if lacks := Unapproved(migration); lacks != nil {
		return errors.New(Line(*lacks))
	}
	c := meta.FindStatusCondition(migration.Status.Conditions, v1alpha1.ConditionDegraded)
	if c != nil && c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonNeedsPerson {
		return errors.New(Line(*c))
	}
	return nil
}
