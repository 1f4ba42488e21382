package incluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Line is a condition on one line.
func Line(c metav1.Condition) string {
	return fmt.Sprintf("%s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
}

// Tells reports whether a condition says more than the journal does: who has to approve, what a run waits for, and why it
// does not go on.
func Tells(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionApproved:
		return true
	case v1alpha1.ConditionDegraded:
		return c.Status == metav1.ConditionTrue
	case v1alpha1.ConditionPaused:
		return c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonAsked
	case v1alpha1.ConditionProgressing:
		return c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonEnded
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

// GivenUp is the condition Degraded of a migration that the controller does not continue by itself, as its spec is now; nil
// if it does. The controller looks for missing rights again and again.
func GivenUp(migration *v1alpha1.Migration) *metav1.Condition {
	observed := migration.Status.Observed
	if !migration.Spec.InCluster || observed == nil || observed.Attempt != migration.Spec.Attempt || observed.Desire != migration.Spec.Desire {
		return nil
	}
	degraded := meta.FindStatusCondition(migration.Status.Conditions, v1alpha1.ConditionDegraded)
	if degraded == nil || degraded.Status != metav1.ConditionTrue || degraded.Reason == v1alpha1.ReasonRightsMissing {
		return nil
	}
	return degraded
}
