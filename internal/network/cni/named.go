package cni

import (
	appsv1 "k8s.io/api/apps/v1"
)

// Elsewhere is the hint for networks that Theseus cannot replace in place.
const Elsewhere = "move its workloads and their DNS names to a second cluster that has the network that you want: " +
	"docs/strategies/mirror.md"

// named are networks, and components of networks, that Theseus recognises but does not change, by the name of a
// DaemonSet or by the last part of an image name. First the DaemonSets of the providers, as in their own manifests:
// amazon-vpc-cni-k8s (config/master/aws-k8s-cni.yaml), ovn-kubernetes (dist/templates), kind (images/kindnetd), antrea
// (build/yamls), azure-container-networking (cns/azure-cns.yaml), GKE (netd; anetd is its Dataplane V2), OpenShift.
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

// titles are the names of networks in texts, if they differ from the drivers' names.
var titles = map[string]string{"bridge": "the bridge plugin", "calico": "Calico",
	"cilium": "Cilium", "weave": "Weave Net"}

// NamedBy returns the common name of a DaemonSet's network, such as "Amazon VPC CNI"; empty if Theseus does not
// recognise it.
func NamedBy(set *appsv1.DaemonSet) string {
	for _, n := range named {
		if set.Name == n.set || ImageOf(set.Spec.Template.Spec.Containers, n.image) != "" {
			return n.network
		}
	}
	return ""
}

// Outgoing is a driver whose network is supported as a source only.
type Outgoing interface {
	// NeverComes says why it cannot be a target, and what to do.
	NeverComes() *Refusal
}

// NeverComes refuses the network of a driver as a target, whatever its manifest; nil if it can be a target.
func NeverComes(driver Driver) error {
	if outgoing, ok := driver.(Outgoing); ok {
		return outgoing.NeverComes()
	}
	return nil
}
