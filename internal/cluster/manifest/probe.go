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

// ProbeNodePortName is the name of the Service with a node port in front of them.
func ProbeNodePortName(network string) string { return ProbeServiceName(network) + "-port" }

// ProbePod serves and sends probes on one network of one node. It is a bare pod bound to its node, because
// nothing but Theseus may create, move or remove it: which network it is on is decided when it is made. It has no priority: a kubelet
// makes room for a critical pod by ending others, and those are the user's.
func ProbePod(image, node, network string) *unstructured.Unstructured {
	spec := prober(image, network)
	spec.NodeName = node
	return convert(&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(ProbePodName(node, network),
			v1alpha1.LabelProbe, network, LabelNode, NodeValue(node), LabelApp, "theseus-probe"),
		Spec: spec,
	})
}

// HostProber serves and sends probes on the address of every node, as a probe pod does on its own. The agent takes no part in
// that, so an agent that ends, by a lack of memory, an eviction or a person, takes no probe with it.
func HostProber(image string) *unstructured.Unstructured {
	spec := prober(image, "host")
	spec.HostNetwork = true
	// A kubelet that lacks memory ends other pods first: the end of a prober looks like a network that loses.
	spec.PriorityClassName = "system-node-critical"
	return convert(everywhere(HostProberName, spec))
}

// prober is the pod of a prober, and of a second responder, which answers beside it and sends nothing. It needs no right on its node but to write into one folder, which the agent makes for its
// user (probe.MakeFolders).
func prober(image, network string) corev1.PodSpec {
	dir, port := ProbeDir+"/"+network, PortTCP
	if network == "host" {
		port += HostOffset
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		DNSPolicy:                     corev1.DNSDefault,
		TerminationGracePeriodSeconds: new(int64(10)), // it answers on for two seconds
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(ProberUser)), RunAsGroup: new(int64(ProberUser)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{
			{
				Name:            "probe",
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{"probe", "--network", network},
				// on one processor a probe costs a fifth to two fifths less (BenchmarkNode in internal/proof/probe, -cpu 1,2)
				Env: []corev1.EnvVar{field("NODE_NAME", "spec.nodeName"), field("HOST_IP", "status.hostIP"), field("POD_UID", "metadata.uid"),
					{Name: "GOMAXPROCS", Value: "1"}},
				Resources:       bounded(requests("10m", "32Mi"), "1", "128Mi"),
				ReadinessProbe:  listens(port),
				SecurityContext: unprivileged(),
				VolumeMounts:    []corev1.VolumeMount{{Name: "probe", MountPath: dir}},
			},
			{
				Name:            "second",
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{"answer", "--network", network},
				Env:             []corev1.EnvVar{field("HOST_IP", "status.hostIP"), {Name: "GOMAXPROCS", Value: "1"}},
				Resources:       bounded(requests("1m", "16Mi"), "1", "64Mi"),
				SecurityContext: unprivileged(),
			},
		},
		Volumes: []corev1.Volume{hostPath("probe", dir, corev1.HostPathDirectoryOrCreate)},
	}
}

func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// ProbeServices stand in front of the probe pods, two for each network: one on a cluster address, and one with a node port, for
// TCP alone. Whoever reaches a node may send to its ports under a false address, and UDP would be answered to that.
func ProbeServices() []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, network := range []string{"old", "new"} {
		tcp, second := servicePort("tcp", corev1.ProtocolTCP, PortTCP), servicePort("tcp-second", corev1.ProtocolTCP, PortTCP+SecondOffset)
		all = append(all,
			probeService(ProbeServiceName(network), network, corev1.ServiceTypeClusterIP, servicePort("udp", corev1.ProtocolUDP, PortUDP), tcp,
				servicePort("udp-second", corev1.ProtocolUDP, PortUDP+SecondOffset), second),
			probeService(ProbeNodePortName(network), network, corev1.ServiceTypeNodePort, tcp, second))
	}
	return all
}

func probeService(name, network string, kind corev1.ServiceType, ports ...corev1.ServicePort) unstructured.Unstructured {
	return *convert(&corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(name),
		Spec:       corev1.ServiceSpec{Type: kind, Selector: map[string]string{v1alpha1.LabelProbe: network}, Ports: ports},
	})
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
				port(corev1.ProtocolUDP, PortUDP), port(corev1.ProtocolTCP, PortTCP),
				port(corev1.ProtocolUDP, PortUDP+SecondOffset), port(corev1.ProtocolTCP, PortTCP+SecondOffset)}}},
		},
	})
}
