package kube

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestObserveByUsers: users with other permissions look at the same cluster, one after another. That one of them may
// not list a kind is no event of its objects.
func TestObserveByUsers(t *testing.T) {
	for name, looks := range map[string][]string{ // what each may not list
		"in between": {"", "daemonsets", "nodes", ""},
		"at first":   {"daemonsets", "daemonsets", ""},
		"no nodes":   {"nodes", "nodes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := typedfake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
				&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "net"}})
			denied := ""
			client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if resource := action.GetResource().Resource; resource == denied {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource},
						"", errors.New("no"))
				}
				return false, nil, nil
			})
			var kept Collected // each look is on another machine
			for i, one := range looks {
				denied = one
				evidence := NewEvidence(kept)
				unseen, err := evidence.Observe(t.Context(), &Client{Typed: client},
					time.Unix(int64(1000*(i+1)), 0), true)
				if err != nil || unseen != one {
					t.Errorf("unseen are %q, %v", unseen, err)
				}
				text, err := json.Marshal(evidence.Document())
				kept = Collected{}
				if err == nil {
					err = json.Unmarshal(text, &kept)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if len(kept.Events) > 0 {
				t.Errorf("nothing has happened, and it says %+v", kept.Events)
			}
			if err := client.AppsV1().DaemonSets("kube-system").Delete(t.Context(), "net",
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			last := NewEvidence(kept)
			if _, err := last.Observe(t.Context(), &Client{Typed: client}, time.Unix(9000, 0), true); err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, event := range last.Document().Events {
				said = append(said, event.Object+" "+event.What)
			}
			if !slices.Equal(said, []string{"DaemonSet kube-system/net was deleted"}) {
				t.Errorf("it says %q", said)
			}
		})
	}
}
