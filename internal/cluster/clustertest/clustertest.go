// Package clustertest generates clusters of any size for benchmarks, and runs real control planes for tests.
package clustertest

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// The shape of a generated cluster, independent of its size.
const (
	PodsPerNode       = 20
	PodsPerDeployment = 10
	perNamespace      = 20 // Deployments
)

// Cluster makes a cluster with the given number of nodes. It has 20 pods and one NetworkPolicy per node, a Deployment,
// a ReplicaSet and a Service per 10 pods, and a PDB for every second Deployment.
func Cluster(nodes int) *cluster.Snapshot {
	s := &cluster.Snapshot{APIVersion: v1alpha1.APIVersion, Kind: cluster.Kind, UID: "generated",
		TakenAt: metav1.Unix(1800000000, 0), Kubernetes: "v1.36.3"}
	for _, resource := range []string{"nodes", "namespaces", "pods", "services", "configmaps",
		"daemonsets", "deployments", "replicasets", "statefulsets", "jobs", "poddisruptionbudgets", "networkpolicies",
		"persistentvolumes", "apiservices",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "customresourcedefinitions",
		"crd.projectcalico.org"} {
		s.Sources = append(s.Sources, cluster.Source{Resource: resource, From: "generated"})
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, node(i))
		s.Facts = append(s.Facts, facts(i))
		s.NetworkPolicies = append(s.NetworkPolicies, policy(i))
	}
	for i := range nodes * PodsPerNode {
		s.Pods = append(s.Pods, pod(i, nodes))
	}
	for i := range nodes * PodsPerNode / PodsPerDeployment {
		addWorkload(s, i)
	}
	s.Rights = []cluster.Right{{Verb: "create", Resource: "pods/eviction", Allowed: true}}
	return s
}

// Reflectors is Cluster on Calico without the full mesh: the first three nodes are kubeadm's control plane
// and reflect the routes of all, picked by the label node-role.kubernetes.io/master.
func Reflectors(nodes int) *cluster.Snapshot {
	const master = "node-role.kubernetes.io/master"
	s := Cluster(nodes)
	s.Kubernetes = "v1.23.17"
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Annotations = map[string]string{"projectcalico.org/IPv4Address": address(i) + "/12",
			"kubeadm.alpha.kubernetes.io/cri-socket": "/run/containerd/containerd.sock"}
		if i < 3 {
			n.Labels[master], n.Labels["node-role.kubernetes.io/control-plane"] = "", ""
			n.Annotations["projectcalico.org/RouteReflectorClusterID"] = "244.0.0.1"
			n.Spec.Taints = []corev1.Taint{{Key: master, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	add := func(resource, kind, name string, spec map[string]any) {
		s.Other = append(s.Other,
			unstructured.Unstructured{Object: map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": kind,
				"metadata": map[string]any{"name": name}, "spec": spec}})
		s.Sources = append(s.Sources, cluster.Source{Resource: resource + ".crd.projectcalico.org", From: "generated"})
	}
	add("bgpconfigurations", "BGPConfiguration", "default", map[string]any{"nodeToNodeMeshEnabled": false})
	add("bgppeers", "BGPPeer", "nodes",
		map[string]any{"nodeSelector": "!has(" + master + ")", "peerSelector": "has(" + master + ")"})
	add("bgppeers", "BGPPeer", "reflectors",
		map[string]any{"nodeSelector": "has(" + master + ")", "peerSelector": "has(" + master + ")"})
	add("ippools", "IPPool", "default",
		map[string]any{"cidr": "10.128.0.0/9", "nodeSelector": "all()", "ipipMode": "Never", "vxlanMode": "Never"})
	return s
}

func address(i int) string    { return fmt.Sprintf("172.%d.%d.%d", 16+i>>16, i>>8&255, i&255) }
func nodeName(i int) string   { return fmt.Sprintf("node-%d", i) }
func namespace(d int) string  { return fmt.Sprintf("team-%d", d/perNamespace) }
func deployment(d int) string { return fmt.Sprintf("app-%d", d) }

func node(i int) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i),
			Labels: map[string]string{"kubernetes.io/hostname": nodeName(i)}},
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.%d.%d.0/24", 128+i>>8, i&255)},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address(i)}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"),
				corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")},
			Images: []corev1.ContainerImage{{Names: []string{"agent:v1"}}},
		},
	}
}

