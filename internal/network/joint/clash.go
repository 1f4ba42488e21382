package joint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// JoinArgs are the two networks as arguments of the agent's verb "join": traffic between them keeps its addresses, and
// its return path may be different, because each network only routes to its own pods.
func JoinArgs(source, target cni.Installation) step.JoinArgs {
	return step.JoinArgs{Old: slices.Clone(source.PodCIDRs), New: slices.Clone(target.PodCIDRs),
		Within: source.Capabilities.MasqueradesAll, Untracked: Unused(source, target),
		Marks: slices.Clone(target.Capabilities.Marks)}
}

// Unused returns the UDP port that must not be used for masquerading while some networks are installed, and the pod
// traffic to which that applies; nil if none of the networks exempts a port. Traffic between the networks is not
// included.
func Unused(networks ...cni.Installation) *step.Untracked {
	var port *step.Untracked
	var from, except []string
	for i := range networks {
		caps := &networks[i].Capabilities
		port = cmp.Or(caps.Untracked, port)
		except = append(except, networks[i].PodCIDRs...)
		if caps.Masquerade != nil {
			from, except = append(from, caps.Masquerade.From...), append(except, caps.Masquerade.Except...)
		}
	}
	if port == nil {
		return nil
	}
	unused := step.Untracked{Port: port.Port, Link: port.Link}
	if len(from) > 0 {
		unused.From, unused.Except = distinct(from), distinct(except)
	}
	return &unused
}

// distinct returns the IPv4 ranges, sorted, without duplicates and without ranges inside of others, because an nft set
// accepts no overlapping ranges.
func distinct(ranges []string) []string {
	all := cni.Prefixes(ranges)
	slices.SortFunc(all, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	var kept []string
	var last netip.Prefix
	for _, p := range all {
		if !p.Addr().Is4() || last.IsValid() && last.Overlaps(p) {
			continue
		}
		last = p
		kept = append(kept, p.String())
	}
	return kept
}

// Clash is a reason why two networks cannot run on the same nodes.
type Clash struct {
	// ID is stable: "not-next", "overlap", "ranges", "kernel", "vxlan", "links", "tables", "conf", "not-switched",
	// "kube-proxy", "family", "untried".
	ID string
	// Check is the ID of the check that reports it; empty if only plans do.
	Check   string
	Message string
	Hint    string
}

// Clashes compares two networks by their capabilities. It has no knowledge about specific pairs.
func Clashes(source, target cni.Installation) []Clash {
	var found []Clash
	for _, check := range []func(source, target cni.Installation) []Clash{
		notNext, overlaps, families, sameTunnel, sameLinks, sameTables, unnamedConf, notSwitched, kubeProxy, untried,
	} {
		found = append(found, check(source, target)...)
	}
	return found
}

func overlaps(source, target cni.Installation) []Clash {
	for _, old := range source.PodCIDRs {
		for _, wanted := range target.PodCIDRs {
			a, errA := netip.ParsePrefix(old)
			b, errB := netip.ParsePrefix(wanted)
			if errA == nil && errB == nil && a.Overlaps(b) {
				hint := "choose a free range with --pod-cidr"
				if target.Capabilities.CIDRSource == "node" {
					hint = sameRanges(target)
				}
				return []Clash{{"overlap", "cidr/overlap",
					fmt.Sprintf("the target's range %s overlaps the source's range %s", wanted, old), hint}}
			}
		}
	}
	return nil
}

// notNext: a part of the source's work needs the agent of one network, and no other.
func notNext(source, target cni.Installation) []Clash {
	if source.Cession == nil || source.Cession.To == target.CNI {
		return nil
	}
	return []Clash{{"not-next", "cni/clash", fmt.Sprintf("only the agent of %s can enforce policy for the pods of %s "+
		"while nodes are changed", source.Cession.To, source.Title()),
		"change to " + source.Cession.To + " first, and from there to the network that you want"}}
}

// families: networks can only be joined for IPv4.
func families(source, _ cni.Installation) []Clash {
	for _, old := range source.PodCIDRs {
		if prefix, err := netip.ParsePrefix(old); err == nil && !prefix.Addr().Is4() {
			return []Clash{{"family", "cidr/family", fmt.Sprintf(
				"%s gives pods IPv6 addresses (%s), and two networks are joined for IPv4 only", source.CNI, old),
				"this cluster cannot be changed by this version"}}
		}
	}
	return nil
}

func sameTunnel(source, target cni.Installation) []Clash {
	a, b := source.Capabilities, target.Capabilities
	if a.Encapsulation != "vxlan" || b.Encapsulation != "vxlan" || a.Port != b.Port {
		return nil
	}
	for _, whole := range []cni.Installation{source, target} {
		if whole.Capabilities.WholePort {
			return []Clash{{"vxlan", "vxlan/clash", fmt.Sprintf("both networks would use VXLAN on UDP port %d, and "+
				"%s takes every packet of it, whatever its VNI", a.Port, whole.CNI),
				"give the target another port in its manifest"}}
		}
	}
	if a.VNI != b.VNI {
		return nil
	}
	return []Clash{{"vxlan", "vxlan/clash",
		fmt.Sprintf("both networks would use VXLAN %d on UDP port %d", a.VNI, a.Port),
		"give the target another VNI in its manifest"}}
}

func sameLinks(source, target cni.Installation) []Clash {
	for _, a := range source.Capabilities.HostLinks {
		for _, b := range target.Capabilities.HostLinks {
			if step.Matches([]string{a}, b) || step.Matches([]string{b}, a) {
				return []Clash{{"links", "cni/clash", fmt.Sprintf("both networks would own the interface %s", b),
					"rename the target's interface in its manifest, if it has a setting for that; or move the " +
						"workloads to a " +
						"second cluster (theseus mirror)"}}
			}
		}
	}
	return nil
}

func sameTables(source, target cni.Installation) []Clash {
	for _, table := range source.Capabilities.RouteTables {
		if slices.Contains(target.Capabilities.RouteTables, table) {
			return []Clash{{"tables", "cni/clash", fmt.Sprintf("both networks would own the routing table %d", table),
				"give the target other tables in its manifest"}}
		}
	}
	return nil
}

// unnamedConf: the runtime uses the first file by name, so both names must be known.
func unnamedConf(source, target cni.Installation) []Clash {
	if source.Capabilities.ConfName == "" || target.Capabilities.ConfName == "" {
		return []Clash{{"conf", "cni/clash", "the file name of a network's CNI configuration is unknown",
			"give the network's own manifest"}}
	}
	return nil
}

func notSwitched(source, target cni.Installation) []Clash {
	for _, network := range []cni.Installation{source, target} {
		if !network.Capabilities.SwitchedPerNode {
			return []Clash{{"not-switched", "cni/clash",
				network.CNI + " cannot be switched node by node with its CNI configuration", "configure its agent " +
					"not to " +
					"touch the configurations of other networks, in a separate change"}}
		}
	}
	return nil
}

// kubeProxy: Services would fail when the source is removed, or the target would take them over on all nodes at once.
func kubeProxy(source, target cni.Installation) []Clash {
	switch {
	case source.Capabilities.ReplacesKubeProxy:
		return []Clash{{"kube-proxy", "cni/clash",
			source.CNI + " replaces kube-proxy, so all Services would fail when it is removed",
			"run kube-proxy again and turn the replacement off first, in a separate change, which " +
				"theseus guard measures"}}
	case target.Capabilities.ReplacesKubeProxy:
		return []Clash{{"kube-proxy", "cni/clash",
			target.CNI + " would replace kube-proxy on a node as soon as its agent starts there",
			"install it without the replacement, and turn the replacement on afterwards, in a separate change"}}
	}
	return nil
}

// untried comes last: clashes are more important.
func untried(source, target cni.Installation) []Clash {
	for _, network := range []cni.Installation{source, target} {
		if network.Untried != "" {
			return []Clash{{"untried", "cni/clash", network.Untried,
				"docs/networks.md says what was run and what was not"}}
		}
	}
	return nil
}

// Unranged returns reasons why a network that allocates pod addresses from each node's own range (spec.podCIDR) cannot
// use the range that it routes.
func Unranged(snapshot *cluster.Snapshot, target cni.Installation) []Clash {
	if target.Capabilities.CIDRSource != "node" {
		return nil
	}
	ranges := cni.Prefixes(target.PodCIDRs)
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		own, err := netip.ParsePrefix(node.Spec.PodCIDR)
		if err == nil && slices.ContainsFunc(ranges,
			func(p netip.Prefix) bool { return p.Contains(own.Addr()) && p.Bits() <= own.Bits() }) {
			continue
		}
		message := fmt.Sprintf("%s gives the pods of each node addresses of that node's own range (spec.podCIDR), and ",
			target.CNI)
		if err != nil {
			return []Clash{{"ranges", "", message + "node " + node.Name + " has none",
				"let kube-controller-manager give each node a range: --allocate-node-cidrs, --cluster-cidr"}}
		}
		return []Clash{{"ranges", "", message + fmt.Sprintf("that of node %s, %s, is not within %s",
			node.Name, own, strings.Join(target.PodCIDRs, ", ")),
			whichRange(snapshot, target)}}
	}
	return nil
}

