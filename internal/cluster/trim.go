package cluster

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// SystemNamespaces are those that networks live in: their ConfigMaps are read, and the values of
// environment variables kept.
func SystemNamespaces() []string {
	return []string{"kube-system", "kube-flannel", "calico-system", "tigera-operator", "kube-public"}
}

// IsSystemNamespace reports whether a namespace is one of SystemNamespaces.
func IsSystemNamespace(name string) bool { return slices.Contains(SystemNamespaces(), name) }

// lastApplied repeats the whole object, environment variables included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Trim ends the making of a snapshot: it drops what nobody needs and what a file that goes around should
// not hold (values of environment variables outside of the system's namespaces), finds the cluster's UID,
// and brings Other into a stable order.
func Trim(s *Snapshot) {
	trim(s.Nodes, nil)
	trim(s.Namespaces, nil)
	trim(s.Services, nil)
	trim(s.ConfigMaps, nil)
	trim(s.Budgets, nil)
	trim(s.NetworkPolicies, nil)
	trim(s.DaemonSets, nil) // networks live here, in whatever namespace
	trim(s.Pods, func(o *corev1.Pod) *corev1.PodSpec { return &o.Spec })
	trim(s.Deployments, func(o *appsv1.Deployment) *corev1.PodSpec { return &o.Spec.Template.Spec })
	trim(s.ReplicaSets, func(o *appsv1.ReplicaSet) *corev1.PodSpec { return &o.Spec.Template.Spec })
	trim(s.StatefulSets, func(o *appsv1.StatefulSet) *corev1.PodSpec { return &o.Spec.Template.Spec })
	trim(s.Jobs, func(o *batchv1.Job) *corev1.PodSpec { return &o.Spec.Template.Spec })
	for i := range s.Other {
		trimMeta(&s.Other[i])
	}
	slices.SortStableFunc(s.Other, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetAPIVersion(), b.GetAPIVersion()), cmp.Compare(a.GetKind(), b.GetKind()),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for i := range s.Namespaces {
		if s.Namespaces[i].Name == metav1.NamespaceSystem && s.Namespaces[i].UID != "" {
			s.UID = string(s.Namespaces[i].UID)
		}
	}
}

// object is the pointer to a T that is an API object.
type object[T any] interface {
	*T
	metav1.Object
}

// trim drops what is not needed from each object; spec finds its pods' template where it has one.
func trim[T any, P object[T]](objects []T, spec func(P) *corev1.PodSpec) {
	for i := range objects {
		o := P(&objects[i])
		trimMeta(o)
		if spec != nil && !IsSystemNamespace(o.GetNamespace()) {
			dropValues(spec(o).InitContainers)
			dropValues(spec(o).Containers)
		}
	}
}

func trimMeta(o metav1.Object) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	if _, ok := annotations[lastApplied]; ok {
		delete(annotations, lastApplied)
		o.SetAnnotations(annotations)
	}
}

// dropValues forgets the values of environment variables and keeps their names.
func dropValues(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Env {
			containers[i].Env[j].Value = ""
		}
	}
}
