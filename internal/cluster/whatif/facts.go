package whatif

import (
	corev1 "k8s.io/api/core/v1"
)

// The labels and taints of control-plane nodes, old and new.
const (
	Master       = "node-role.kubernetes.io/master"
	ControlPlane = "node-role.kubernetes.io/control-plane"
)

// fact is one thing that an upgrade of Kubernetes does to nodes.
type fact struct {
	// minor is the minor version that does it.
	minor int
	// distributions that do it; those which are not named keep what they have.
	distributions []string
	label         labelChange
	taint         taintChange
	// onlyNew is true where nodes that exist keep what they have, and those that join later differ.
	onlyNew bool
	why     string
	source  string
}

// labelChange removes a label from all nodes that have it, or adds one to the nodes that have another one.
type labelChange struct {
	remove     string
	add, where string
}

// taintChange does the same with taints of the effect NoSchedule.
type taintChange struct {
	remove     string
	add, where string
}

const (
	kubeadmSource = "https://github.com/kubernetes/kubernetes/pull/107533 (KEP-2067)"
	kopsSource    = "https://kops.sigs.k8s.io/releases/1.24-notes/"
)

// newest is the minor version of Kubernetes 1 whose changes to nodes were last looked for.
const newest = 36

// facts are what is known, by version.
func facts() []fact {
	return []fact{
		{minor: 20, distributions: []string{Kubeadm}, label: labelChange{add: ControlPlane, where: Master},
			why:    "kubeadm adds the new label to every node that has the old one",
			source: "https://github.com/kubernetes/kubernetes/blob/master/CHANGELOG/CHANGELOG-1.20.md (KEP-2067)"},
		{minor: 24, distributions: []string{Kubeadm}, label: labelChange{remove: Master},
			why: "the first `kubeadm upgrade apply` removes it from ALL control-plane nodes: to upgrade one node " +
				"first " +
				"does not help",
			source: kubeadmSource},
		{minor: 24, distributions: []string{Kubeadm}, taint: taintChange{add: ControlPlane, where: Master},
			why:    "the first `kubeadm upgrade apply` adds the new taint to every node that has the old one",
			source: kubeadmSource},
		{minor: 25, distributions: []string{Kubeadm}, taint: taintChange{remove: Master},
			why:    "the first `kubeadm upgrade apply` removes it from all control-plane nodes",
			source: "https://github.com/kubernetes/kubernetes/pull/110095 (KEP-2067)"},
		{minor: 24, distributions: []string{Kops}, label: labelChange{add: ControlPlane, where: Master},
			why: "kOps replaces the nodes, and new ones have only the new label", source: kopsSource},
		{minor: 24, distributions: []string{Kops}, label: labelChange{remove: Master},
			why: "kOps replaces the nodes, and new ones have only the new label", source: kopsSource},
		{minor: 24, distributions: []string{Kops}, label: labelChange{remove: "kubernetes.io/role"},
			why: "kOps replaces the nodes, and new ones do not have it", source: kopsSource},
		{minor: 24, distributions: []string{Kops}, taint: taintChange{add: ControlPlane, where: Master},
			why: "kOps replaces the nodes, and new ones have only the new taint", source: kopsSource},
		{minor: 24, distributions: []string{Kops}, taint: taintChange{remove: Master},
			why: "kOps replaces the nodes, and new ones have only the new taint", source: kopsSource},
		{minor: 34, distributions: []string{K3s, RKE2}, label: labelChange{remove: Master}, onlyNew: true,
			why:    "nodes that join no longer get it; those that have it keep it",
			source: "https://github.com/k3s-io/k3s/issues/11117, https://github.com/rancher/rke2/issues/7042"},
	}
}

// Replacement is the label that stands for another one since that was deprecated; empty when there is none.
// The beta labels are deprecated and nothing has removed them yet: the kubelet of v1.36 still sets os and
// arch, and https://github.com/kubernetes/kubernetes/issues/142011 is about the others.
func Replacement(key string) string {
	return map[string]string{
		Master:                              ControlPlane,
		"beta.kubernetes.io/os":             corev1.LabelOSStable,
		"beta.kubernetes.io/arch":           corev1.LabelArchStable,
		corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	}[key]
}

// kept are the labels that a new node has again: those of the kubelet, of the cloud, and of its pool.
// A key that ends in / or . stands for all that begin with it.
var kept = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable,
	corev1.LabelWindowsBuild, "beta.kubernetes.io/", "topology.", "failure-domain.beta.kubernetes.io/",
	ControlPlane, Master, "kubernetes.io/role",
	"eks.amazonaws.com/", "alpha.eksctl.io/", "karpenter.sh/", "karpenter.k8s.aws/",
	"cloud.google.com/", "kubernetes.azure.com/", "agentpool", "kops.k8s.io/", "node.openshift.io/",
}

// keptTaints are those that a new node has again.
var keptTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", ControlPlane, Master}

// lostAnnotations are those that people put on nodes and that mean something to a network.
var lostAnnotations = []string{clusterID, "projectcalico.org/ASNumber"}
