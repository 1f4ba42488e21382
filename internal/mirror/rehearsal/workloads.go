package rehearsal

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// podOf is the pods of one workload.
type podOf struct {
	workload       string // such as Deployment shop/web
	namespace      string
	labels         map[string]string
	spec           *corev1.PodSpec // the copy's
	original, copy int32
	daemon         bool
}

// contentKey names a Secret or ConfigMap.
type contentKey struct{ kind, namespace, name string }

// notes are what was taken out of pods, for the table of what the copy cannot have.
type notes struct {
	volumes, execProbes, hooks, contexts, extended, sctp, probesAsTCP int
	annotations, limits, gates, schedulers, runtimes, host            int
	finalizers                                                        int
	// evicting are the keys of taints that evict, and whose copies do not.
	evicting map[string]bool
	// bounds are the resources whose bounds are left out of quotas and LimitRanges; ratios are the ratios of limits to
	// requests that are left out.
	bounds map[string]bool
	ratios int
}

// scaled is how many pods a workload has in the copy: in proportion, but at least two where there were two, so that a
// budget can be met as in the original.
func (m *maker) scaled(original int32) int32 {
	if original <= 1 {
		return original
	}
	return min(original, max(2, int32(math.Ceil(float64(original)*m.Share))))
}

// workloads copies the workloads of users.
func (m *maker) workloads() error {
	for i := range m.original.Deployments {
		if one := m.original.Deployments[i].DeepCopy(); m.copied(one.Namespace) && one.DeletionTimestamp == nil {
			one.Spec.Replicas = m.workload("Deployment", one, one.Spec.Replicas, &one.Spec.Template)
			one.Spec.Paused = false
			m.add(encode(one, appsv1.SchemeGroupVersion.WithKind("Deployment")))
		}
	}
	for i := range m.original.StatefulSets {
		if one := m.original.StatefulSets[i].DeepCopy(); m.copied(one.Namespace) && one.DeletionTimestamp == nil {
			m.notes.volumes += len(one.Spec.VolumeClaimTemplates)
			one.Spec.VolumeClaimTemplates = nil
			one.Spec.Replicas = m.workload("StatefulSet", one, one.Spec.Replicas, &one.Spec.Template)
			m.add(encode(one, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
		}
	}
	for i := range m.original.ReplicaSets {
		if one := m.original.ReplicaSets[i].DeepCopy(); m.copied(one.Namespace) && one.DeletionTimestamp == nil &&
			metav1.GetControllerOfNoCopy(one) == nil {
			one.Spec.Replicas = m.workload("ReplicaSet", one, one.Spec.Replicas, &one.Spec.Template)
			m.add(encode(one, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
		}
	}
	for i := range m.original.DaemonSets {
		if one := m.original.DaemonSets[i].DeepCopy(); m.copied(one.Namespace) && one.DeletionTimestamp == nil {
			m.Workloads = append(m.Workloads,
				Workload{"DaemonSet", one.Namespace, one.Name, one.Status.DesiredNumberScheduled, 0})
			m.standIn(one.Namespace, one.Spec.Template.Labels, &one.Spec.Template.Spec)
			m.hold("DaemonSet "+one.Namespace+"/"+one.Name, &one.Spec.Template.ObjectMeta)
			m.pods = append(m.pods, podOf{"DaemonSet " + one.Namespace + "/" + one.Name, one.Namespace,
				one.Spec.Template.Labels, &one.Spec.Template.Spec, one.Status.DesiredNumberScheduled, 0, true})
			m.add(encode(one, appsv1.SchemeGroupVersion.WithKind("DaemonSet")))
		}
	}
	for i := range m.original.Jobs {
		m.job(m.original.Jobs[i].DeepCopy())
	}
	m.bare()
	return m.shrink()
}

// workload turns a workload's pods into stand-ins, and returns its number of replicas.
func (m *maker) workload(kind string, object metav1.Object, replicas *int32, template *corev1.PodTemplateSpec) *int32 {
	original := int32(1)
	if replicas != nil {
		original = *replicas
	}
	m.count(kind, object.GetNamespace(), object.GetName(), original, template.Labels, &template.Spec)
	m.hold(kind+" "+object.GetNamespace()+"/"+object.GetName(), &template.ObjectMeta)
	return new(m.scaled(original))
}

func (m *maker) count(kind, namespace, name string, original int32, set map[string]string, spec *corev1.PodSpec) {
	n := m.scaled(original)
	m.Workloads = append(m.Workloads, Workload{kind, namespace, name, original, n})
	m.standIn(namespace, set, spec)
	m.pods = append(m.pods, podOf{kind + " " + namespace + "/" + name, namespace, set, spec, original, n, false})
	m.Pods += int(n)
}

// job copies a Job that has not ended. Its stand-in runs until it is told to stop.
func (m *maker) job(one *batchv1.Job) {
	ended := slices.ContainsFunc(one.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
	switch {
	case !m.copied(one.Namespace) || one.DeletionTimestamp != nil:
	case ended || one.Status.Active == 0:
		m.leave("Job", one.Namespace, one.Name, "none of its pods runs")
	default:
		one.Spec.Parallelism = new(m.scaled(one.Status.Active))
		one.Spec.Completions, one.Spec.ActiveDeadlineSeconds, one.Spec.TTLSecondsAfterFinished = nil, nil, nil
		one.Spec.Suspend, one.Spec.ManualSelector, one.Spec.CompletionMode = nil, nil, nil
		one.Spec.PodFailurePolicy, one.Spec.SuccessPolicy, one.Spec.BackoffLimitPerIndex, one.Spec.MaxFailedIndexes =
			nil, nil, nil, nil
		for _, key := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid",
			"batch.kubernetes.io/job-name"} {
			delete(one.Spec.Template.Labels, key)
		}
		one.Spec.Selector = nil
		m.count("Job", one.Namespace, one.Name, one.Status.Active, one.Spec.Template.Labels, &one.Spec.Template.Spec)
		m.hold("Job "+one.Namespace+"/"+one.Name, &one.Spec.Template.ObjectMeta)
		m.add(encode(one, batchv1.SchemeGroupVersion.WithKind("Job")))
	}
}

// bare copies pods without a controller, and names pods whose controller is of a kind that the copy does not have.
func (m *maker) bare() {
	owner := m.original.Owners()
	for i := range m.original.Pods {
		one := &m.original.Pods[i]
		if !m.copied(one.Namespace) || one.Status.Phase == corev1.PodSucceeded ||
			one.Status.Phase == corev1.PodFailed || one.DeletionTimestamp != nil {
			continue
		}
		switch by := owner(one); by.Kind {
		case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node", "CronJob":
			// Node: the kubelet's own file
		case "Pod":
			one = one.DeepCopy()
			one.Spec.NodeName = ""
			m.count("Pod", one.Namespace, one.Name, 1, one.Labels, &one.Spec)
			m.add(encode(one, corev1.SchemeGroupVersion.WithKind("Pod")))
		default:
			m.leave(by.Kind, by.Namespace, by.Name, "the copy has no controller for its pods")
		}
	}
}

// standIn turns the pods of a workload into pods of the stand-in program: same labels, ports, probes, places and times,
// nothing of what the originals run, mount or know.
func (m *maker) standIn(namespace string, set map[string]string, spec *corev1.PodSpec) {
	old := *spec
	*spec = corev1.PodSpec{
		RestartPolicy: old.RestartPolicy, TerminationGracePeriodSeconds: old.TerminationGracePeriodSeconds,
		DNSPolicy: old.DNSPolicy, DNSConfig: old.DNSConfig, HostAliases: old.HostAliases,
		Hostname: old.Hostname, Subdomain: old.Subdomain, HostNetwork: old.HostNetwork,
		NodeSelector: m.placed(old.NodeSelector), Affinity: m.affinity(old.Affinity),
		Tolerations: m.tolerates(old.Tolerations), TopologySpreadConstraints: old.TopologySpreadConstraints,
		PriorityClassName: old.PriorityClassName, ReadinessGates: nil, AutomountServiceAccountToken: new(false),
		EnableServiceLinks: new(false), Volumes: m.volumes(namespace, &old),
	}
	// the server sets an empty one
	asks := old.SecurityContext != nil && !equality.Semantic.DeepEqual(*old.SecurityContext,
		corev1.PodSecurityContext{})
	if asks || slices.ContainsFunc(old.Containers, func(c corev1.Container) bool { return c.SecurityContext != nil }) {
		m.notes.contexts++
	}
	count := func(n *int, when bool) {
		if when {
			*n++
		}
	}
	count(&m.notes.gates, len(old.ReadinessGates) > 0)
	count(&m.notes.schedulers, old.SchedulerName != "" && old.SchedulerName != corev1.DefaultSchedulerName)
	count(&m.notes.runtimes, old.RuntimeClassName != nil)
	count(&m.notes.host, old.HostPID || old.HostIPC)
	ports := &podPorts{extra: m.servicePorts(namespace, set, &old), admits: m.admitting(namespace, set, &old),
		taken: map[string]bool{}}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if old.TerminationGracePeriodSeconds != nil {
		grace = *old.TerminationGracePeriodSeconds
	}
	spec.InitContainers = m.containers(namespace, old.InitContainers, ports, grace, true)
	spec.Containers = m.containers(namespace, old.Containers, ports, grace, false)
}

// podPorts are the ports that the stand-ins of a pod open.
type podPorts struct {
	// extra are ports that the first container opens, although it does not declare them.
	extra []corev1.ContainerPort
	// admits are those on which admission reviews are answered.
	admits map[int32]bool
	// taken are those that a container has opened, by protocol and number.
	taken map[string]bool
}

// containers turns containers into stand-ins. grace is the pod's grace period in seconds.
func (m *maker) containers(namespace string, old []corev1.Container, ports *podPorts, grace int64,
	first bool) []corev1.Container {
	var all []corev1.Container
	for i := range old {
		from := &old[i]
		for _, env := range from.Env {
			if env.ValueFrom != nil {
				m.know(namespace, env.ValueFrom)
			}
		}
		for _, source := range from.EnvFrom {
			if ref := source.ConfigMapRef; ref != nil {
				m.content("ConfigMap", namespace, ref.Name, ref.Optional)
			}
			if ref := source.SecretRef; ref != nil {
				m.content("Secret", namespace, ref.Name, ref.Optional)
			}
		}
		one := corev1.Container{Name: from.Name, Image: m.options.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			RestartPolicy: from.RestartPolicy, Ports: from.Ports, Resources: m.resources(namespace, from.Resources)}
		sidecar := from.RestartPolicy != nil && *from.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if first && !sidecar {
			one.Args, one.Ports = []string{"--version"}, nil // ends at once, as an init container has to
			all = append(all, one)
			continue
		}
		if from.Lifecycle != nil {
			if sleep := sleeps(from.Lifecycle.PreStop, grace); sleep != nil {
				one.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: sleep}}
			} else {
				m.notes.hooks++
			}
		}
		one.StartupProbe, one.ReadinessProbe, one.LivenessProbe = m.probe(from, from.StartupProbe, ports),
			m.probe(from, from.ReadinessProbe, ports), m.probe(from, from.LivenessProbe, ports)
		opens := slices.Clone(from.Ports)
		for _, probe := range []*corev1.Probe{one.StartupProbe, one.ReadinessProbe, one.LivenessProbe} {
			if probe == nil {
				continue
			}
			port := intstr.IntOrString{}
			if probe.HTTPGet != nil {
				port = probe.HTTPGet.Port
			} else if probe.TCPSocket != nil {
				port = probe.TCPSocket.Port
			}
			if port.Type == intstr.Int {
				opens = append(opens, corev1.ContainerPort{Protocol: corev1.ProtocolTCP, ContainerPort: port.IntVal})
			}
		}
		if i == 0 {
			opens = append(opens, ports.extra...)
		}
		m.opens(&one, namespace, opens, ports)
		all = append(all, one)
	}
	return all
}

// opens has the stand-in program open ports; each port is opened once in a pod.
func (m *maker) opens(container *corev1.Container, namespace string, wanted []corev1.ContainerPort, ports *podPorts) {
	var tcp, udp, admits []string
	for _, port := range wanted {
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		key := string(protocol) + strconv.Itoa(int(port.ContainerPort))
		if ports.taken[key] || port.ContainerPort == 0 {
			continue
		}
		ports.taken[key] = true
		number := strconv.Itoa(int(port.ContainerPort))
		switch {
		case protocol == corev1.ProtocolTCP && ports.admits[port.ContainerPort]:
			admits = append(admits, number)
		case protocol == corev1.ProtocolTCP:
			tcp = append(tcp, number)
		case protocol == corev1.ProtocolUDP:
			udp = append(udp, number)
		default:
			m.notes.sctp++
		}
	}
	container.Args = []string{"stand-in"}
	if len(tcp) > 0 {
		container.Args = append(container.Args, "--tcp="+strings.Join(tcp, ","))
	}
	if len(udp) > 0 {
		container.Args = append(container.Args, "--udp="+strings.Join(udp, ","))
	}
	if len(admits) > 0 {
		container.Args = append(container.Args, "--tls="+strings.Join(admits, ","), "--certificate="+servingVariable)
		container.Env = append(container.Env, corev1.EnvVar{Name: servingVariable,
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: servingSecret}, Key: servingKey}}})
		m.serving[namespace] = true
	}
}

