package kube

import (
	"cmp"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

func benchNode(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func benchPod(name, id, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace, UID: "uid-of-x",
		Labels: map[string]string{manifest.LabelBench: "near", manifest.LabelBenchID: id}},
		Spec: corev1.PodSpec{NodeName: node}}
}

// TestRemoveBench: an API server that is away in the middle is asked again; other benchmarks' pods stay, and those of a
// lost node are deleted without its kubelet. Pods are deleted as those that were listed.
func TestRemoveBench(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: manifest.BenchName, Namespace: v1alpha1.Namespace,
		Labels: map[string]string{manifest.LabelBench: "service", manifest.LabelBenchID: "mine"}}}
	client := fake.NewClientset(benchNode("a", corev1.ConditionTrue), benchNode("b", corev1.ConditionUnknown),
		benchPod("near", "mine", "a"), benchPod("far", "mine", "b"), benchPod("other", "another", "a"), service)
	away, graces := 3, map[string]int64{}
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if away--; away >= 0 {
			return true, nil, syscall.ECONNREFUSED // no process accepts connections
		}
		one := action.(clienttesting.DeleteAction)
		if p := one.GetDeleteOptions().Preconditions; p == nil || p.UID == nil || *p.UID != "uid-of-x" {
			t.Errorf("%s is deleted whichever it is: %+v", one.GetName(), p)
		}
		graces[one.GetName()] = *one.GetDeleteOptions().GracePeriodSeconds
		return false, nil, nil
	})
	noted := 0
	n, err := (&Client{Typed: client}).RemoveBench(t.Context(), manifest.LabelBenchID+"=mine",
		time.Minute, func(error) { noted++ })
	if n != 2 || err != nil || noted == 0 || graces["near"] != 1 || graces["far"] != 0 {
		t.Errorf("%d removed, %v, noted %d times, %v", n, err, noted, graces)
	}
	pods, _ := client.CoreV1().Pods(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	services, _ := client.CoreV1().Services(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	if len(pods.Items) != 1 || pods.Items[0].Name != "other" || len(services.Items) != 0 {
		t.Errorf("left: %v, %v", pods.Items, services.Items)
	}
}

// TestRemoveBenchPolicies: policies are deleted one by one, as those that were listed, and those of other benchmarks
// stay; no more rights are used than a migration's. Who may not list them, or not delete them, learns that.
func TestRemoveBenchPolicies(t *testing.T) {
	policy := func(name, id string) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace,
			UID: "uid-of-x", Labels: map[string]string{manifest.LabelBench: "policy", manifest.LabelBenchID: id}}}
	}
	forbid := func(client *fake.Clientset, verb string) {
		client.PrependReactor(verb, "networkpolicies",
			func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(networkingv1.Resource("networkpolicies"), "", errors.New(verb))
			})
	}
	for _, verb := range []string{"", "list", "delete"} {
		client := fake.NewClientset(policy("rules-0", "mine"), policy("admit", "mine"), policy("other", "another"))
		client.PrependReactor("delete", "networkpolicies",
			func(action clienttesting.Action) (bool, runtime.Object, error) {
				one := action.(clienttesting.DeleteAction)
				if p := one.GetDeleteOptions().Preconditions; p == nil || p.UID == nil || *p.UID != "uid-of-x" {
					t.Errorf("%s is deleted whichever it is: %+v", one.GetName(), p)
				}
				return false, nil, nil
			})
		forbid(client, "delete-collection")
		forbid(client, cmp.Or(verb, "none"))
		err := (&Client{Typed: client}).RemoveBenchPolicies(t.Context(), manifest.LabelBenchID+"=mine",
			time.Minute, nil)
		if verb != "" {
			if !apierrors.IsForbidden(err) {
				t.Errorf("without the right to %s: %v", verb, err)
			}
			continue
		}
		left, _ := client.NetworkingV1().NetworkPolicies(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 1 || left.Items[0].Name != "other" {
			t.Errorf("%v, left: %v", err, left.Items)
		}
	}
}

// TestRemoveBenchEnds: a pod that does not go is named, in a bounded time.
func TestRemoveBenchEnds(t *testing.T) {
	client := fake.NewClientset(benchNode("a", corev1.ConditionTrue), benchPod("near", "mine", "a"))
	client.PrependReactor("delete", "pods",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	if _, err := (&Client{Typed: client}).RemoveBench(t.Context(), manifest.LabelBench, time.Second, nil); err == nil ||
		!strings.Contains(err.Error(), "pod near") {
		t.Error(err)
	}
}

// TestLeftover: the namespace that a killed process made is taken back by the next one, unless something was deployed
// there since, or another client made it.
func TestLeftover(t *testing.T) {
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: manifest.ControllerName,
		Namespace: v1alpha1.Namespace}}
	for name, c := range map[string]struct {
		client *fake.Clientset
		object *unstructured.Unstructured
		want   bool
	}{
		"left":     {fake.NewClientset(), manifest.NamespaceForNow(), true},
		"deployed": {fake.NewClientset(controller), manifest.NamespaceForNow(), false},
		"others'":  {fake.NewClientset(), manifest.Namespace(), false},
	} {
		if got := (&Actor{Typed: c.client}).leftover(t.Context(),
			step.Action{Do: step.Apply{Object: c.object}}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
