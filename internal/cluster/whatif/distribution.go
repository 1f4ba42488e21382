package whatif

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// The distributions that are told apart.
const (
	Kubeadm   = "kubeadm"
	Kops      = "kOps"
	K3s       = "k3s"
	RKE2      = "RKE2"
	OpenShift = "OpenShift"
	EKS       = "EKS"
	GKE       = "GKE"
	AKS       = "AKS"
)

// Distribution tells what made the cluster, from what it leaves on nodes; empty when nothing tells.
func Distribution(s *cluster.Snapshot) string {
	if s.ConfigMap("kube-system", "kubeadm-config") != nil {
		return Kubeadm
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		kubelet := n.Status.NodeInfo.KubeletVersion
		for _, sign := range []struct {
			found        bool
			distribution string
		}{
			{n.Annotations["kubeadm.alpha.kubernetes.io/cri-socket"] != "", Kubeadm},
			{strings.Contains(kubelet, "+k3s"), K3s},
			{strings.Contains(kubelet, "+rke2"), RKE2},
			{n.Labels["kops.k8s.io/instancegroup"] != "", Kops},
			{n.Labels["node.openshift.io/os_id"] != "", OpenShift},
			{strings.Contains(kubelet, "-eks-"), EKS},
			{strings.Contains(kubelet, "-gke."), GKE},
			{n.Labels["kubernetes.azure.com/cluster"] != "", AKS},
		} {
			if sign.found {
				return sign.distribution
			}
		}
	}
	return ""
}

// Version is the cluster's version of Kubernetes: the API server's, or else the newest of its kubelets,
// which is never newer than the API server; nil when neither is known.
func Version(s *cluster.Snapshot) *version.Version {
	if v, err := version.ParseGeneric(s.Kubernetes); err == nil {
		return v
	}
	var newest *version.Version
	for i := range s.Nodes {
		v, err := version.ParseGeneric(s.Nodes[i].Status.NodeInfo.KubeletVersion)
		if err == nil && (newest == nil || newest.LessThan(v)) {
			newest = v
		}
	}
	return newest
}
