package kube

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TestFenced: a client whose process has lost the lock reads, and changes nothing more, also in the middle of an
// action.
func TestFenced(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a"}}`))
	}))
	defer server.Close()
	open, err := New(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the lock was lost")
	var check error
	client, err := open.Fenced(func(context.Context) error { return check })
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]func() error{
		"GET": func() error {
			_, err := client.Typed.CoreV1().Namespaces().Get(t.Context(), "a", metav1.GetOptions{})
			return err
		},
		"POST": func() error {
			_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{}, metav1.CreateOptions{})
			return err
		},
		"PUT": func() error {
			_, err := client.Typed.CoreV1().Namespaces().Update(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
			return err
		},
		"PATCH": func() error {
			_, err := client.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Patch(t.Context(),
				"a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"DELETE": func() error {
			return client.Typed.CoreV1().Namespaces().Delete(t.Context(), "a", metav1.DeleteOptions{})
		},
	}
	for _, check = range []error{nil, lost} {
		for method, call := range all {
			seen = nil
			err := call()
			if refused := check != nil && method != "GET"; refused != errors.Is(err, lost) ||
				refused == slices.Contains(seen, method) {
				t.Errorf("%s, and the check says %v: the server saw %q; %v", method, check, seen, err)
			}
		}
	}
}
