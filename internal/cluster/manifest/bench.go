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

// BenchReadings is the environment variable of a responder's readings.
const BenchReadings = "BENCH_READINGS"

// BenchPodName is the name of a benchmark's pod.
func BenchPodName(part string) string { return BenchName + "-" + part }

// BenchClientName is the name of the client of a run, from 1, that measures with so many rules of policy.
func BenchClientName(run, rules int) string {
	name := BenchPodName(BenchClient) + "-" + strconv.Itoa(run)
	if rules > 0 {
		name += "-" + strconv.Itoa(rules)
	}
	return name
}

// BenchResponder answers the load of a benchmark on a node; id tells the benchmark from others. It ends by itself when
// it has lasted for so long, and the kubelet ends it as well, whatever becomes of the process that made it. On the host
// network, it reads what programs of the network serve (a list of step.Reading in JSON; empty for none).
func BenchResponder(image, node, part, id string, atMost time.Duration, readings string) *unstructured.Unstructured {
	args, port := []string{"bench", "serve", "--within", atMost.String()}, PortTCP
	host := part == BenchNearHost || part == BenchFarHost
	if host {
		args, port = append(args, "--host"), port+HostOffset
	}
	container := benchContainer("serve", image, args)
	container.Env = append(container.Env, field("HOST_IP", "status.hostIP"),
		field("BENCH_ID", "metadata.labels['"+LabelBenchID+"']"))
	if host && readings != "" {
		container.Env = append(container.Env, corev1.EnvVar{Name: BenchReadings, Value: readings})
	}
	container.ReadinessProbe = listens(port)
	spec := benchSpec(node, atMost, container)
	spec.HostNetwork = host
	spec.DNSPolicy = corev1.DNSDefault
	return benchPod(BenchPodName(part), part, id, spec)
}

// BenchPod is the client of one run of a benchmark on a node, with a name: one container carries out the plan and
// sends probes, the other puts load on the paths. They are two, so that load that is throttled does not delay the
// probes. Both end by themselves, as responders do.
func BenchPod(image, node, name, plan, id string, atMost time.Duration) *unstructured.Unstructured {
	conduct := benchContainer(BenchConductor, image, []string{"bench", "conduct", "--within", atMost.String()})
	conduct.Env = append(conduct.Env, corev1.EnvVar{Name: "THESEUS_BENCH", Value: plan})
	work := benchContainer("work", image, []string{"bench", "work", "--within", atMost.String()})
	pod := benchPod(name, BenchClient, id, benchSpec(node, atMost, conduct, work))
	labels := pod.GetLabels()
	labels[LabelBenchClient] = name
	pod.SetLabels(labels)
	return pod
}

func benchPod(name, part, id string, spec corev1.PodSpec) *unstructured.Unstructured {
	about := meta(name, LabelBench, part, LabelBenchID, id, LabelApp, BenchName)
	// a bare pod would keep its node
	about.Annotations = map[string]string{safeToEvict: "true"}
	return convert(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: about, Spec: spec})
}

// benchSpec is a pod that runs once. Like a probe pod, it has a fixed node and no priority: no other pod is evicted for
// it. It tolerates no taint: one that evicts pods ends the load as well.
func benchSpec(node string, atMost time.Duration, containers ...corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:                      node,
		RestartPolicy:                 corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         new(int64(atMost / time.Second)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(1)),
		SecurityContext:               asProber(),
		Containers:                    containers,
	}
}

// BenchProcessors is how many processors a container of a benchmark uses at most, and BenchMemory how many MiB.
const (
	BenchProcessors = 2
	BenchMemory     = 256
)

func benchContainer(name, image string, args []string) corev1.Container {
	processors := strconv.Itoa(BenchProcessors)
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
		Env:             []corev1.EnvVar{{Name: "GOMAXPROCS", Value: processors}},
		Resources:       bounded(requests("20m", "32Mi"), processors, strconv.Itoa(BenchMemory)+"Mi"),
		SecurityContext: unprivileged(),
		// why it ended
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// BenchService is in front of a benchmark's responder on the other node, or on the client's if there is no other.
func BenchService(part, id string) *unstructured.Unstructured {
	return convert(&corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(BenchName, LabelBench, "service", LabelBenchID, id, LabelApp, BenchName),
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{LabelBench: part},
			Ports: []corev1.ServicePort{servicePort("http", corev1.ProtocolTCP, PortHTTP)}},
	})
}
