package manifest

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The parts of a benchmark's pods.
const (
	BenchClient = "client"
	BenchNear   = "near" // a responder on the client's node
	BenchFar    = "far"  // a responder on the other node
	// BenchNearHost and BenchFarHost are responders on the host network.
	BenchNearHost = "near-host"
	BenchFarHost  = "far-host"
)

// BenchConductor is the container of the client that writes the results to its log.
const BenchConductor = "conduct"

// BenchPodName is the name of a benchmark's pod.
func BenchPodName(part string) string { return BenchName + "-" + part }

// BenchResponder answers the load of a benchmark on a node. The kubelet ends it when it has lasted for so long, whatever becomes of the
// process that made it.
func BenchResponder(image, node, part string, atMost time.Duration) *unstructured.Unstructured {
	args, port := []string{"bench", "serve"}, PortTCP
	host := part == BenchNearHost || part == BenchFarHost
	if host {
		args, port = append(args, "--host"), port+HostOffset
	}
	container := benchContainer("serve", image, args)
	container.Env = append(container.Env, field("HOST_IP", "status.hostIP"))
	container.ReadinessProbe = listens(port)
	spec := benchSpec(node, atMost, container)
	spec.HostNetwork = host
	spec.DNSPolicy = corev1.DNSDefault
	return benchPod(part, spec)
}

// BenchPod is the client of a benchmark on a node: one container carries out the plan and sends probes, the other puts load on the paths.
// They are two, so that load that is throttled does not delay the probes.
func BenchPod(image, node, plan string, atMost time.Duration) *unstructured.Unstructured {
	conduct := benchContainer(BenchConductor, image, []string{"bench", "conduct"})
	conduct.Env = append(conduct.Env, corev1.EnvVar{Name: "THESEUS_BENCH", Value: plan})
	return benchPod(BenchClient, benchSpec(node, atMost, conduct, benchContainer("work", image, []string{"bench", "work"})))
}

func benchPod(part string, spec corev1.PodSpec) *unstructured.Unstructured {
	return convert(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: meta(BenchPodName(part), LabelBench, part, LabelApp, BenchName),
		Spec:       spec,
	})
}

// benchSpec is a pod that runs once. Like a probe pod, it has a fixed node and no priority: nobody's pod is evicted for it.
func benchSpec(node string, atMost time.Duration, containers ...corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:                      node,
		RestartPolicy:                 corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         new(int64(atMost / time.Second)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(1)),
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(ProberUser)), RunAsGroup: new(int64(ProberUser)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: containers,
	}
}

// BenchProcessors is how many processors a container of a benchmark uses at most.
const BenchProcessors = 2

func benchContainer(name, image string, args []string) corev1.Container {
	processors := strconv.Itoa(BenchProcessors)
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
		Env:             []corev1.EnvVar{{Name: "GOMAXPROCS", Value: processors}},
		Resources:       bounded(requests("20m", "32Mi"), processors, "256Mi"),
		SecurityContext: unprivileged(),
	}
}

// BenchService is in front of a benchmark's responder on the other node, or on the client's if there is no other.
func BenchService(part string) *unstructured.Unstructured {
	return convert(&corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(BenchName, LabelApp, BenchName),
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{LabelBench: part},
			Ports: []corev1.ServicePort{servicePort("http", corev1.ProtocolTCP, PortHTTP)}},
	})
}