// probe is a probe as the stand-in can answer it: HTTPS is asked as HTTP, except where admission reviews are answered;
// gRPC by a connection, and a command not at all.
func (m *maker) probe(of *corev1.Container, old *corev1.Probe, ports *podPorts) *corev1.Probe {
	if old == nil {
		return nil
	}
	probe := *old
	switch {
	case old.Exec != nil:
		m.notes.execProbes++
		return nil
	case old.GRPC != nil:
		m.notes.probesAsTCP++
		probe.GRPC, probe.TCPSocket = nil, &corev1.TCPSocketAction{Port: intstr.FromInt32(old.GRPC.Port)}
	case old.HTTPGet != nil:
		get := *old.HTTPGet
		get.Scheme, get.Host = corev1.URISchemeHTTP, ""
		if ports.admits[portNumber(of, get.Port)] {
			get.Scheme = corev1.URISchemeHTTPS
		}
		get.HTTPHeaders = nil // they may have tokens
		probe.HTTPGet = &get
	}
	return &probe
}

// behind reports whether pods of a namespace with these labels are behind a Service.
func behind(service *corev1.Service, namespace string, set map[string]string) bool {
	return service.Namespace == namespace && len(service.Spec.Selector) > 0 &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(set))
}

// servicePorts are the numbers of the ports that Services send to these pods.
func (m *maker) servicePorts(namespace string, set map[string]string, spec *corev1.PodSpec) []corev1.ContainerPort {
	var all []corev1.ContainerPort
	for i := range m.original.Services {
		service := &m.original.Services[i]
		if !behind(service, namespace, set) {
			continue
		}
		for _, port := range service.Spec.Ports {
			number := port.TargetPort.IntVal
			if port.TargetPort.Type == intstr.String {
				continue // a name: a container declares it
			}
			if number == 0 {
				number = port.Port
			}
			declared := slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
				return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
					return p.ContainerPort == number &&
						(p.Protocol == port.Protocol || p.Protocol == "" && port.Protocol == corev1.ProtocolTCP)
				})
			})
			if !declared {
				all = append(all, corev1.ContainerPort{Protocol: port.Protocol, ContainerPort: number})
			}
		}
	}
	return all
}

