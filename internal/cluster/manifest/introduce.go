package manifest

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// IntroduceName is the name of the Deployment that introduces pods of one network to the agents of another, and of its
// RBAC objects.
const IntroduceName = "theseus-introduce"

// Introduce returns the Deployment that introduces the pods with addresses in some ranges to the agents of a network,
// and its RBAC objects, in the order in which to apply them. rights are what it may do in addition to reading pods and
// namespaces; replicas, each on a node of its own, do the same work. apiServers are as for Agent.
func Introduce(image, network string, pods []string, rights []rbacv1.PolicyRule, replicas int,
	apiServers []string) []unstructured.Unstructured {
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	everywhere := meta(IntroduceName)
	everywhere.Namespace = ""
	reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "pods"},
		Verbs: []string{"get", "list", "watch"}}
	return []unstructured.Unstructured{
		*convert(&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: meta(IntroduceName)}),
		*convert(&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: everywhere,
			Rules: append([]rbacv1.PolicyRule{reads}, rights...)}),
		*convert(&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: everywhere,
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: IntroduceName, Namespace: v1alpha1.Namespace}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: IntroduceName}}),
		*convert(introducer(image, network, pods, replicas, apiServers)),
	}
}

// introducer runs on any node, in the host's network, so that it depends on neither pod network. It needs no
// privileges.
func introducer(image, network string, pods []string, replicas int, apiServers []string) *appsv1.Deployment {
	labels := map[string]string{LabelApp: IntroduceName}
	soon := func(taint string) corev1.Toleration {
		return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(10))}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta(IntroduceName, LabelApp, IntroduceName),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			// its port is one of the node
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelApp: IntroduceName,
					v1alpha1.LabelManaged: "true"}},
				Spec: corev1.PodSpec{
					ServiceAccountName:            IntroduceName,
					HostNetwork:                   true,
					DNSPolicy:                     corev1.DNSDefault,
					PriorityClassName:             "system-cluster-critical",
					TerminationGracePeriodSeconds: new(int64(5)),
					// It runs elsewhere soon when its node is lost. The first toleration of a taint counts.
					Tolerations: []corev1.Toleration{soon(corev1.TaintNodeUnreachable), soon(corev1.TaintNodeNotReady),
						{Operator: corev1.TolerationOpExists}},
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(ProberUser)), RunAsGroup: new(int64(ProberUser)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name:            "introduce",
						Image:           image,
						ImagePullPolicy: corev1.PullIfNotPresent,
						Args:            []string{"introduce", "--to", network, "--pods", strings.Join(pods, ",")},
						Env:             reaches(apiServers),
						SecurityContext: unprivileged(),
						Resources:       bounded(requests("20m", "64Mi"), "2", "2Gi"),
						// The scheduler keeps pods with the same port of a node on different nodes.
						Ports: []corev1.ContainerPort{{ContainerPort: PortIntroduce, HostPort: PortIntroduce,
							HostIP: "127.0.0.1", Protocol: corev1.ProtocolTCP}},
						ReadinessProbe: onLoopback(listens(PortIntroduce)),
					}},
				},
			},
		},
	}
}
