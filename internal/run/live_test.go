package run

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetest "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestLive: pods of a node, and workloads with their restarts since a moment, without Theseus' own; a right that is
// missing is an error, and never an empty list.
func TestLive(t *testing.T) {
	begun := time.Date(2026, 3, 14, 2, 10, 0, 0, time.UTC)
	pod := func(namespace, name, node, set string, restarted time.Time) *corev1.Pod {
		one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"pod-template-hash": "77b"}}, Spec: corev1.PodSpec{NodeName: node}}
		if set != "" {
			yes := true
			one.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: set, Controller: &yes}}
		}
		one.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 2,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				FinishedAt: metav1.NewTime(restarted)}}}}
		return one
	}
	typed := fake.NewSimpleClientset(pod("shop", "web-1", "n1", "web-77b", begun.Add(time.Minute)),
		pod("shop", "web-2", "n2", "web-77b", begun.Add(-time.Minute)),
		pod(v1alpha1.Namespace, "agent", "n1", "", begun.Add(time.Minute)), pod("shop", "bare", "n2", "", time.Time{}))
	yes := true
	static := pod("kube-system", "etcd-n1", "n3", "", begun.Add(time.Minute))
	static.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n3", Controller: &yes}}
	if err := typed.Tracker().Add(static); err != nil {
		t.Fatal(err)
	}
	live := Live{Client: &kube.Client{Typed: typed}}
	all, err := live.PodsOn(t.Context(), "n1", begun)
	if err != nil || len(all) != 1 || all[0].Name != "web-1" || all[0].Restarts != 2 {
		t.Errorf("on n1: %+v %v", all, err)
	}
	if all, err = live.PodsOn(t.Context(), "no such node", begun); err != nil || len(all) != 0 {
		t.Errorf("on no node: %+v %v", all, err)
	}
	counts, err := live.Workloads(t.Context(), begun)
	found := map[string][2]int{}
	for _, one := range counts {
		found[one.Kind+" "+one.Namespace+"/"+one.Name] = [2]int{one.Pods, one.RestartsAfter}
	}
	if err != nil || len(found) != 3 || found["Deployment shop/web"] != [2]int{2, 2} ||
		found["Pod shop/bare"] != [2]int{1, 0} || found["Node kube-system/etcd-n1"] != [2]int{1, 2} {
		t.Errorf("workloads %v %v", found, err)
	}
	typed.PrependReactor("list", "pods", func(kubetest.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	})
	if all, err := live.PodsOn(t.Context(), "n1", begun); !apierrors.IsForbidden(err) || all != nil {
		t.Errorf("forbidden: %v %v", all, err)
	}
	if all, err := live.Workloads(t.Context(), begun); !apierrors.IsForbidden(err) || all != nil {
		t.Errorf("forbidden: %v %v", all, err)
	}
}

// TestLivePages: all pods are read page by page. Resource version 0 would make the API server ignore the limit; only
// the pods of one node are asked for with it.
func TestLivePages(t *testing.T) {
	typed := fake.NewSimpleClientset()
	var asked []metav1.ListOptions
	typed.PrependReactor("list", "pods", func(action kubetest.Action) (bool, runtime.Object, error) {
		options := action.(kubetest.ListActionImpl).ListOptions
		asked = append(asked, options)
		page := &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
			Name: "bare-" + options.Continue}, Spec: corev1.PodSpec{NodeName: "n1"}}}}
		if options.Limit > 0 && options.Continue == "" {
			page.Continue = "more"
		}
		return true, page, nil
	})
	live := Live{Client: &kube.Client{Typed: typed}}
	if all, err := live.Workloads(t.Context(), time.Time{}); err != nil || len(all) != 2 {
		t.Errorf("%+v %v", all, err)
	}
	if _, err := live.PodsOn(t.Context(), "n1", time.Time{}); err != nil {
		t.Error(err)
	}
	if len(asked) != 3 || asked[0].Limit != podsAtOnce || asked[0].ResourceVersion != "" ||
		asked[1].Limit != podsAtOnce || asked[1].Continue != "more" || asked[1].ResourceVersion != "" ||
		asked[2].ResourceVersion != "0" {
		t.Errorf("asked %+v", asked)
	}
}
