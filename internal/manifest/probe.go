package manifest

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// ProbePodName is the name of a node's probe pod on a network, "old" or "new".
func ProbePodName(node, network string) string { return "theseus-probe-" + network + "-" + node }

// ProbeServiceName is the name of the Service in front of the probe pods of a network.
func ProbeServiceName(network string) string { return "theseus-probe-" + network }

// ProbePod serves and sends probes on one network of one node. It is a bare pod bound to its node, because
// nothing but Theseus may create, move or remove it: which network it is on is decided when it is made.
func ProbePod(image, node, network string) *unstructured.Unstructured {
	return convert(&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(ProbePodName(node, network),
			v1alpha1.LabelProbe, network, LabelNode, NodeValue(node), LabelApp, "theseus-probe"),
		Spec: corev1.PodSpec{
			NodeName:                      node,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			DNSPolicy:                     corev1.DNSDefault,
			PriorityClassName:             "system-node-critical",
			TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name:            "probe",
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{"probe", "--network", network},
				// on one processor a probe costs a fifth to two fifths less (BenchmarkNode in internal/probe, -cpu 1,2)
				Env:            []corev1.EnvVar{field("NODE_NAME", "spec.nodeName"), {Name: "GOMAXPROCS", Value: "1"}},
				Resources:      requests("10m", "16Mi"),
				ReadinessProbe: listens(PortTCP),
				VolumeMounts:   []corev1.VolumeMount{{Name: "probe", MountPath: ProbeDir}},
			}},
			Volumes: []corev1.Volume{hostPath("probe", ProbeDir, corev1.HostPathDirectoryOrCreate)},
		},
	})
}

// ProbeServices stand in front of the probe pods, one per network, each with a node port too.
func ProbeServices() []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, network := range []string{"old", "new"} {
		all = append(all, *convert(&corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: meta(ProbeServiceName(network)),
			Spec: corev1.ServiceSpec{
				Type:     corev1.ServiceTypeNodePort,
				Selector: map[string]string{v1alpha1.LabelProbe: network},
				Ports: []corev1.ServicePort{
					servicePort("udp", corev1.ProtocolUDP, PortUDP),
					servicePort("tcp", corev1.ProtocolTCP, PortTCP),
				},
			},
		}))
	}
	return all
}

func servicePort(name string, protocol corev1.Protocol, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: port, TargetPort: intstr.FromInt32(port)}
}

// ProbePolicy shuts the denied ports of the probe pods by allowing the others from everywhere, so that a
// leak of policy shows as an answer.
func ProbePolicy() *unstructured.Unstructured {
	port := func(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
		at := intstr.FromInt32(number)
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &at}
	}
	return convert(&networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: meta(PolicyName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: v1alpha1.LabelProbe, Operator: metav1.LabelSelectorOpExists}}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{
				port(corev1.ProtocolUDP, PortUDP), port(corev1.ProtocolTCP, PortTCP)}}},
		},
	})
}
