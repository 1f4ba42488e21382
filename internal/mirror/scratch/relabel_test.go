package scratch

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// TestRenew: one pod of each workload is evicted. A workload whose eviction is denied, for whatever reason, and a
// single pod are named, and the others are evicted all the same; a pod that has gone is replaced anyway.
func TestRenew(t *testing.T) {
	defer func(old outage.Limits) { patience = old }(patience)
	patience.Away = time.Second
	pod := func(name, owner string) *corev1.Pod {
		one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
		if owner != "" {
			one.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: owner, Controller: new(true)}}
		}
		return one
	}
	typed := fake.NewClientset(pod("budget-0", "budget"), pod("gone-0", "gone"), pod("single", ""),
		pod("two-0", "two"), pod("web-0", "web"), pod("web-1", "web"), pod("other-0", "other"))
	var evicted []string
	typed.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		switch name {
		case "budget-0":
			return true, nil, apierrors.NewTooManyRequests("it would violate the budget", 10)
		case "two-0":
			return true, nil, apierrors.NewGenericServerResponse(500, "create", schema.GroupResource{}, name,
				"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
				0, false)
		case "gone-0":
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		}
		evicted = append(evicted, name)
		return true, nil, nil
	})
	var said []string
	s := &Scratch{Client: &kube.Client{Typed: typed}, Note: func(text string) { said = append(said, text) }}
	n, kept, err := s.Renew(t.Context(), map[string]bool{"StatefulSet shop/budget": true, "StatefulSet shop/gone": true,
		"Pod shop/single": true, "StatefulSet shop/two": true, "StatefulSet shop/web": true})
	if err != nil || n != 1 || !slices.Equal(evicted, []string{"web-0"}) ||
		!slices.Equal(kept, []string{"Pod shop/single", "StatefulSet shop/budget", "StatefulSet shop/two"}) {
		t.Errorf("%v: %d, evicted %v, kept %v", err, n, evicted, kept)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "Pod shop/two-0 is not evicted: ") {
		t.Errorf("said %s", text)
	}
}
