package sample

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/policy"
)

// TestChanging: of a network that enforces no policies and one that does, up to a third of the pairs are those that
// the second denies, and all where there are no others. The choice is the same every time.
func TestChanging(t *testing.T) {
	s := &cluster.Snapshot{Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}}
	for i := range 8 {
		name, ip := fmt.Sprintf("p%d", i), fmt.Sprintf("10.9.0.%d", i+1)
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
			Labels: map[string]string{"app": name}}}
		pod.Spec.NodeName = "n"
		pod.Spec.Containers = []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		s.Pods = append(s.Pods, pod)
	}
	shut := func(app string) {
		set := metav1.LabelSelector{}
		if app != "" {
			set.MatchLabels = map[string]string{"app": app}
		}
		s.NetworkPolicies = []networkingv1.NetworkPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shut"},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: set,
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}}
	}
	none := policy.Profile{CNI: "flannel", Dialect: policy.None}
	enforcing := policy.Profile{CNI: "calico", Dialect: policy.Kubernetes}
	for name, c := range map[string]struct {
		app                      string
		before, after            policy.Profile
		allowed, denied, changed int
	}{
		"one is shut":  {"p0", none, enforcing, 6, 0, 3},
		"all are shut": {"", none, enforcing, 0, 0, 9},
		"stays shut":   {"p0", enforcing, enforcing, 5, 4, 0},
		"opens":        {"", enforcing, none, 0, 0, 9},
		"none":         {"p0", none, none, 9, 0, 0},
	} {
		shut(c.app)
		choose := func() []Pair {
			return Pairs(Options{Model: policy.Build(s, c.before, c.after), Pods: s.Pods, Most: 9,
				From: func(*corev1.Pod) bool { return true }, To: func(*corev1.Pod, policy.Port) bool { return true }})
		}
		pairs := choose()
		var allowed, denied, changed int
		for _, one := range pairs {
			switch {
			case one.Denied != one.DeniedAfter:
				changed++
			case one.Denied:
				denied++
			default:
				allowed++
			}
		}
		if allowed != c.allowed || denied != c.denied || changed != c.changed {
			t.Errorf("%s: %d allowed, %d denied, %d changed", name, allowed, denied, changed)
		}
		if again := choose(); fmt.Sprint(again) != fmt.Sprint(pairs) {
			t.Errorf("%s: another choice", name)
		}
	}
}
