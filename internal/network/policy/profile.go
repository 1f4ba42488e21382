package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Dialect says which policies a network enforces, and how.
type Dialect string

// The dialects. Calico and Cilium read NetworkPolicy as well as their own.
const (
	None       Dialect = "none"
	Kubernetes Dialect = "kubernetes"
	Calico     Dialect = "calico"
	Cilium     Dialect = "cilium"
)

// Profile describes how one network treats policies.
type Profile struct {
	// CNI is the network's name, such as "flannel"; Version is a version such as v1.15.3; empty means the newest.
	CNI     string
	Version string
	Dialect Dialect
	// Pods are the ranges from which pods get addresses. A pod whose address is in none of them is assumed to get a new
	// one. Without ranges, pods keep the addresses of the snapshot.
	Pods []netip.Prefix
	// Tunnelled is true if a node may use an address of Pods, instead of its own, as the source of traffic to pods on
	// other nodes.
	Tunnelled bool
	// Firewall is true if kube-router enforces NetworkPolicy, instead of the network or as well as it.
	Firewall bool
}

// ProfileOf returns how an installation interprets policies. An unknown dialect counts as none.
func ProfileOf(installation *cni.Installation) Profile {
	capabilities := installation.Capabilities
	p := Profile{
		CNI: installation.CNI, Version: installation.Version, Dialect: cmp.Or(Dialect(capabilities.Policy), None),
		Tunnelled: capabilities.Encapsulation != "" && capabilities.Encapsulation != "none",
		Firewall:  installation.PolicyAgent != nil,
	}
	for _, text := range installation.PodCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			p.Pods = append(p.Pods, prefix.Masked())
		}
	}
	return p
}

// DeviatesExclusion is the ID of the deviation of selectors that only exclude namespaces.
const DeviatesExclusion = "cilium/exclusion-selects-outside"

// IDs of the other deviations that change verdicts.
const (
	deviatesCIDR       = "cilium/cidr-never-selects-pods"
	deviatesEndPort    = "cilium/end-port-ignored"
	deviatesNamedPorts = "weave/named-port-rejects-policy"
	deviatesRange      = "weave/end-port-ignored"
)

// IDs of the deviations by which egress policies do not apply to what a pod sends to its own node.
const (
	weaveOwnNode   = "weave/own-node-is-free"
	kindnetOwnNode = "kindnet/own-node-is-free"
)

// Deviation is a behaviour of a network that differs from the API's documentation, or that the API leaves open.
type Deviation struct {
	ID  string
	CNI string
	// Until is the first version without it; empty if all versions have it.
	Until string
	Says  string
	// Modelled is true if verdicts take it into account.
	Modelled bool
	Source   string
}

