package verify

import (
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// AgentRef is the DaemonSet of Theseus' agents.
func AgentRef() step.Ref {
	return step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: v1alpha1.Namespace, Name: manifest.AgentName}
}

// Ours reports whether an object is part of Theseus itself.
func Ours(ref step.Ref) bool {
	switch {
	case ref.Namespace == v1alpha1.Namespace:
		return true
	case ref.Kind == "Namespace":
		return ref.Name == v1alpha1.Namespace
	case ref.Kind == "CustomResourceDefinition":
		return strings.HasSuffix(ref.Name, "."+v1alpha1.Group)
	}
	// Agents of plans that an older Theseus made have a ClusterRole.
	return ref.Name == manifest.AgentName && (IsAdmission(ref) || ref.Kind == "ClusterRole" ||
		ref.Kind == "ClusterRoleBinding")
}

// IsAdmission reports whether an object decides which requests the API server admits.
func IsAdmission(ref step.Ref) bool {
	return ref.Kind == "ValidatingAdmissionPolicy" || ref.Kind == "ValidatingAdmissionPolicyBinding"
}

// Kept are the objects that stay after everything: the journal's, and the namespace that it is in.
func Kept() []step.Ref {
	refs := []step.Ref{{APIVersion: "v1", Kind: "Namespace", Name: v1alpha1.Namespace}}
	for _, name := range manifest.Kept() {
		refs = append(refs,
			step.Ref{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: name})
	}
	return refs
}

// Foreign says whether an action is about something that is not Theseus' own.
func Foreign(a *step.Action) bool {
	ref := a.Ref()
	return ref != (step.Ref{}) && !Ours(ref)
}
