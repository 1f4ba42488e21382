package manifest

import (
	"maps"

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

// ProbeNodePortName is the name of the NodePort Service in front of the probe pods of a network.
func ProbeNodePortName(network string) string { return ProbeServiceName(network) + "-port" }

// ProbeLocalName is the name of the Service in front of the probe pods of a network that leads only to the pod of the
// same node.
func ProbeLocalName(network string) string { return ProbeServiceName(network) + "-local" }

// ProbeLocalPortName is the name of the NodePort Service that does so.
func ProbeLocalPortName(network string) string { return ProbeNodePortName(network) + "-local" }

// ProbePod serves and sends probes on one network of one node. It is a bare pod with a fixed nodeName, because only
// Theseus may create, move or delete it: a pod's network is determined when the pod is created. It has no priority,
// because a kubelet evicts other pods, the user's, to make room for a critical pod. Its labels are all of Theseus' own
// domain: a ReplicaSet of the user adopts a bare pod that its selector matches, and deletes it as one too many.
func ProbePod(image, node, network string) *unstructured.Unstructured {
	spec := prober(image, network)
	spec.NodeName = node
	return convert(&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(ProbePodName(node, network),
			v1alpha1.LabelProbe, network, LabelNode, NodeValue(node)),
		Spec: spec,
	})
}

// NewPodSets are the sets of new pods. Those of one set try to reach those of the other.
func NewPodSets() []string { return []string{"a", "b"} }

// NewPodName is the name of a node's new pod of a set.
func NewPodName(node, set string) string { return "theseus-new-pod-" + set + "-" + node }

// LabelNewPod has the set of a new pod.
const LabelNewPod = "theseus.dev/new-pod"

// NewPod is a pod that a guard makes while others change the network. One of its containers answers probes as a probe
// pod does. The other tries paths, as JSON, once, and says in its termination message which answer; PathsVariable has
// them. No Service selects it; the policy of probe pods does.
func NewPod(image, node, set, paths string) *unstructured.Unstructured {
	container := func(name, verb string) corev1.Container {
		return corev1.Container{Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Args:      []string{"new-pod", verb},
			Env:       []corev1.EnvVar{{Name: "GOMAXPROCS", Value: "1"}},
			Resources: bounded(requests("1m", "16Mi"), "1", "64Mi"), SecurityContext: unprivileged()}
	}
	answers, tries := container("answer", "answer"), container(NewPodTries, "try")
	answers.ReadinessProbe = listens(PortTCP)
	tries.Env = append(tries.Env, corev1.EnvVar{Name: PathsVariable, Value: paths})
	return ForGuard(convert(&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(NewPodName(node, set), v1alpha1.LabelProbe, "new-pod", LabelNewPod, set,
			LabelNode, NodeValue(node)),
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			EnableServiceLinks: new(false), DNSPolicy: corev1.DNSDefault,
			TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext:               asProber(),
			Containers:                    []corev1.Container{answers, tries},
		},
	}))
}

// NewPodTries is the name of the container of a new pod that tries paths, and PathsVariable the environment variable
// with the paths.
const NewPodTries, PathsVariable = "try", "THESEUS_PATHS"

// ProbePods returns a function that makes the ProbePod of each of many nodes, in a fraction of the time and of the
// memory: each has its own metadata and fields of the spec, and shares with the others what is deeper, which nobody may
// change.
func ProbePods(image, network string) func(node string) *unstructured.Unstructured {
	like := ProbePod(image, "", network)
	return func(node string) *unstructured.Unstructured {
		pod := &unstructured.Unstructured{Object: fitted(like.Object)}
		metadata, spec := own(pod.Object, "metadata"), own(pod.Object, "spec")
		labels := own(metadata, "labels")
		metadata["name"], labels[LabelNode], spec["nodeName"] = ProbePodName(node, network), NodeValue(node), node
		return pod
	}
}

// own gives an object a copy of the map in a field, and returns it.
func own(object map[string]any, field string) map[string]any {
	copied := fitted(object[field].(map[string]any))
	object[field] = copied
	return copied
}

// fitted is a copy without the room that the converter leaves for every field of the Go type, which maps.Clone keeps.
func fitted(object map[string]any) map[string]any {
	copied := make(map[string]any, len(object))
	maps.Copy(copied, object)
	return copied
}

// HostProber serves and sends probes on the address of every node, as a probe pod does on its own address. It is
// independent of the agent, so no probe is lost if the agent ends (out of memory, evicted, or deleted by a person).
func HostProber(image string) *unstructured.Unstructured {
	spec := prober(image, "host")
	spec.HostNetwork = true
	// Under memory pressure a kubelet kills other pods first: a killed prober would look like packet loss.
	spec.PriorityClassName = "system-node-critical"
	return convert(everywhere(HostProberName, spec))
}