// Deviations returns the known deviations, by network.
func Deviations() []Deviation {
	return []Deviation{
		{ID: "any/host-to-own-pods", CNI: "any", Modelled: true,
			Says:   "a node, and hostNetwork pods on it, always reach the pods on the node (the kubelet's probes)",
			Source: "https://kubernetes.io/docs/concepts/services-networking/network-policies/"},
		{ID: "cilium/deny-of-own-node", CNI: "cilium", Modelled: true,
			Says:   "an ingress deny rule that matches the entity host keeps a node from its own pods, with its probes",
			Source: "https://github.com/cilium/cilium/blob/v1.20.2/pkg/policy/repository.go#L493"},
		{ID: "any/own-node-by-egress", CNI: "any", Modelled: true,
			Says: "an egress policy also applies to what a pod sends to its own node, which the documentation of " +
				"NetworkPolicy says is always allowed",
			Source: "https://github.com/projectcalico/calico/blob/v3.31.0/felix/rules/static.go " +
				"https://docs.cilium.io/en/stable/security/policy/layer3/#entities-based " +
				"https://github.com/cloudnativelabs/kube-router/blob/v1.5.1/pkg/controllers/netpol/pod.go#L240"},
		{ID: weaveOwnNode, CNI: "weave", Modelled: true,
			Says:   "no policy applies to what a pod sends to its own node",
			Source: "https://github.com/weaveworks/weave/blob/v2.6.5/prog/weave-npc/main.go#L184"},
		{ID: kindnetOwnNode, CNI: "kindnet", Modelled: true,
			Says: "no policy applies to what a pod sends to its own node",
			Source: "https://github.com/kubernetes-sigs/kube-network-policies/blob/" +
				"05bc0408d2428fe323340062493a2c305daa9b4b/pkg/networkpolicy/controller.go"},
		{ID: "any/host-network-pods", CNI: "any", Modelled: true,
			Says: "no policy selects a hostNetwork pod, neither as its subject nor by labels as a peer: the pod " +
				"counts as " +
				"its node",
			Source: "https://github.com/projectcalico/felix/issues/1361"},
		{ID: "any/source-is-translated", CNI: "any",
			Says: "traffic through a node port or from outside may arrive with a node's address, which an ipBlock " +
				"of the " +
				"client does not match",
			Source: "https://github.com/projectcalico/calico/issues/9869"},
		{ID: "flannel/enforces-nothing", CNI: "flannel", Modelled: true,
			Says:   "flannel enforces no policy; another agent may",
			Source: "https://github.com/flannel-io/flannel#networking-details"},
		{ID: "calico/nodes-by-ebpf", CNI: "calico",
			Says: "the eBPF data plane treats traffic from a pod to its own node differently than the iptables " +
				"data plane",
			Source: "https://github.com/projectcalico/calico/issues/7056"},
		{ID: "calico/service-address", CNI: "calico",
			Says: "policy is applied after the translation of Service addresses: a rule with a ClusterIP " +
				"matches nothing",
			Source: "https://github.com/projectcalico/calico/issues/3393"},
		{ID: deviatesCIDR, CNI: "cilium", Modelled: true,
			Says: "an address range (ipBlock, fromCIDR, toCIDR) never selects pods, nor nodes unless " +
				"policy-cidr-match-mode says so",
			Source: "https://github.com/cilium/cilium/issues/9209 https://github.com/cilium/cilium/issues/12277 " +
				"https://docs.cilium.io/en/stable/security/policy/layer3/"},
		{ID: DeviatesExclusion, CNI: "cilium", Modelled: true,
			Says: "a selector that only excludes namespaces (NotIn, DoesNotExist) also selects nodes and addresses " +
				"outside of the cluster: before 1.19, and later where policyDefaultLocalCluster is false",
			Source: "https://github.com/cilium/cilium/issues/46949"},
		{ID: deviatesEndPort, CNI: "cilium", Until: "1.16", Modelled: true,
			Says:   "endPort is ignored: only the first port of a range counts",
			Source: "https://github.com/cilium/cilium/issues/28684"},
		{ID: "cilium/sctp", CNI: "cilium",
			Says:   "SCTP is dropped unless sctp.enabled is set",
			Source: "https://docs.cilium.io/en/stable/configuration/sctp/"},
		{ID: deviatesNamedPorts, CNI: "weave", Modelled: true,
			Says:   "a policy with a named port is ignored completely",
			Source: "https://github.com/weaveworks/weave/blob/v2.6.5/npc/analyser.go#L57"},
		{ID: deviatesRange, CNI: "weave", Modelled: true,
			Says:   "endPort is ignored: only the first port of a range counts",
			Source: "https://github.com/weaveworks/weave/blob/v2.6.5/npc/analyser.go#L215"},
	}
}

// deviates reports whether a profile has a deviation.
func (p Profile) deviates(id string) bool {
	return slices.ContainsFunc(Deviations(), func(d Deviation) bool {
		return d.ID == id && d.CNI == p.CNI && (d.Until == "" || older(p.Version, d.Until))
	})
}

// freeOwnNode is the ID of the deviation by which egress policies do not apply to what a pod sends to its own node;
// empty if they do.
func (p Profile) freeOwnNode() string {
	for _, id := range []string{weaveOwnNode, kindnetOwnNode} {
		if p.deviates(id) && !p.Firewall {
			return id
		}
	}
	return ""
}

// OwnNode reports whether a difference is that egress policies do not apply to a pod's own node on one side.
func (d *Difference) OwnNode() bool {
	return slices.Contains(d.Deviations, weaveOwnNode) || slices.Contains(d.Deviations, kindnetOwnNode)
}

// older compares versions by major and minor; an invalid one counts as the newest.
func older(version, than string) bool {
	v, ok := majorMinor(version)
	t, _ := majorMinor(than)
	return ok && slices.Compare(v[:], t[:]) < 0
}

func majorMinor(version string) (parts [2]int, ok bool) {
	fields := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(fields) < 2 {
		return parts, false
	}
	for i := range parts {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return parts, false
		}
		parts[i] = n
	}
	return parts, true
}

func (p Profile) sameAddresses(other Profile) bool {
	return slices.Equal(p.Pods, other.Pods) && p.Tunnelled == other.Tunnelled
}

// rangesLike returns the ranges of a pod's address family; all ranges if the pod has no address yet, or if there are
// none of its family.
func (p Profile) rangesLike(address netip.Addr, known bool) []netip.Prefix {
	var found []netip.Prefix
	for _, prefix := range p.Pods {
		if known && prefix.Addr().Is4() == address.Is4() {
			found = append(found, prefix)
		}
	}
	if len(found) == 0 {
		return p.Pods
	}
	return found
}
