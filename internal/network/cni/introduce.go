package cni

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Introducer is a driver of a network whose agents learn about pods from objects: an identity for each set of labels,
// and an endpoint for each pod. While there are two networks, a program of Theseus writes them for the pods of the
// other one.
type Introducer interface {
	// Rights are what the program may do, in addition to reading pods and namespaces.
	Rights() []rbacv1.PolicyRule
	// Known are the resources of identities, which have no namespace, and of endpoints, which have a pod's name and
	// namespace.
	Known() (identities, endpoints schema.GroupVersionResource)
	// Numbers are the first and the last number that an identity may have.
	Numbers() (first, last int)
	// Identify returns the labels by which policies select a pod, given the labels of its namespace.
	Identify(pod *corev1.Pod, namespace map[string]string) map[string]string
	// Labels are those of an identity.
	Labels(identity *unstructured.Unstructured) map[string]string
	// Identity makes an identity of labels that Identify has returned; its name is its number.
	Identity(number int, labels map[string]string) *unstructured.Unstructured
	// Endpoint makes the endpoint of a pod with an identity. What it says of the pod is in its status, which is no
	// subresource.
	Endpoint(pod *corev1.Pod, number int, labels map[string]string) *unstructured.Unstructured
}