// prober is the pod of a prober and of a second responder, which only answers probes. On its node, the pod only needs
// write access to one folder, which the agent creates for its user (probe.MakeFolders).
func prober(image, network string) corev1.PodSpec {
	dir, port := ProbeDir+"/"+network, PortTCP
	if network == "host" {
		port += HostOffset
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		DNSPolicy:                     corev1.DNSDefault,
		TerminationGracePeriodSeconds: new(int64(10)), // it keeps answering for two seconds
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext:               asProber(),
		Containers: []corev1.Container{
			{
				Name:            "probe",
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{"probe", "--network", network},
				// with one processor a probe costs 20% to 40% less (BenchmarkNode in internal/proof/probe, -cpu 1,2)
				Env: []corev1.EnvVar{field("NODE_NAME", "spec.nodeName"), field("HOST_IP", "status.hostIP"),
					field("POD_UID", "metadata.uid"),
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

// asProber runs a pod as the user of probers.
func asProber() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(ProberUser)), RunAsGroup: new(int64(ProberUser)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// ProbeServices are the Services in front of the probe pods, two for each network: one with a cluster IP, and one with
// a node port, only for TCP. Anyone who can reach a node can send to its node ports with a spoofed source address, and
// UDP would answer to that address.
func ProbeServices() []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, network := range []string{"old", "new"} {
		tcp, second := servicePort("tcp", corev1.ProtocolTCP, PortTCP),
			servicePort("tcp-second", corev1.ProtocolTCP, PortTCP+SecondOffset)
		all = append(all,
			probeService(ProbeServiceName(network), network, corev1.ServiceTypeClusterIP,
				servicePort("udp", corev1.ProtocolUDP, PortUDP), tcp,
				servicePort("udp-second", corev1.ProtocolUDP, PortUDP+SecondOffset), second),
			probeService(ProbeNodePortName(network), network, corev1.ServiceTypeNodePort, tcp, second))
	}
	return all
}

// LocalServices are the Services in front of the probe pods of the old network that lead only to the pod of the same
// node. Guards alone measure them.
func LocalServices() []unstructured.Unstructured {
	tcp, second := servicePort("tcp", corev1.ProtocolTCP, PortTCP),
		servicePort("tcp-second", corev1.ProtocolTCP, PortTCP+SecondOffset)
	inside := probeService(ProbeLocalName("old"), "old", corev1.ServiceTypeClusterIP, tcp, second)
	port := probeService(ProbeLocalPortName("old"), "old", corev1.ServiceTypeNodePort, tcp, second)
	for object, field := range map[*unstructured.Unstructured]string{
		&inside: "internalTrafficPolicy", &port: "externalTrafficPolicy"} {
		object.Object["spec"].(map[string]any)[field] = "Local"
	}
	return []unstructured.Unstructured{inside, port}
}

// safeToEvict lets the cluster autoscaler remove the node of a bare pod.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// ForGuard makes a probe pod no obstacle to a change that others make: the cluster autoscaler may remove its node. In
// a migration, it may not.
func ForGuard(pod *unstructured.Unstructured) *unstructured.Unstructured {
	pod.SetAnnotations(map[string]string{safeToEvict: "true"})
	return pod
}

// WithHostPorts gives the TCP ports of a probe pod's containers ports of their node. A network without hostPorts
// ignores them; a kubelet rejects the pod if another pod of the node has one of them.
func WithHostPorts(pod *unstructured.Unstructured) *unstructured.Unstructured {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for i, port := range []int64{PortTCP, PortTCP + SecondOffset} {
		containers[i].(map[string]any)["ports"] = []any{map[string]any{
			"containerPort": port, "hostPort": port + HostPortOffset, "protocol": "TCP"}}
	}
	_ = unstructured.SetNestedSlice(pod.Object, containers, "spec", "containers") // both are made of JSON's types
	return pod
}

func probeService(name, network string, kind corev1.ServiceType,
	ports ...corev1.ServicePort) unstructured.Unstructured {
	return *convert(&corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(name),
		Spec: corev1.ServiceSpec{Type: kind, Selector: map[string]string{v1alpha1.LabelProbe: network},
			Ports: ports},
	})
}

func servicePort(name string, protocol corev1.Protocol, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: protocol, Port: port, TargetPort: intstr.FromInt32(port)}
}

// ProbePolicy blocks the denied ports of the probe pods by allowing only the others from everywhere. If the policy
// is not enforced, probes to a denied port are answered.
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
