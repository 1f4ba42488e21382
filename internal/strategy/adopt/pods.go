package adopt

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
)

// Clashes are the reasons why a cluster's pods cannot be adopted from its network.
func Clashes(snapshot *cluster.Snapshot, source cni.Installation) []joint.Clash {
	var found []joint.Clash
	clash := func(id, message string) {
		found = append(found, joint.Clash{ID: id, Message: message, Hint: "use --strategy recreate with --pod-cidr"})
	}
	if source.Capabilities.Attachment == nil {
		clash("attachment", "running pods were never taken from "+source.CNI+" as it is configured here")
	}
	if _, err := NodeBits(snapshot, source); err != nil {
		clash("ranges", err.Error())
	}
	for i := range snapshot.Nodes {
		info := &snapshot.Nodes[i].Status.NodeInfo
		if !strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") {
			clash("runtime", "node "+snapshot.Nodes[i].Name+" runs "+orUnknown(info.ContainerRuntimeVersion)+
				", and only containerd was tried: what a runtime remembers of a pod's network is its own")
			break
		}
	}
	return found
}

func orUnknown(text string) string {
	if text == "" {
		return "an unknown container runtime"
	}
	return text
}

type rangeError string

func (e rangeError) Error() string { return string(e) }

// NodeBits is the length of the prefix of the nodes' ranges: each lies in the source's range, and all are of one
// size, so that a block of addresses of the target's is the range of one node.
func NodeBits(snapshot *cluster.Snapshot, source cni.Installation) (int, error) {
	if source.Capabilities.CIDRSource != "node" || len(source.PodCIDRs) != 1 {
		return 0, rangeError(source.CNI + " does not give each node one range of addresses of its own")
	}
	all, err := netip.ParsePrefix(source.PodCIDRs[0])
	if err != nil || !all.Addr().Is4() {
		return 0, rangeError("the range of " + source.CNI + ", " + source.PodCIDRs[0] + ", is no IPv4 range")
	}
	bits := 0
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		own, err := netip.ParsePrefix(node.Spec.PodCIDR)
		switch {
		case err != nil || !all.Contains(own.Addr()) || own.Bits() < all.Bits():
			return 0, rangeError("the range of node " + node.Name + " (" + node.Spec.PodCIDR + ") is not within that of " + source.CNI + ", " + all.String())
		case bits != 0 && own.Bits() != bits:
			return 0, rangeError("the ranges of the nodes are not all of one size")
		}
		bits = own.Bits()
	}
	return bits, nil
}

// Reserved are the addresses that no new pod may get for as long as the source is there: those of the source's
// own interfaces, which are the first two of each node's range, and of the pods that stay on it for a while.
func Reserved(snapshot *cluster.Snapshot, outlook joint.Outlook) []string {
	var all []string
	for i := range snapshot.Nodes {
		if own, err := netip.ParsePrefix(snapshot.Nodes[i].Spec.PodCIDR); err == nil {
			all = append(all, netip.PrefixFrom(own.Addr(), min(31, own.Addr().BitLen())).String())
		}
	}
	for _, pods := range outlook.Apart {
		for _, pod := range pods {
			if pod.Address != "" {
				all = append(all, pod.Address+"/32")
			}
		}
	}
	slices.Sort(all)
	return all
}
