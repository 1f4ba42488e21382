package policy_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/policy"
)

// TestSelected: a pod is selected by policies that govern the direction, and by no others.
func TestSelected(t *testing.T) {
	s := &cluster.Snapshot{Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "x"}}},
		NetworkPolicies: []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"},
			Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}}}
	for _, name := range []string{"a", "b", "host"} {
		s.Pods = append(s.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name,
			Labels: map[string]string{"app": name}}, Status: corev1.PodStatus{PodIP: "10.0.0.1"},
			Spec: corev1.PodSpec{HostNetwork: name == "host"}})
	}
	profile := policy.Profile{CNI: "x", Dialect: policy.Kubernetes}
	m := policy.Build(s, profile, profile)
	for _, test := range []struct {
		pod       string
		direction policy.Direction
		want      bool
	}{{"x/a", policy.Ingress, true}, {"x/a", policy.Egress, false}, {"x/b", policy.Ingress, false},
		{"x/host", policy.Ingress, false}, {"x/none", policy.Ingress, false}} {
		if got := m.Selected(policy.Before, test.direction, test.pod); got != test.want {
			t.Errorf("%s, %s: %t", test.pod, test.direction, got)
		}
	}
}
