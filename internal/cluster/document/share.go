package document

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sharer lets consecutive objects share equal maps, which saves memory: lists contain the pods of a workload one after
// another, and a map of two resource quantities needs 700 bytes. Sharing is safe because a snapshot is immutable.
type sharer struct {
	labels     map[string]string
	containers []corev1.Container
}

func (s *sharer) share(o metav1.Object) {
	if labels := o.GetLabels(); same(s.labels, labels) {
		o.SetLabels(s.labels)
	} else {
		s.labels = labels
	}
	var spec *corev1.PodSpec
	switch o := o.(type) {
	case *corev1.Pod:
		spec = &o.Spec
	case *appsv1.ReplicaSet: // the ReplicaSets of one Deployment
		spec = &o.Spec.Template.Spec
	default:
		return
	}
	for i := range min(len(spec.Containers), len(s.containers)) {
		shareResources(&spec.Containers[i].Resources, s.containers[i].Resources)
	}
	s.containers = spec.Containers
}

func shareResources(own *corev1.ResourceRequirements, before corev1.ResourceRequirements) {
	if same(own.Requests, before.Requests) {
		own.Requests = before.Requests
	}
	if same(own.Limits, before.Limits) {
		own.Limits = before.Limits
	}
}

// same reports whether two maps are equal; a nil map and an empty map are different.
func same[M ~map[K]V, K, V comparable](a, b M) bool {
	return (a == nil) == (b == nil) && maps.Equal(a, b)
}
