package journal

import (
	"context"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

var selfResource = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1",
	Resource: "selfsubjectreviews"}

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

// request asks for a desired state of a Migration, in the name of the client's user (manifest.AskedPolicy). again also
// hands it over to the controller, which tries again.
func request(ctx context.Context, client dynamic.Interface, name string, desire v1alpha1.Desire, again bool) error {
	migration, err := get(ctx, client, name)
	if err != nil {
		return err
	}
	spec := map[string]any{"desire": string(desire)}
	if desire == v1alpha1.DesireRun {
		spec["desire"] = nil // it is kept as no field, so an equal one does not make another generation
	}
	if again {
		spec["inCluster"], spec["attempt"] = true, migration.Spec.Attempt+1
	}
	generation := migration.Generation // that the spec will have
	if again || desire != migration.Spec.Desire {
		generation++
	}
	set := func(by any) error {
		return patch(ctx, client, migrationResource, name, map[string]any{"spec": spec,
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationAsked: by}}})
	}
	if user := self(ctx, client); user != "" {
		if err = set(manifest.Asked(generation, user)); !apierrors.IsForbidden(err) {
			return err
		}
	}
	// another request was faster, and the spec gets another generation: what is asked for matters more than the name
	return set(nil)
}

// AskedBy is the user who asked for a Migration's spec as it is; empty if that is not known.
func AskedBy(m *v1alpha1.Migration) string {
	generation, user, _ := strings.Cut(m.Annotations[v1alpha1.AnnotationAsked], " ")
	if generation != strconv.FormatInt(m.Generation, 10) {
		return "" // it is about an earlier spec
	}
	return user
}
