package cni

import (
	appsv1 "k8s.io/api/apps/v1"
)

// Elsewhere is the way where Theseus changes no network.
const Elsewhere = "move its workloads and their names to a second cluster with the network that you want: docs/strategies/mirror.md"

// named are networks, and parts of networks, that Theseus tells by name and does not change, by a DaemonSet of theirs or by the last
// word of an image's name. First the DaemonSets of the providers, as in their own manifests: amazon-vpc-cni-k8s
// (config/master/aws-k8s-cni.yaml), ovn-kubernetes (dist/templates), kind (images/kindnetd), antrea (build/yamls),
// azure-container-networking (cns/azure-cns.yaml), GKE (netd; anetd is its Dataplane V2), OpenShift.
var named = []struct{ network, set, image string }{
	{"Amazon VPC CNI", "aws-node", "amazon-k8s-cni"},
	{"OVN-Kubernetes", "ovnkube-node", "ovn-kubernetes"},
	{"OpenShift SDN", "sdn", "openshift-sdn"},
	{"kindnet", "kindnet", "kindnetd"},
	{"Antrea", "antrea-agent", "antrea-agent-ubuntu"},
	{"Azure CNI", "azure-cns", "azure-cns"},
	{"GKE Dataplane V2", "anetd", "anetd"},
	{"GKE's own network", "netd", "netd-amd64"},
	{"kube-router", "kube-router", "kube-router"},
}

// NamedBy is the network that a DaemonSet is of, as people know it, such as "Amazon VPC CNI"; empty where Theseus does not know.
func NamedBy(set *appsv1.DaemonSet) string {
	for _, n := range named {
		if set.Name == n.set || ImageOf(set.Spec.Template.Spec.Containers, n.image) != "" {
			return n.network
		}
	}
	return ""
}

// Outgoing is a driver whose network Theseus moves clusters away from, and never to.
type Outgoing interface {
	// NeverComes says why, and what to do.
	NeverComes() *Refusal
}

// NeverComes refuses the network of a driver as the one to come, whatever its manifest; nil of those that may come.
func NeverComes(driver Driver) error {
	if outgoing, ok := driver.(Outgoing); ok {
		return outgoing.NeverComes()
	}
	return nil
}