// requests are a container's requests of processors and memory; shrink makes them fit.
func (m *maker) requests(old corev1.ResourceList) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range old {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory:
			list[name] = count
		case corev1.ResourceEphemeralStorage:
		default:
			m.notes.extended++
		}
	}
	return list
}

// volumes keeps the volumes that have nothing of the node and no data: made-up Secrets and ConfigMaps, and empty
// folders. Stand-ins mount none of them.
func (m *maker) volumes(namespace string, spec *corev1.PodSpec) []corev1.Volume {
	var kept []corev1.Volume
	for _, volume := range spec.Volumes {
		switch {
		case volume.Secret != nil:
			m.content("Secret", namespace, volume.Secret.SecretName, volume.Secret.Optional,
				keysOf(volume.Secret.Items)...)
		case volume.ConfigMap != nil:
			m.content("ConfigMap", namespace, volume.ConfigMap.Name, volume.ConfigMap.Optional,
				keysOf(volume.ConfigMap.Items)...)
		case volume.EmptyDir != nil:
			volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
		case volume.Projected != nil:
			if strings.HasPrefix(volume.Name, "kube-api-access-") {
				continue // the API server's own
			}
			for _, source := range volume.Projected.Sources {
				if ref := source.Secret; ref != nil {
					m.content("Secret", namespace, ref.Name, ref.Optional, keysOf(ref.Items)...)
				}
				if ref := source.ConfigMap; ref != nil {
					m.content("ConfigMap", namespace, ref.Name, ref.Optional, keysOf(ref.Items)...)
				}
			}
			continue
		default:
			m.notes.volumes++
			continue
		}
		kept = append(kept, volume)
	}
	return kept
}

