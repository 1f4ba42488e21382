package adopt

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// Clashes are the reasons why a cluster's pods cannot be adopted from its network by another.
func Clashes(snapshot *cluster.Snapshot, source, target cni.Installation) []joint.Clash {
	var found []joint.Clash
	clash := func(id, message string) {
		found = append(found, joint.Clash{ID: id, Message: message, Hint: joint.RecreateHint(snapshot, source, target)})
	}
	ofNodes := target.Capabilities.CIDRSource == "node"
	if ofNodes {
		if why := misfit(snapshot, source, target); why != "" {
			clash("addresses", why)
		}
	}
	if source.Capabilities.Attachment == nil {
		why := "moving running pods from " + source.CNI + " permanently was never tested"
		if reason := source.Capabilities.Unattached; reason != "" {
			why = "running pods cannot be taken from " + source.CNI + ": " + reason
		}
		clash("attachment", why)
	}
	if node := unseen(snapshot, source); node != "" {
		clash("addresses", "node "+node+" was not inspected (theseus snapshot --nodes), and new pods must not get "+
			"the addresses of "+source.CNI+"'s own interfaces")
	}
	if _, err := NodeBits(snapshot, source); !ofNodes && err != nil {
		clash("ranges", err.Error())
	}
	for i := range snapshot.Nodes {
		info := &snapshot.Nodes[i].Status.NodeInfo
		if !strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") {
			clash("runtime", "node "+snapshot.Nodes[i].Name+" runs "+orUnknown(info.ContainerRuntimeVersion)+
				", and Theseus was only run with containerd: each runtime keeps its own record of a pod's network")
			break
		}
	}
	if where := strict(snapshot, source); where != "" {
		clash("rp-filter", where+" drops packets whose replies would leave over another interface (rp_filter 1); "+
			"during the adoption, packets between a node and pods of other nodes use the nodes' own interfaces of "+
			source.CNI+" in one direction and a tunnel in the other")
	}
	return found
}

// unseen is a node of a flat network of whose interfaces nothing is known; empty where there is none, and on other
// networks, where the nodes' own ranges tell.
func unseen(snapshot *cluster.Snapshot, source cni.Installation) string {
	for i := range snapshot.Nodes {
		name := snapshot.Nodes[i].Name
		if source.Capabilities.Flat && !slices.ContainsFunc(snapshot.Facts,
			func(f cluster.NodeFacts) bool { return f.Node == name }) {
			return name
		}
	}
	return ""
}

// Unadoptable says which pods of a flat network keep all others from being adopted, as they cannot be; empty where
// there are none. Such a pod would keep its address until it was created again, and until then no new pod could get
// any.
func Unadoptable(source cni.Installation, outlook joint.Outlook) string {
	for node, pods := range outlook.Unadoptable {
		if source.Capabilities.Flat && len(pods) > 0 {
			return fmt.Sprintf("%s on %s cannot be adopted, and until the last pod has left %s, no network could "+
				"assign addresses to new pods", pods[0].Name, node, source.CNI)
		}
	}
	return ""
}

// strict names an interface at which packets of connections that outlive a network without tunnels would be dropped;
// empty where none is known.
func strict(snapshot *cluster.Snapshot, source cni.Installation) string {
	if source.Capabilities.Encapsulation != "none" {
		return ""
	}
	for i := range snapshot.Facts {
		facts := &snapshot.Facts[i]
		for _, link := range facts.Links {
			if slices.Contains(source.Capabilities.HostLinks, link.Name) || len(link.Addresses) == 0 {
				continue
			}
			if max(facts.RPFilter["all"], facts.RPFilter[link.Name]) == 1 {
				return link.Name + " of node " + facts.Node
			}
		}
	}
	return ""
}

func orUnknown(text string) string {
	if text == "" {
		return "an unknown container runtime"
	}
	return text
}

type rangeError string

func (e rangeError) Error() string { return string(e) }

// flatBits is the length of the prefix of the target's blocks in a range that no node has a part of: the first pod to
// come claims one for its node, so they are small enough that few of other nodes' pods have an address of it.
const flatBits = 26