func facts(i int) cluster.NodeFacts {
	return cluster.NodeFacts{Node: nodeName(i), Folders: new(cluster.DefaultFolders()),
		ConfFiles: []string{"10-flannel.conflist"}, Links: []cluster.Link{
			{Name: "eth0", MTU: 1500, Addresses: []string{address(i) + "/12"}},
			{Name: "flannel.1", MTU: 1450, VNI: 1, Port: 8472}, {Name: "cni0", MTU: 1450},
		}, Kernel: "6.1.0-13-amd64", Host: &cluster.Host{
			Clock: cluster.Clock{At: time.Unix(1800000000, 0).UTC(), Asked: time.Unix(1800000000, 0).UTC(),
				Answered: time.Unix(1800000001, 0).UTC()},
			Modules:  map[string]string{"vxlan": "loaded", "ip_set": "loaded", "xt_set": "loadable"},
			IPTables: map[string]int{"nft": 200}, Paths: []cluster.PathMTU{{To: address(i + 1), MTU: 1500, Link: 1500}},
		}}
}

func policy(i int) networkingv1.NetworkPolicy {
	d := i * PodsPerNode / PodsPerDeployment
	return networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(d), Name: fmt.Sprintf("policy-%d", i)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": deployment(d)}},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": deployment(d + 1)}}},
			}}},
		},
	}
}

func pod(i, nodes int) corev1.Pod {
	yes := true
	d := i / PodsPerDeployment
	spec := podSpec()
	spec.NodeName = nodeName(i % nodes)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace(d), Name: fmt.Sprintf("%s-%d", deployment(d), i), ResourceVersion: "123456",
			Labels: map[string]string{"app": deployment(d), "pod-template-hash": "5b9c7d8f6"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
				Name: deployment(d) + "-5b9c7d8f6", UID: "u", Controller: &yes}},
		},
		Spec: spec,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: address(i % nodes),
			PodIP: fmt.Sprintf("10.%d.%d.%d", 128+i>>16&127, i>>8&255, i&255),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true,
				Image: "registry.example.org/team/app:v1.2.3", ContainerID: "containerd://0123456789abcdef"}},
		},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{
		Name: "app", Image: "registry.example.org/team/app:v1.2.3", Env: []corev1.EnvVar{{Name: "A"}, {Name: "B"}},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
		VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", ReadOnly: true,
			MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}}}
}

func addWorkload(s *cluster.Snapshot, d int) {
	yes, replicas := true, int32(PodsPerDeployment)
	meta := metav1.ObjectMeta{Namespace: namespace(d), Name: deployment(d)}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": deployment(d)}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: podSpec()}
	s.Deployments = append(s.Deployments, appsv1.Deployment{ObjectMeta: meta,
		Spec:   appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template},
		Status: appsv1.DeploymentStatus{Replicas: replicas, ReadyReplicas: replicas}})
	set := metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name + "-5b9c7d8f6",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: meta.Name,
			UID: "u", Controller: &yes}}}
	s.ReplicaSets = append(s.ReplicaSets, appsv1.ReplicaSet{ObjectMeta: set,
		Spec:   appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector, Template: template},
		Status: appsv1.ReplicaSetStatus{Replicas: replicas, ReadyReplicas: replicas}})
	s.Services = append(s.Services, corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.96.%d.%d", d>>8&255, d&255),
			Selector: selector.MatchLabels}})
	if d%2 == 0 {
		one := intstr.FromInt32(1)
		s.Budgets = append(s.Budgets, policyv1.PodDisruptionBudget{ObjectMeta: meta,
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: &one}})
	}
}