func keysOf(items []corev1.KeyToPath) []string {
	var keys []string
	for _, item := range items {
		keys = append(keys, item.Key)
	}
	return keys
}

// know notes the key of a Secret or ConfigMap that a variable takes its value from.
func (m *maker) know(namespace string, from *corev1.EnvVarSource) {
	if ref := from.SecretKeyRef; ref != nil {
		m.content("Secret", namespace, ref.Name, ref.Optional, ref.Key)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		m.content("ConfigMap", namespace, ref.Name, ref.Optional, ref.Key)
	}
}

// content notes that pods need a Secret or ConfigMap with these keys.
func (m *maker) content(kind, namespace, name string, optional *bool, keys ...string) {
	if optional != nil && *optional || name == "" || kind == "ConfigMap" && name == "kube-root-ca.crt" {
		return
	}
	key := contentKey{kind, namespace, name}
	if m.contents[key] == nil {
		m.contents[key] = map[string]bool{}
	}
	for _, one := range keys {
		m.contents[key][one] = true
	}
}

// MadeUp is the value of every key of the copy's Secrets and ConfigMaps.
const MadeUp = "made up by theseus rehearse"

// made makes the Secrets and ConfigMaps that pods refer to: names and keys, with made-up values.
func (m *maker) made() {
	for key, keys := range m.contents {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": key.kind,
			"metadata": map[string]any{"name": key.name, "namespace": key.namespace}}}
		values := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			values[name] = MadeUp
		}
		field := "data"
		if key.kind == "Secret" {
			field = "stringData"
		}
		if len(values) > 0 {
			object.Object[field] = values
		}
		m.add(object)
	}
}

