package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BenchRulesEach is the number of rules in one NetworkPolicy of a benchmark.
const BenchRulesEach = 100

// BenchPolicies are NetworkPolicies with so many rules together, for a responder of a benchmark alone. Each rule admits
// a TCP port from an address of 198.18.0.0/15, the range for benchmarks (RFC 2544), so none matches. The rules of one
// policy share an address and differ in their ports: where an address costs an identity (Cilium), 10,000 rules cost
// 100.
//
// The last policy admits a client, by its name, to the responder's ports of streams, datagrams and connections, and not
// to PortHTTP. It is to be created last: a network that enforces it has seen the others.
func BenchPolicies(part, id, client string, rules int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range (rules + BenchRulesEach - 1) / BenchRulesEach {
		var ingress []networkingv1.NetworkPolicyIngressRule
		for j := range min(BenchRulesEach, rules-i*BenchRulesEach) {
			ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
				From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{
					CIDR: fmt.Sprintf("198.18.%d.1/32", i)}}},
				Ports: []networkingv1.NetworkPolicyPort{policyPort(corev1.ProtocolTCP, 20000+j)}})
		}
		all = append(all, benchPolicy(fmt.Sprintf("rules-%d", i), part, id, ingress))
	}
	return append(all, benchPolicy("admit", part, id, []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{LabelBenchID: id, LabelBenchClient: client}}}},
		Ports: []networkingv1.NetworkPolicyPort{policyPort(corev1.ProtocolUDP, PortUDP),
			policyPort(corev1.ProtocolTCP, PortTCP), policyPort(corev1.ProtocolTCP, PortSink)}}}))
}

func benchPolicy(name, part, id string, ingress []networkingv1.NetworkPolicyIngressRule) *unstructured.Unstructured {
	return convert(&networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: meta(BenchName+"-"+name, LabelBench, "policy", LabelBenchID, id, LabelApp, BenchName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{LabelBenchID: id, LabelBench: part}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: ingress}})
}

func policyPort(protocol corev1.Protocol, port int) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt(port))}
}
