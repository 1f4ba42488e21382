package kstatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestWaits: a run that waits as planned is Reconciling, also where only a person lets it go on, and the message says
// what it waits for. A run that is paused because of a problem is Stalled.
func TestWaits(t *testing.T) {
	for reason, want := range map[string]string{
		v1alpha1.ReasonWindowEnded:   v1alpha1.ConditionReconciling,
		v1alpha1.ReasonOutsideWindow: v1alpha1.ConditionReconciling,
		v1alpha1.ReasonAsked:         v1alpha1.ConditionReconciling,
		v1alpha1.ReasonFrozen:        v1alpha1.ConditionReconciling,
		v1alpha1.ReasonMeasuring:     v1alpha1.ConditionReconciling,
		v1alpha1.ReasonHindered:      v1alpha1.ConditionStalled,
	} {
		all, _ := Add([]metav1.Condition{
			{Type: v1alpha1.ConditionPaused, Status: metav1.ConditionTrue, Reason: reason, Message: "until later"},
			{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: reason},
		}, metav1.Now())
		for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
			v1alpha1.ConditionReady} {
			one := meta.FindStatusCondition(all, kind)
			if is := one.Status == metav1.ConditionTrue; is != (kind == want) || one.Reason != reason ||
				is && one.Message != "until later" {
				t.Errorf("%s: %+v", reason, one)
			}
		}
	}
}