// placed is a node selector in which the names of the original's nodes are those of the nodes that play them.
func (m *maker) placed(selector map[string]string) map[string]string {
	if m.classOf[selector[corev1.LabelHostname]] == "" {
		return selector
	}
	selector = maps.Clone(selector)
	selector[corev1.LabelHostname] = m.hostname(selector[corev1.LabelHostname])
	return selector
}

// hostname is the value of the host name's label on the node that plays a node of the original.
func (m *maker) hostname(of string) string {
	for i := range m.scratch.Nodes {
		if node := &m.scratch.Nodes[i]; node.Name == m.classOf[of] && node.Labels[corev1.LabelHostname] != "" {
			return node.Labels[corev1.LabelHostname]
		}
	}
	return m.classOf[of]
}

// affinity is placed for node affinities.
func (m *maker) affinity(old *corev1.Affinity) *corev1.Affinity {
	if old == nil || old.NodeAffinity == nil {
		return old
	}
	made := old.DeepCopy()
	var terms []*corev1.NodeSelectorTerm
	if required := made.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			terms = append(terms, &required.NodeSelectorTerms[i])
		}
	}
	for i := range made.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, &made.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference)
	}
	for _, term := range terms {
		for _, list := range [][]corev1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			for i := range list {
				if list[i].Key != corev1.LabelHostname && list[i].Key != metav1.ObjectNameField {
					continue
				}
				for j, value := range list[i].Values {
					switch {
					case m.classOf[value] == "":
					case list[i].Key == corev1.LabelHostname:
						list[i].Values[j] = m.hostname(value)
					default:
						list[i].Values[j] = m.classOf[value]
					}
				}
				slices.Sort(list[i].Values)
				list[i].Values = slices.Compact(list[i].Values)
			}
		}
	}
	return made
}

