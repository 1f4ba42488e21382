package journal

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

var selfResource = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}

// self is the name of the client's user; empty if the API server does not say it.
func self(ctx context.Context, client dynamic.Interface) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	review, err := client.Resource(selfResource).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": selfResource.GroupVersion().String(), "kind": "SelfSubjectReview"}}, metav1.CreateOptions{})
	if err != nil {
		return "" // what is asked for does not wait for that
	}
	name, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username")
	return name
}

// asking is the change of a Migration with which the client's user asks for a desired state (manifest.AskedPolicy).
func asking(ctx context.Context, client dynamic.Interface, desire v1alpha1.Desire, spec map[string]any) map[string]any {
	var by any // null takes an earlier one away
	if user := self(ctx, client); user != "" {
		by = manifest.Asked(desire, user)
	}
	spec["desire"] = string(desire)
	return map[string]any{"spec": spec, "metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationAsked: by}}}
}

// AskedBy is the user who asked for a Migration's desired state; empty if that is not known.
func AskedBy(m *v1alpha1.Migration) string {
	desire, user, _ := strings.Cut(m.Annotations[v1alpha1.AnnotationAsked], " ")
	if desire != string(cmp.Or(m.Spec.Desire, manifest.AskedRun)) {
		return "" // it is about an earlier state
	}
	return user
}
