package manifest

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// HostRoot is where the node's root filesystem is mounted in the agent.
const HostRoot = "/host"

// Agent returns the node agent and its RBAC objects, in the order in which to apply them. The namespace and the CRDs
// must exist. The image's entry point must be theseus-agent. kubernetes is the API server's version: if it supports
// that, the API server restricts each agent to its own node. The agents reach the API servers at the addresses
// apiServers, HOST:PORT, and by the Service kubernetes if none of these accepts.
func Agent(image, kubernetes string, apiServers []string) []unstructured.Unstructured {
	account := &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: meta(AgentName),
	}
	all := []unstructured.Unstructured{*convert(account)}
	all = append(all, rights()...)
	if cluster.AdmissionPolicies(kubernetes) {
		all = append(all, tie()...)
	}
	return append(all, *convert(everywhere(AgentName, agentPod(image, apiServers))))
}

// rights are the minimum that the agent needs: to read and answer its tasks, to read the lock and the probe plan, and
// to write its report. RBAC cannot restrict them to one node; tie does that.
func rights() []unstructured.Unstructured {
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: AgentName, Namespace: v1alpha1.Namespace}}
	reference := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: AgentName}
	}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	own := []string{v1alpha1.Group}
	return []unstructured.Unstructured{
		*convert(&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta(AgentName), Rules: []rbacv1.PolicyRule{
			{APIGroups: own, Resources: []string{"nodetasks"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: own, Resources: []string{"nodetasks/status"}, Verbs: []string{"patch"}},
			{APIGroups: own, Resources: []string{"probeplans"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
				ResourceNames: []string{Lease}, Verbs: []string{"get"}},
			{APIGroups: own, Resources: []string{"probereports"}, Verbs: []string{"get", "create", "patch"}},
		}}),
		*convert(&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: meta(AgentName),
			Subjects: subjects, RoleRef: reference("Role")}),
	}
}

// everywhere is a DaemonSet whose pods are all replaced at once and have a label with its name. Its hostNetwork pods
// run on every node, regardless of taints, and depend on neither pod network.
func everywhere(name string, spec corev1.PodSpec) *appsv1.DaemonSet {
	labels := map[string]string{LabelApp: name}
	everything := intstr.FromString("100%")
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: meta(name, LabelApp, name),
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &everything},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelApp: name, v1alpha1.LabelManaged: "true"}},
				Spec:       spec,
			},
		},
	}
}

func agentPod(image string, apiServers []string) corev1.PodSpec {
	fromHost := corev1.MountPropagationHostToContainer
	return corev1.PodSpec{
		ServiceAccountName: AgentName,
		HostNetwork:        true,
		// CNI plugins run in the node's root filesystem and look up their own process in its /proc
		HostPID:                       true,
		DNSPolicy:                     corev1.DNSDefault,
		PriorityClassName:             "system-node-critical",
		TerminationGracePeriodSeconds: new(int64(5)),
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name:            "agent",
			Image:           image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Args:            []string{"run"},
			Env: append([]corev1.EnvVar{field("NODE_NAME", "spec.nodeName"), field("POD_UID", "metadata.uid")},
				reaches(apiServers)...),
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			Resources:       requests("20m", "32Mi"),
			ReadinessProbe:  onLoopback(listens(PortAlive)),
			VolumeMounts: []corev1.VolumeMount{
				{Name: "host", MountPath: HostRoot, MountPropagation: &fromHost},
				{Name: "run", MountPath: RunDir},
				{Name: "lock", MountPath: "/run/xtables.lock"},
			},
		}},
		Volumes: []corev1.Volume{
			hostPath("host", "/", corev1.HostPathDirectory),
			hostPath("run", RunDir, corev1.HostPathDirectoryOrCreate),
			hostPath("lock", "/run/xtables.lock", corev1.HostPathFileOrCreate),
		},
	}
}

// EnvAPIServers tells theseus-agent the addresses of the API servers, HOST:PORT, separated by commas.
const EnvAPIServers = "THESEUS_API_SERVERS"

// reaches has EnvAPIServers, which an older agent does not read; none if the addresses are not known.
func reaches(apiServers []string) []corev1.EnvVar {
	if len(apiServers) == 0 {
		return nil
	}
	return []corev1.EnvVar{{Name: EnvAPIServers, Value: strings.Join(apiServers, ",")}}
}

func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// field is an environment variable from the downward API.
func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
}

// bounded returns resource requests with limits.
func bounded(resources corev1.ResourceRequirements, cpu, memory string) corev1.ResourceRequirements {
	resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
	return resources
}

// onLoopback probes the loopback address, which for a hostNetwork pod is the node's.
func onLoopback(probe *corev1.Probe) *corev1.Probe {
	probe.TCPSocket.Host = "127.0.0.1"
	return probe
}

// listens is a probe that succeeds while the port accepts connections.
func listens(port int) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}},
		PeriodSeconds:    1,
		TimeoutSeconds:   2,
		FailureThreshold: 5,
	}
}
