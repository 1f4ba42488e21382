package journal

import (
	"context"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// server is client-go's fake with what it lacks: every write makes a new resourceVersion, and an update over
// an older one is a conflict. A call can be made to fail, before its effect or after it. There are no schemas,
// no admission and no pages of lists; the lab's tests have those.
type server struct {
	dynamic.Interface
	version int
	fail    error // of one write, once skip others went through
	skip    int
	lost    bool                                   // the failing write has its effect
	prune   bool                                   // a definition of an older version is in force
	got     func(kind schema.GroupVersionResource) // is called after an object was read; nil for nothing
}

func newServer() *server {
	return &server{Interface: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{migrationResource: "MigrationList", planPageResource: "PlanPageList",
			pageResource: "JournalPageList", approvalResource: "ApprovalList"})}
}

// Resource implements dynamic.Interface.
func (s *server) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return resource{s.Interface.Resource(r), s, r}
}

type resource struct {
	dynamic.NamespaceableResourceInterface
	server *server
	name   schema.GroupVersionResource
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (r resource) Namespace(ns string) dynamic.ResourceInterface {
	return namespaced{r.NamespaceableResourceInterface.Namespace(ns), r.server, r.name}
}

type namespaced struct {
	dynamic.ResourceInterface
	server *server
	name   schema.GroupVersionResource
}

// failing is the error of this write, if it is to fail.
func (s *server) failing() error {
	if s.fail == nil {
		return nil
	}
	if s.skip > 0 {
		s.skip--
		return nil
	}
	fail := s.fail
	s.fail = nil
	return fail
}

// write stamps an object with the next version and stores it, failing where it shall.
func (n namespaced) write(o *unstructured.Unstructured,
	store func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	fail := n.server.failing()
	if fail != nil && !n.server.lost {
		return nil, fail
	}
	n.server.version++
	o = o.DeepCopy()
	o.SetResourceVersion(strconv.Itoa(n.server.version))
	stored, err := store(o)
	if err == nil && fail != nil {
		return nil, fail
	}
	return stored, err
}

// Create implements dynamic.ResourceInterface.
func (n namespaced) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions,
	sub ...string) (*unstructured.Unstructured, error) {
	return n.write(o, func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if n.server.prune {
			unstructured.RemoveNestedField(o.Object, "spec", "planPages")
			unstructured.RemoveNestedField(o.Object, "spec", "planDigest")
		}
		return n.ResourceInterface.Create(ctx, o, options, sub...)
	})
}

// Get implements dynamic.ResourceInterface.
func (n namespaced) Get(ctx context.Context, name string, options metav1.GetOptions,
	sub ...string) (*unstructured.Unstructured, error) {
	o, err := n.ResourceInterface.Get(ctx, name, options, sub...)
	if n.server.got != nil {
		n.server.got(n.name)
	}
	return o, err
}

// Update implements dynamic.ResourceInterface.
func (n namespaced) Update(ctx context.Context, o *unstructured.Unstructured, options metav1.UpdateOptions,
	sub ...string) (*unstructured.Unstructured, error) {
	stored, err := n.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if stored.GetResourceVersion() != o.GetResourceVersion() {
		return nil, apierrors.NewConflict(n.name.GroupResource(), o.GetName(), nil)
	}
	return n.write(o, func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return n.ResourceInterface.Update(ctx, o, options, sub...)
	})
}

// Delete implements dynamic.ResourceInterface.
func (n namespaced) Delete(ctx context.Context, name string, options metav1.DeleteOptions, sub ...string) error {
	fail := n.server.failing()
	if fail != nil && !n.server.lost {
		return fail
	}
	return errors.Join(n.ResourceInterface.Delete(ctx, name, options, sub...), fail)
}

// Patch implements dynamic.ResourceInterface.
func (n namespaced) Patch(ctx context.Context, name string, kind types.PatchType, data []byte,
	options metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	old, err := n.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	patched, err := n.ResourceInterface.Patch(ctx, name, kind, data, options, sub...)
	if err != nil {
		return nil, err
	}
	if n.server.fail != nil && n.server.skip == 0 && !n.server.lost {
		if _, err := n.ResourceInterface.Update(ctx, old, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
	}
	return n.write(patched, func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return n.ResourceInterface.Update(ctx, o, metav1.UpdateOptions{})
	})
}
