package cluster

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/owner"
)

// SystemNamespaces are the namespaces in which networks run: snapshots contain their ConfigMaps and the values of their
// environment variables.
func SystemNamespaces() []string {
	return []string{"kube-system", "kube-flannel", "calico-system", "tigera-operator", "kube-public"}
}

// IsSystemNamespace reports whether a namespace is one of SystemNamespaces.
func IsSystemNamespace(name string) bool { return slices.Contains(SystemNamespaces(), name) }

// lastApplied repeats the whole object, environment variables included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// copies are annotations that contain a copy of a whole object.
func copies() []string {
	return []string{lastApplied, "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied"}
}

// Trim finishes a snapshot: it trims every object, finds the cluster's UID, and sorts Other.
func Trim(s *Snapshot) {
	trim(s.Nodes)
	trim(s.Namespaces)
	trim(s.Services)
	trim(s.ConfigMaps)
	trim(s.Budgets)
	trim(s.NetworkPolicies)
	trim(s.DaemonSets)
	trim(s.Pods)
	trim(s.Deployments)
	trim(s.ReplicaSets)
	trim(s.StatefulSets)
	trim(s.Jobs)
	for i := range s.Other {
		trimMeta(&s.Other[i])
		owner.Trim(&s.Other[i])
		Redact(s.Other[i].Object)
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

// object is a pointer to a T that implements metav1.Object.
type object[T any] interface {
	*T
	metav1.Object
}

func trim[T any, P object[T]](objects []T) {
	for i := range objects {
		TrimObject(P(&objects[i]))
	}
}

// TrimObject removes fields that no check or plan needs, and data that should not be in a file that people pass on
// (secrets, and values of environment variables outside of system namespaces). It also frees the unused capacity of the
// longest lists: a decoder allocates each list for four elements, and a container needs 900 bytes.
func TrimObject(o metav1.Object) {
	trimMeta(o)
	var spec *corev1.PodSpec
	switch o := o.(type) {
	case *appsv1.DaemonSet: // networks run as DaemonSets, in any namespace
		redactContainers(o.Spec.Template.Spec.InitContainers)
		redactContainers(o.Spec.Template.Spec.Containers)
		return
	case *corev1.ConfigMap:
		for key, value := range o.Data {
			o.Data[key] = redactText(key, value)
		}
		return
	case *corev1.Pod:
		spec = &o.Spec
		fit(&o.OwnerReferences)
		fit(&o.Status.Conditions)
		fit(&o.Status.ContainerStatuses)
		fit(&o.Status.InitContainerStatuses)
		fit(&o.Status.PodIPs)
		fit(&o.Status.HostIPs)
	case *appsv1.Deployment:
		spec = &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		spec = &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		spec = &o.Spec.Template.Spec
	case *batchv1.Job:
		spec = &o.Spec.Template.Spec
	default:
		return
	}
	for _, containers := range []*[]corev1.Container{&spec.InitContainers, &spec.Containers} {
		if !IsSystemNamespace(o.GetNamespace()) {
			dropValues(*containers)
		}
		redactContainers(*containers)
		fit(containers)
		for i := range *containers {
			fit(&(*containers)[i].Env)
			fit(&(*containers)[i].Ports)
			fit(&(*containers)[i].VolumeMounts)
		}
	}
	fit(&spec.Volumes)
	fit(&spec.Tolerations)
}

// fit clips the capacity of a list to its length.
func fit[T any](list *[]T) {
	if cap(*list) > len(*list) {
		*list = append(make([]T, 0, len(*list)), *list...)
	}
}

// TrimMetadata is for objects in Snapshot.Written: of managedFields it keeps who wrote and when.
func TrimMetadata(o metav1.Object) {
	managers := o.GetManagedFields()
	trimMeta(o)
	for i := range managers {
		managers[i].FieldsV1 = nil
	}
	o.SetManagedFields(managers)
}

func trimMeta(o metav1.Object) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	had := len(annotations)
	for _, whole := range copies() {
		delete(annotations, whole)
	}
	if len(annotations) < had {
		o.SetAnnotations(annotations)
	}
}

// dropValues removes the values of environment variables and keeps their names.
func dropValues(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Env {
			containers[i].Env[j].Value = ""
		}
	}
}