// NodeBits is the length of the prefix of the nodes' ranges: each lies in a range of the source's, and all are of one
// size, so that a block of addresses of the target's is the range of one node. On a flat network it is that of blocks.
func NodeBits(snapshot *cluster.Snapshot, source cni.Installation) (int, error) {
	all := strings.Join(source.PodCIDRs, ", ")
	if source.Capabilities.Flat {
		ranges, err := rangesOf(source)
		switch {
		case err != nil:
			return 0, err
		case len(ranges) != 1 || ranges[0].Bits() > flatBits:
			return 0, rangeError("the range of " + source.CNI + ", " + all + ", is not a single range of at least " +
				strconv.Itoa(1<<(32-flatBits)) + " addresses")
		}
		return flatBits, nil
	}
	if source.Capabilities.CIDRSource != "node" || all == "" {
		return 0, rangeError(source.CNI + " does not give each node one range of addresses of its own")
	}
	ranges, err := rangesOf(source)
	if err != nil {
		return 0, err
	}
	bits := 0
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		own, err := netip.ParsePrefix(node.Spec.PodCIDR)
		switch {
		case err != nil || rangeOf(own, ranges) < 0:
			return 0, rangeError("the range of node " + node.Name + " (" + node.Spec.PodCIDR +
				") is not within that of " + source.CNI + ", " + all)
		case bits != 0 && own.Bits() != bits:
			return 0, rangeError("the ranges of the nodes have different sizes")
		}
		bits = own.Bits()
	}
	return bits, nil
}

func rangesOf(source cni.Installation) ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, cidr := range source.PodCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || !prefix.Addr().Is4() {
			return nil, rangeError("the range of " + source.CNI + ", " + cidr + ", is not an IPv4 range")
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

// rangeOf is the index of the range that a node's own is within; -1 where there is none.
func rangeOf(own netip.Prefix, ranges []netip.Prefix) int {
	return slices.IndexFunc(ranges, func(p netip.Prefix) bool {
		return p.Contains(own.Addr()) && own.Bits() >= p.Bits()
	})
}

// adoptedValues say for each node of which of the source's ranges its own is a part.
func adoptedValues(snapshot *cluster.Snapshot, source cni.Installation) map[string]string {
	ranges, _ := rangesOf(source) // an error is a clash, as is a node without a part
	values := map[string]string{}
	for i := range snapshot.Nodes {
		own, _ := netip.ParsePrefix(snapshot.Nodes[i].Spec.PodCIDR)
		if source.Capabilities.Flat {
			own = ranges[0]
		}
		if at := rangeOf(own, ranges); at >= 0 {
			values[snapshot.Nodes[i].Name] = cni.AdoptedValue(source.PodCIDRs[at])
		}
	}
	return values
}

// last is the address of a range by which all in it are called at once.
func last(within netip.Prefix) netip.Addr {
	bytes := within.Addr().As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])|(1<<(32-within.Bits())-1))
	return netip.AddrFrom4(bytes)
}

// Reserved are the addresses that no new pod may get for as long as the source is there: those of the source's
// own interfaces, which are the first two of each node's range unless nodes say otherwise, and of the pods that stay on
// it for a while; on a flat network also those that stand for no single one.
func Reserved(snapshot *cluster.Snapshot, source cni.Installation, outlook joint.Outlook) []string {
	var all []string
	first := map[string]netip.Prefix{}
	if ranges, _ := rangesOf(source); source.Capabilities.Flat && len(ranges) == 1 {
		all = append(all, ranges[0].Addr().String()+"/32", last(ranges[0]).String()+"/32")
	}
	for i := range snapshot.Nodes {
		if own, err := netip.ParsePrefix(snapshot.Nodes[i].Spec.PodCIDR); err == nil && !source.Capabilities.Flat {
			first[snapshot.Nodes[i].Name] = netip.PrefixFrom(own.Addr(), min(31, own.Addr().BitLen()))
			all = append(all, first[snapshot.Nodes[i].Name].String())
		}
	}
	for i := range snapshot.Facts {
		for _, link := range snapshot.Facts[i].Links {
			for _, text := range link.Addresses {
				own, err := netip.ParsePrefix(text)
				if slices.Contains(source.Capabilities.HostLinks, link.Name) && err == nil && own.Addr().Is4() &&
					!first[snapshot.Facts[i].Node].Contains(own.Addr()) {
					all = append(all, own.Addr().String()+"/32")
				}
			}
		}
	}
	for _, pods := range outlook.Unadoptable {
		for _, pod := range pods {
			if pod.Address != "" {
				all = append(all, pod.Address+"/32")
			}
		}
	}
	slices.Sort(all)
	return all
}