// taken is the part of the scratch cluster's free processors and memory that the copy's requests may take: the change
// needs some, too.
const taken = 0.7

// shrink makes the copy's requests fit into the scratch cluster, all in the same proportion. The objects were made
// before, so it edits them.
func (m *maker) shrink() error {
	free := map[corev1.ResourceName]float64{}
	for i := range m.scratch.Nodes {
		node := &m.scratch.Nodes[i]
		if len(m.repels(node)) == 0 && cluster.NodeReady(node) && !node.Spec.Unschedulable {
			free[corev1.ResourceCPU] += node.Status.Allocatable.Cpu().AsApproximateFloat64()
			free[corev1.ResourceMemory] += node.Status.Allocatable.Memory().AsApproximateFloat64()
		}
	}
	for i := range m.scratch.Pods {
		for _, container := range m.scratch.Pods[i].Spec.Containers {
			for name := range free {
				free[name] -= quantity(container.Resources.Requests, name)
			}
		}
	}
	asked := map[corev1.ResourceName]float64{}
	for _, pods := range m.pods {
		n := float64(pods.copy)
		if pods.daemon {
			n = float64(len(m.scratch.Nodes))
		}
		requests := resourcehelper.PodRequests(&corev1.Pod{Spec: *pods.spec}, resourcehelper.PodResourcesOptions{})
		for name := range free {
			asked[name] += n * quantity(requests, name)
		}
	}
	for name := range free {
		m.factor[name] = 1
		if asked[name] > taken*free[name] {
			m.factor[name] = max(0, taken*free[name]/asked[name])
		}
	}
	for _, object := range m.Objects {
		at := []string{"spec", "template", "spec"}
		if object.GetKind() == "Pod" {
			at = []string{"spec"}
		}
		for _, list := range []string{"containers", "initContainers"} {
			containers, _, _ := unstructured.NestedSlice(object.Object, append(slices.Clone(at), list)...)
			for _, one := range containers {
				fields, _ := one.(map[string]any)
				requests, _, _ := unstructured.NestedMap(fields, "resources", "requests")
				for name, value := range requests {
					text, _ := value.(string)
					count, err := resource.ParseQuantity(text)
					if err != nil {
						return fmt.Errorf("%s: the request of %s: %w", name, text, err)
					}
					requests[name] = times(corev1.ResourceName(name), count, m.factor[corev1.ResourceName(name)])
				}
				if len(requests) > 0 {
					_ = unstructured.SetNestedMap(fields, requests, "resources", "requests")
				}
			}
			if len(containers) > 0 {
				_ = unstructured.SetNestedSlice(object.Object, containers, append(slices.Clone(at), list)...)
			}
		}
	}
	return nil
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) float64 {
	count := list[name]
	return count.AsApproximateFloat64()
}

// times is a part of a request: of processors in thousandths, of memory in MiB.
func times(name corev1.ResourceName, count resource.Quantity, factor float64) string {
	if factor == 1 {
		return count.String()
	}
	if name == corev1.ResourceCPU {
		return fmt.Sprintf("%dm", int64(math.Ceil(count.AsApproximateFloat64()*factor*1000)))
	}
	return fmt.Sprintf("%dMi", int64(math.Ceil(count.AsApproximateFloat64()*factor/(1<<20))))
}

// fits refuses a copy with more pods than the scratch cluster's nodes take.
func (m *maker) fits() error {
	slots := -len(m.scratch.Pods)
	for i := range m.scratch.Nodes {
		slots += int(m.scratch.Nodes[i].Status.Allocatable.Pods().Value())
	}
	const own = 3 // pods of Theseus on each node, while the change runs
	if want := m.Pods + own*len(m.scratch.Nodes); want > slots {
		return refuse("add nodes to the scratch cluster",
			"the scratch cluster is too small: the copy has %s, with those of Theseus %d, and the nodes take %d more",
			cluster.Count(m.Pods, "pod"), want, max(0, slots))
	}
	return nil
}
