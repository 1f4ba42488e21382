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

// oldest is the oldest kernel that Calico, the only target, asks for; what a move needs of a kernel is older. From
// renaming on, Linux renames an interface that is up ("net/core: Allow live renaming when an interface is up").
var oldest, renaming = version.MustParseGeneric("5.10"), version.MustParseGeneric("6.2")

// Parks reports whether a kernel of this version, as a Node tells it, moves pods only by parking them. The agent does
// not ask for the version; it tries on its node.
func Parks(kernel string) bool {
	found, err := version.ParseGeneric(kernel)
	return err == nil && found.AtLeast(oldest) && found.LessThan(renaming)
}

// Unfit says for each pod why it cannot be adopted, empty if it can: such a pod is created again. On a flat network a
// pod may have any address of the range; orders are those to the network to come. What only its node knows is found by
// the agent there.
func Unfit(snapshot *cluster.Snapshot, flat bool, orders *step.Orders) func(*corev1.Pod) string {
	ranges := map[string]netip.Prefix{}
	old := map[string]string{}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if own, err := netip.ParsePrefix(node.Spec.PodCIDR); err == nil {
			ranges[node.Name] = own
		}
		kernel := node.Status.NodeInfo.KernelVersion
		if found, err := version.ParseGeneric(kernel); err != nil || found.LessThan(oldest) {
			old[node.Name] = "the kernel of its node (" + kernel + ") is older than Linux " +
				oldest.String() + ", or unknown"
		}
	}
	return func(pod *corev1.Pod) string {
		if reason := old[pod.Spec.NodeName]; reason != "" {
			return reason
		}
		if len(pod.Status.PodIPs) > 1 {
			return "it has addresses of two families"
		}
		if address, err := netip.ParseAddr(pod.Status.PodIP); err == nil && !flat &&
			!ranges[pod.Spec.NodeName].Contains(address) {
			return "its address is not in its node's range"
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