// TooOld returns the first node from whose kernel a network could not be removed again, as a rollback does.
func TooOld(snapshot *cluster.Snapshot, target cni.Installation) []Clash {
	oldest, err := version.ParseGeneric(target.Capabilities.Kernel)
	if err != nil {
		return nil // any kernel will do
	}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		kernel := node.Status.NodeInfo.KernelVersion
		if found, err := version.ParseGeneric(kernel); err != nil || found.LessThan(oldest) {
			return []Clash{{"kernel", "", fmt.Sprintf("node %s has Linux %s, from which a rollback could not remove "+
				"%s completely", node.Name, cmp.Or(kernel, "of an unknown version"), target.Title()),
				"update its kernel to Linux " + target.Capabilities.Kernel + " or later"}}
		}
	}
	return nil
}

// RecreateHint is the hint how pods can be recreated, if they cannot be adopted.
func RecreateHint(snapshot *cluster.Snapshot, source, target cni.Installation) string {
	nodes := target
	nodes.PodCIDRs = cni.NodeRanges(snapshot)
	if target.Capabilities.CIDRSource == "node" && len(overlaps(source, nodes)) > 0 {
		return "nor can they be recreated next to it: " + sameRanges(target)
	}
	return cni.CreateAgain + whichRange(snapshot, target)
}

func sameRanges(target cni.Installation) string {
	return "" + target.CNI + " would use the nodes' own ranges, which the network in place uses; a second cluster " +
		"can take over the workloads (theseus mirror)"
}

// whichRange is the hint which pod range a network can use.
func whichRange(snapshot *cluster.Snapshot, target cni.Installation) string {
	if target.Capabilities.CIDRSource != "node" {
		return cni.FreeRange
	}
	hint := "set --pod-cidr to the range that contains the nodes' own ranges (kube-controller-manager's --cluster-cidr)"
	if own := cni.NodeRanges(snapshot); len(own) > 0 {
		hint += ", which contains " + strings.Join(own[:min(len(own), 3)], ", ")
	}
	return hint
}
