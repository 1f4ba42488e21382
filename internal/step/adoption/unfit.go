package adoption

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// oldestKernel can rename an interface that is up, which a pod's own must be while it moves (Linux 6.2).
const oldestKernel = "6.2"

// Unfit says for each pod why it cannot be adopted, empty if it can: such a pod is created again. On a flat network a pod
// may have any address of the range; orders are those to the network to come. What only its node knows is found by the agent there.
func Unfit(snapshot *cluster.Snapshot, flat bool, orders *step.Orders) func(*corev1.Pod) string {
	ranges := map[string]netip.Prefix{}
	old := map[string]string{}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if own, err := netip.ParsePrefix(node.Spec.PodCIDR); err == nil {
			ranges[node.Name] = own
		}
		kernel := node.Status.NodeInfo.KernelVersion
		if found, err := version.ParseGeneric(kernel); err != nil || !found.AtLeast(version.MustParseGeneric(oldestKernel)) {
			old[node.Name] = "the kernel of its node (" + kernel + ") cannot rename an interface in use, as Linux " + oldestKernel + " can"
		}
	}
	return func(pod *corev1.Pod) string {
		if reason := old[pod.Spec.NodeName]; reason != "" {
			return reason
		}
		if len(pod.Status.PodIPs) > 1 {
			return "it has addresses of two families"
		}
		if address, err := netip.ParseAddr(pod.Status.PodIP); err == nil && !flat && !ranges[pod.Spec.NodeName].Contains(address) {
			return "its address is not of its node's range"
		}
		for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
			switch {
			case key == "k8s.v1.cni.cncf.io/networks":
				return "it has several interfaces"
			case orders.Has(key):
				return "its annotations ask " + orders.Network + " for something of their own (" + key + ")"
			case key == "kubernetes.io/ingress-bandwidth", key == "kubernetes.io/egress-bandwidth":
				return "its bandwidth is limited"
			}
		}
		return ""
	}
}
