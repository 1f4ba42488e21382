// Package kstatus derives the conditions Reconciling, Stalled and Ready from the other conditions of a Migration or a
// Change. Tools that know nothing of Theseus read them: kstatus (and with it Flux and kpt), and the health script for
// Argo CD in docs/examples. It decides nothing about a run.
package kstatus

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Initial are the conditions of a Migration that the controller has not seen yet.
func Initial(now metav1.Time) []metav1.Condition {
	all, _ := Add(nil, now)
	return all
}

// Add sets the three conditions in a list, and reports whether that changes it.
func Add(all []metav1.Condition, now metav1.Time) ([]metav1.Condition, bool) {
	all = slices.Clone(all)
	holds, reason, message := judge(all)
	changed := false
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionReady} {
		one := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: now}
		if kind == holds {
			one.Status = metav1.ConditionTrue
		}
		if kind == holds || kind == v1alpha1.ConditionReady {
			one.Message = message
		}
		changed = meta.SetStatusCondition(&all, one) || changed
	}
	return all, changed
}

// judge says which of the three conditions is true, and why.
func judge(all []metav1.Condition) (holds, reason, message string) {
	find := func(kind string) metav1.Condition {
		if c := meta.FindStatusCondition(all, kind); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	planned, degraded, paused := find(v1alpha1.ConditionPlanned), find(v1alpha1.ConditionDegraded),
		find(v1alpha1.ConditionPaused)
	complete, progressing := find(v1alpha1.ConditionComplete), find(v1alpha1.ConditionProgressing)
	switch {
	case planned.Status == metav1.ConditionFalse && passing(planned.Reason):
		return v1alpha1.ConditionReconciling, planned.Reason, planned.Message
	case planned.Status == metav1.ConditionFalse:
		return v1alpha1.ConditionStalled, planned.Reason, planned.Message
	case complete.Status == metav1.ConditionTrue:
		return v1alpha1.ConditionReady, complete.Reason, complete.Message
	case complete.Reason == v1alpha1.ReasonRolledBack || complete.Reason == v1alpha1.ReasonStopped:
		return v1alpha1.ConditionStalled, complete.Reason, complete.Message
	case degraded.Status == metav1.ConditionTrue:
		return v1alpha1.ConditionStalled, degraded.Reason, degraded.Message
	case paused.Status == metav1.ConditionTrue && paused.Reason == v1alpha1.ReasonHindered:
		return v1alpha1.ConditionStalled, paused.Reason, paused.Message
	case paused.Status == metav1.ConditionTrue: // the message of Progressing does not say until when
		return v1alpha1.ConditionReconciling, paused.Reason, paused.Message
	case progressing.Reason != "":
		return v1alpha1.ConditionReconciling, progressing.Reason, progressing.Message
	}
	return v1alpha1.ConditionReconciling, v1alpha1.ReasonWaiting, "the controller has not begun"
}

// passing reports whether a Change gets a plan by itself that it does not have for this reason.
func passing(reason string) bool {
	return slices.Contains([]string{v1alpha1.ReasonPlanning, v1alpha1.ReasonStale, v1alpha1.ReasonWaiting,
		v1alpha1.ReasonRetrying}, reason)
}
