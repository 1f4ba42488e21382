package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// notice is an event that says the same as a condition, which has what to do about it.
type notice struct{ kind, reason, message string }

// unable are the reasons for which no approval counts, or not the ones that there are. A plan that merely waits for its
// approval is no news.
var unable = []string{v1alpha1.ReasonOldCRDs, v1alpha1.ReasonPolicyMissing, v1alpha1.ReasonPolicyChanged,
	v1alpha1.ReasonUnsigned, v1alpha1.ReasonSignersMissing, v1alpha1.ReasonSignersInvalid}

// notices are the events for conditions that have another reason than before: why a migration does not go on, and that
// it was undone. So a problem that lasts is told once, although each try writes its condition again.
func notices(before, after []metav1.Condition) []notice {
	var all []notice
	for i := range after {
		c := &after[i]
		old := meta.FindStatusCondition(before, c.Type)
		if old != nil && old.Status == c.Status && old.Reason == c.Reason {
			continue
		}
		switch {
		case c.Type == v1alpha1.ConditionDegraded && c.Status == metav1.ConditionTrue,
			c.Type == v1alpha1.ConditionApproved && slices.Contains(unable, c.Reason),
			c.Type == v1alpha1.ConditionComplete && c.Reason == v1alpha1.ReasonRolledBack:
			all = append(all, notice{corev1.EventTypeWarning, c.Reason, c.Message})
		case c.Type == v1alpha1.ConditionComplete && c.Reason == v1alpha1.ReasonStopped:
			all = append(all, notice{corev1.EventTypeNormal, c.Reason, c.Message})
		}
	}
	return all
}
