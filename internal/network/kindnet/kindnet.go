// Package kindnet is the driver of the network that kind and minikube install: on every node, kindnetd writes a CNI
// configuration for the plugins ptp and host-local with the node's own range, adds routes to the other nodes' ranges by
// their addresses, and masquerades what leaves for anything but a pod. It is supported as a source only; Install
// refuses. The network of the same name that kOps installs (plugin cni-kindnet) is another one.
package kindnet

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names that are fixed in kindnetd and in the manifests of kind and minikube.
const (
	objects  = "kindnet" // its DaemonSet, account, role and CNI network
	confName = "10-kindnet.conflist"
	addrDir  = "/run/cni-ipam-state" // where host-local keeps addresses
	subnets  = "POD_SUBNET"          // kindnetd ends without it
)

// enforcing is the first version of kindnetd that enforces NetworkPolicy, and separate the first whose nft table has
// a name of its own. Its versions are dates.
const (
	enforcing = "v20240719"
	separate  = "v20241023"
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "kindnet" }

// Install implements cni.Driver: kindnet as a target is not supported.
func (d Driver) Install(cni.Request) (*cni.Target, error) { return nil, d.NeverComes() }

// NeverComes implements cni.Outgoing.
func (Driver) NeverComes() *cni.Refusal {
	return &cni.Refusal{
		Message: "kindnet is not supported as a target",
		Hint:    "Theseus moves clusters away from kindnet; choose another target with --to",
	}
}

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	for i := range snapshot.DaemonSets {
		if daemon := daemonOf(&snapshot.DaemonSets[i]); daemon != nil {
			return describe(snapshot, &snapshot.DaemonSets[i], daemon)
		}
	}
	for i := range snapshot.Facts {
		if conf, ok := snapshot.Facts[i].Serving(); ok && ours(conf) {
			return &cni.Installation{
				CNI: "kindnet", Capabilities: capabilities(conf.File),
				Agent: step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: objects},
				Problems: []string{conf.File + " serves new pods on node " + snapshot.Facts[i].Node +
					", but no DaemonSet runs kindnetd: it was removed, or is only partly installed"},
			}
		}
	}
	return nil
}

// daemonOf returns the container of a DaemonSet that runs kindnetd.
func daemonOf(set *appsv1.DaemonSet) *corev1.Container {
	containers := set.Spec.Template.Spec.Containers
	for i := range containers {
		if cni.ImageOf(containers[i:i+1], "kindnetd") != "" &&
			slices.ContainsFunc(containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == subnets }) {
			return &containers[i]
		}
	}
	return nil
}

// ours reports whether a CNI configuration is one of kindnetd's.
func ours(conf cluster.Conf) bool {
	return conf.Network == objects && conf.Plugins[0] == "ptp" && conf.IPAM == "host-local"
}

func describe(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet, daemon *corev1.Container) *cni.Installation {
	found := &cni.Installation{
		CNI: "kindnet", Version: cluster.ImageOf(daemon.Image).Tag, Agent: cni.DaemonSetRef(agent),
		Selector: cni.SelectorOf(agent), Capabilities: capabilities(confName),
		ConfFolder: cni.HostFolder(agent, "/etc/cni/net.d"),
		Data:       []string{path.Join(addrDir, objects)},
	}
	found.PodCIDRs, found.Problems = rangesOf(snapshot, daemon)
	caps := &found.Capabilities
	if atLeast(found.Version, enforcing) {
		caps.Policy = cni.PolicyKubernetes
	}
	caps.Masquerade = &cni.Masquerade{From: found.PodCIDRs, Except: found.PodCIDRs}
	found.Problems = append(found.Problems, written.Compare(snapshot, found)...)
	router := cni.Firewall(snapshot)
	cni.BesideFirewall(snapshot, router, found)
	runs, rights := cni.FirewallParts(router)
	found.Parts = slices.Concat(runs, []step.Ref{found.Agent}, cni.Rights(agent, objects), rights)
	found.Problems = append(found.Problems, cni.NotReady(snapshot, agent)...)
	found.Problems = append(found.Problems, cni.Unfinished(agent, confName)...)
	return found
}

// capabilities are those of every kindnet. Each pod is at the end of a pair of interfaces of its own, whose other end
// has a name that the plugin draws; routes lead to nodes.
func capabilities(conf string) cni.Capabilities {
	return cni.Capabilities{
		CIDRSource: "node", KeptFirst: 2, KeptLast: 1, Encapsulation: "none", HostLinks: []string{"veth*"},
		ConfName: conf, Policy: cni.PolicyNone, SwitchedPerNode: true, MasqueradesAll: true,
		Unattached: "if a node's pod range is routed through a gateway other than that node, kindnetd deletes the " +
			"route; and its pods are not attached to a bridge, and Theseus can only adopt pods from a bridge",
	}
}

// atLeast compares versions of kindnetd, which begin with a date. An unknown one counts as new.
func atLeast(version, first string) bool {
	return len(version) < len(first) || !strings.HasPrefix(version, "v2") || version[:len(first)] >= first
}

// rangesOf returns the range of all pods, in which that of each node must be.
func rangesOf(snapshot *cluster.Snapshot, daemon *corev1.Container) (cidrs, problems []string) {
	var all []netip.Prefix
	for _, env := range daemon.Env {
		if env.Name != subnets {
			continue
		}
		if env.ValueFrom != nil {
			problems = append(problems, "the value of "+subnets+
				" comes from another object (valueFrom), so Theseus does not know it")
			continue
		}
		for text := range strings.SplitSeq(strings.TrimSpace(env.Value), ",") {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s is %q, which is not a list of CIDRs", subnets, env.Value))
				continue
			}
			all = append(all, prefix.Masked())
			cidrs = append(cidrs, prefix.Masked().String())
		}
	}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		for _, text := range cni.RangesOf(node) {
			own, err := netip.ParsePrefix(text)
			if err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(p netip.Prefix) bool {
				return p.Bits() <= own.Bits() && p.Contains(own.Addr())
			}) {
				problems = append(problems, fmt.Sprintf("node %s has the range %s, which is not in %s (%s of kindnetd)",
					node.Name, text, strings.Join(cidrs, ", "), subnets))
			}
		}
	}
	return cidrs, problems
}

// written is how kindnetd writes the nodes' configurations: with the MTU of eth0.
var written = cni.Written{Agent: "kindnetd", Ours: ours, MTU: func(facts *cluster.NodeFacts, node *corev1.Node) int {
	if uplink := facts.Uplink(node); uplink != nil {
		return uplink.MTU
	}
	return 0
}}

// Residue implements cni.Driver. The plugins themselves are those of many networks. The pairs of interfaces go with the
// pods. When kindnetd is ended, its rules and its table stay; packets pass the table then.
func (Driver) Residue(found *cni.Installation) step.Residue {
	residue := step.Residue{
		Chains:    []string{"KIND-MASQ-AGENT"},
		Routes:    found.PodCIDRs,
		ConfFiles: []string{found.Capabilities.ConfName, confName + ".temp"},
		Paths:     []string{cni.Remembered(objects)},
	}
	for _, data := range found.Data {
		if data == path.Join(addrDir, objects) {
			data = addrDir // of nothing else
		}
		residue.Paths = append(residue.Paths, data)
	}
	if atLeast(found.Version, enforcing) {
		table := "inet kindnet-network-policies"
		if !atLeast(found.Version, separate) {
			table = "inet kube-network-policies"
		}
		residue.NFTables = []string{table}
	}
	cni.FirewallResidue(found, &residue)
	return residue
}
