// Package kubetest makes clients for tests with a real API server (clustertest.ControlPlane). Servers belong into
// clustertest.
package kubetest

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// Users returns a function that makes a client of the user with a token. The token of clustertest's administrator is
// "token".
func Users(t testing.TB, config *rest.Config) func(token string) *kube.Client {
	return func(token string) *kube.Client {
		t.Helper()
		config := rest.CopyConfig(config)
		config.BearerToken = token
		client, err := kube.New(config, "test")
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}

// Apply applies objects, each as soon as its kind is served: a new definition takes the API server a moment.
func Apply(t testing.TB, client *kube.Client, objects ...unstructured.Unstructured) {
	t.Helper()
	for i := range objects {
		object := &objects[i]
		gvk := object.GroupVersionKind()
		mapping, err := client.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
			time.Sleep(200 * time.Millisecond)
			client.Mapper.Reset()
			mapping, err = client.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		if err == nil {
			_, err = client.Dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()).Apply(t.Context(),
				object.GetName(), object, metav1.ApplyOptions{FieldManager: "test", Force: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
