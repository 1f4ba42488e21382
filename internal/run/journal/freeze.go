package journal

import (
	"cmp"
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Freeze is why no step of any migration may begin, as the annotation of Theseus' namespace says; "" if it has none.
func Freeze(ctx context.Context, client dynamic.Interface) (string, error) {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	namespace, err := call(ctx, "reading namespace "+v1alpha1.Namespace,
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return client.Resource(namespaces).Get(ctx, v1alpha1.Namespace, metav1.GetOptions{})
		})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	reason, frozen := namespace.GetAnnotations()[v1alpha1.AnnotationFreeze]
	if !frozen {
		return "", nil
	}
	return cmp.Or(strings.TrimSpace(reason), "no reason is given"), nil
}
