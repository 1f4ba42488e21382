// Package kuberouter is the driver of kube-router as the pods' network: on every node, its agent writes the CNI
// configuration for the plugins bridge and host-local with the node's own range, learns routes to the other nodes'
// ranges by BGP, and enforces NetworkPolicy. It is supported as a source only; Install refuses. A kube-router that only
// enforces NetworkPolicy for another network is that network's cni.Firewall.
package kuberouter

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names that are fixed in kube-router, or in the manifests of its releases.
const (
	name       = "kube-router" // its DaemonSet, account and role
	namespace  = "kube-system"
	configName = "kube-router-cfg"
	confVar    = "KUBE_ROUTER_CNI_CONF_FILE"
	confName   = "10-kuberouter.conf" // where confVar does not say another
	network    = "mynet"              // in the configuration
	table      = "77"                 // its routing table, for packets from pods to tunnels
	tunnels    = "tun-*"
	annotation = "kube-router.io/"
	stack      = "k0s.k0sproject.io/stack" // a label of what k0s applies
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return name }

// Install implements cni.Driver: kube-router as a target is not supported.
func (d Driver) Install(cni.Request) (*cni.Target, error) { return nil, d.NeverComes() }

// NeverComes implements cni.Outgoing.
func (Driver) NeverComes() *cni.Refusal {
	return &cni.Refusal{
		Message: "kube-router is not supported as a target",
		Hint:    "Theseus moves clusters away from kube-router; choose another target with --to",
	}
}

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	if agent, container := cni.Router(snapshot); agent != nil {
		return describe(snapshot, agent, container)
	}
	trace := ""
	if snapshot.ConfigMap(namespace, configName) != nil && cni.Firewall(snapshot) == nil { // which may come with it
		trace = "ConfigMap " + namespace + "/" + configName + " exists"
	}
	for i := range snapshot.Facts {
		if conf, ok := snapshot.Facts[i].Serving(); ok && ours(conf) {
			trace = conf.File + " serves new pods on node " + snapshot.Facts[i].Node
		}
	}
	if trace == "" {
		return nil
	}
	return &cni.Installation{
		CNI: name, Capabilities: capabilities(confName, nil),
		Agent: step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: namespace, Name: name},
		Problems: []string{trace + ", but no DaemonSet runs kube-router with --run-router: it was removed, or is " +
			"only partly installed"},
	}
}

// ours reports whether a CNI configuration is one of kube-router's.
func ours(conf cluster.Conf) bool {
	return conf.Plugins[0] == "bridge" && conf.Bridge == cni.RouterBridge && conf.IPAM == "host-local"
}

func describe(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet, container *corev1.Container) *cni.Installation {
	args, conf := cni.RouterArgs(container), confName
	for _, env := range container.Env {
		if env.Name == confVar && env.Value != "" {
			conf = path.Base(env.Value)
		}
	}
	found := &cni.Installation{
		CNI: name, Version: cluster.ImageOf(container.Image).Tag, Agent: cni.DaemonSetRef(agent),
		Selector: cni.SelectorOf(agent), Capabilities: capabilities(conf, args),
		PodCIDRs: cni.NodeRanges(snapshot), ConfFolder: cni.HostFolder(agent, "/etc/cni/net.d"),
		Data: []string{"/var/lib/cni/networks/" + network},
	}
	if found.Version == "latest" {
		found.Version = "" // which was another one each time
	}
	caps := &found.Capabilities
	if cni.RouterFlag(args, "enable-pod-egress") {
		caps.Masquerade = &cni.Masquerade{From: found.PodCIDRs, Except: slices.Concat(found.PodCIDRs, hosts(snapshot))}
	}
	found.Untried, found.Instead = unfit(snapshot, agent, container)
	if cni.RouterFlag(args, "enable-cni") {
		found.Problems = written.Compare(snapshot, found)
	}
	encapsulate(snapshot, found, args)
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; len(cni.RangesOf(node)) == 0 {
			found.Problems = append(found.Problems, "node "+node.Name+" has no range of pods (spec.podCIDRs)")
		}
	}
	found.Parts = []step.Ref{found.Agent}
	if snapshot.ConfigMap(agent.Namespace, configName) != nil {
		found.Parts = append(found.Parts,
			step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: agent.Namespace, Name: configName})
	}
	found.Parts = append(found.Parts, cni.Rights(agent, name)...)
	found.Problems = append(found.Problems, cni.NotReady(snapshot, agent)...)
	found.Problems = append(found.Problems, cni.Unfinished(agent, conf)...)
	return found
}

// capabilities are those of a kube-router with these arguments.
func capabilities(conf string, args []string) cni.Capabilities {
	caps := cni.Capabilities{
		CIDRSource: "node", KeptFirst: 2, KeptLast: 1, Encapsulation: "none",
		HostLinks: []string{cni.RouterBridge, tunnels}, RouteTables: []int{77}, ConfName: conf, Policy: cni.PolicyNone,
		SwitchedPerNode: true, KeepsSources: !cni.RouterFlag(args, "enable-pod-egress"),
		ReplacesKubeProxy: cni.RouterFlag(args, "run-service-proxy"),
		Unattached: "its agents write the routes to each node's range again and again, and no move of running pods " +
			"was ever run next to that",
	}
	if cni.RouterFlag(args, "run-firewall") {
		caps.Policy, caps.PolicyMarks = cni.PolicyKubernetes, cni.FirewallMarks
	}
	return caps
}

// hosts are the nodes' addresses, which it does not masquerade traffic to.
func hosts(snapshot *cluster.Snapshot) []string {
	var all []string
	for i := range snapshot.Nodes {
		for _, address := range snapshot.Nodes[i].Status.Addresses {
			if address.Type == corev1.NodeInternalIP && !strings.Contains(address.Address, ":") {
				all = append(all, address.Address+"/32")
			}
		}
	}
	slices.Sort(all)
	return all
}

// encapsulate says whether nodes reach each other through tunnels: all, or those in other subnets, which only the
// tunnels that are there show.
func encapsulate(snapshot *cluster.Snapshot, found *cni.Installation, args []string) {
	if !cni.RouterFlag(args, "enable-overlay") {
		return
	}
	kind, _ := cni.RouterValue(args, "overlay-type")
	used := kind == "full"
	for i := range snapshot.Facts {
		used = used || slices.ContainsFunc(snapshot.Facts[i].Links, isTunnel)
	}
	if caps := &found.Capabilities; used {
		caps.Encapsulation, caps.Overhead = "ipip", 20
		if caps.MTU > 0 { // the agent does not leave room for the tunnel's header
			caps.LinkMTU, caps.MTU = caps.MTU, caps.MTU-caps.Overhead
		}
	}
}

// unfit says why no change of this kube-router is planned, and what to do about it.
func unfit(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet, container *corev1.Container) (why, instead string) {
	where, args := "DaemonSet "+agent.Namespace+"/"+agent.Name, cni.RouterArgs(container)
	if cni.RouterFlag(args, "run-service-proxy") {
		return "kube-router also serves Services in the place of kube-proxy (--run-service-proxy of " + where +
				" is not false), so all Services would fail when it is removed",
			"let kube-proxy serve them first, in a separate change, which theseus guard measures: install " +
				"kube-proxy, set --run-service-proxy=false in " + where +
				", and restart the nodes one by one, which removes the agent's IPVS services; then plan again"
	}
	if !cni.RouterFlag(args, "enable-cni") {
		return "kube-router only routes between the nodes (--enable-cni=false of " + where +
			"), and another network gives pods their addresses", cni.Elsewhere + "; " + cni.Measured
	}
	if _, k0s := agent.Labels[stack]; k0s {
		return "k0s manages kube-router (label " + stack + " of " + where + "): it re-applies the objects whenever a " +
				"k0s controller starts, and it does not support a change of the network in a running cluster",
			cni.Elsewhere + "; " + cni.Measured
	}
	if peers := outside(snapshot, args); peers != "" {
		return "kube-router announces the pods' addresses to routers outside of the cluster by BGP (" + peers +
				"), which would no longer reach pods on the new network",
			"if nothing outside needs these routes, remove the peers and plan again; if something does, " +
				cni.Elsewhere
	}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		for _, key := range []string{annotation + "pod-cidr", annotation + "pod-cidrs"} {
			if own := node.Annotations[key]; own != "" && own != strings.Join(cni.RangesOf(node), ",") {
				return fmt.Sprintf("node %s uses the range %s from the annotation %s, but spec.podCIDRs has %s; "+
					"Theseus uses only spec.podCIDRs", node.Name, own, key,
					cmp.Or(strings.Join(cni.RangesOf(node), ", "), "none")), cni.Elsewhere + "; " + cni.Measured
			}
		}
	}
	return unnamed(snapshot, cluster.ImageOf(container.Image).Tag, args)
}

// unnamed refuses tunnels without the hyphen in their names, which kube-router v1 makes to addresses of twelve digits.
// In the mode "subnet", only those that are there show which nodes have them. An unknown version counts as v1.
func unnamed(snapshot *cluster.Snapshot, tag string, args []string) (why, instead string) {
	refuse := func(which, link, whose string) (string, string) {
		return "its tunnel " + which + " is named " + link + ", without a hyphen (" + whose +
				" address has 12 digits), and Theseus does not remove tunnels with such names",
			"upgrade kube-router to v2, from an image with its version as the tag, and restart the nodes one by one: " +
				"its tunnels have other names; then plan again"
	}
	for i := range snapshot.Facts {
		for _, link := range snapshot.Facts[i].Links {
			if isTunnel(link) && !strings.HasPrefix(link.Name, "tun-") {
				return refuse("on node "+snapshot.Facts[i].Node, link.Name, "the other node's")
			}
		}
	}
	now, err := version.ParseGeneric(tag)
	kind, _ := cni.RouterValue(args, "overlay-type")
	if !cni.RouterFlag(args, "enable-overlay") || kind != "full" || err == nil && now.Major() >= 2 {
		return "", ""
	}
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; long(node) != "" {
			return refuse("to node "+node.Name, "tun"+long(node), "the node's")
		}
	}
	return "", ""
}

// isTunnel reports whether a link is a tunnel of kube-router: its name has a hyphen and digits or a hash, or is "tun"
// and the digits of an address. Links of a VPN have such names too, and another type.
func isTunnel(link cluster.Link) bool {
	rest, named := strings.CutPrefix(link.Name, "tun")
	return named && link.Type == "ipip" && (strings.HasPrefix(rest, "-") ||
		len(rest) >= 12 && strings.Trim(rest, "0123456789") == "")
}

// long are the digits of a node's address if they are too many for the usual name of a tunnel.
func long(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		digits := strings.ReplaceAll(address.Address, ".", "")
		if address.Type == corev1.NodeInternalIP && !strings.Contains(digits, ":") && len(digits) >= 12 {
			return digits
		}
	}
	return ""
}

// outside names what peers with routers outside of the cluster; empty if nothing does.
func outside(snapshot *cluster.Snapshot, args []string) string {
	if peers, _ := cni.RouterValue(args, "peer-router-ips"); peers != "" {
		return "--peer-router-ips=" + peers
	}
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; node.Annotations[annotation+"peer.ips"] != "" {
			return "the annotation " + annotation + "peer.ips of node " + node.Name
		}
	}
	return ""
}

// written is how kube-router writes the nodes' configurations; pods get the MTU of the bridge.
var written = cni.Written{Agent: name, Ours: ours, MTU: func(facts *cluster.NodeFacts, _ *corev1.Node) int {
	for _, link := range facts.Links {
		if link.Name == cni.RouterBridge {
			return link.MTU
		}
	}
	return 0
}}

// Residue implements cni.Driver. The plugins themselves are those of many networks. The agent's rules stay when it is
// ended, and its routes too.
func (Driver) Residue(found *cni.Installation) step.Residue {
	residue := step.Residue{
		Links: found.Capabilities.HostLinks,
		// the rules that accept traffic from and to pods have comments in plain words, which others may write as well
		RuleLinks:    []string{cni.RouterBridge},
		RuleComments: []string{"allow outbound node port traffic on node interface with which node ip is associated"},
		RuleSets: []string{"kube-router-pod-subnets", "kube-router-node-ips", "inet6:kube-router-pod-subnets",
			"inet6:kube-router-node-ips"}, // of the rule that masquerades
		Routes:    found.PodCIDRs,
		ConfFiles: []string{found.Capabilities.ConfName},
		Paths:     append(slices.Clone(found.Data), "/var/lib/kube-router"),
	}
	for _, cidr := range found.PodCIDRs {
		residue.Rules = append(residue.Rules, table+" "+cidr)
	}
	for _, data := range found.Data {
		residue.Paths = append(residue.Paths, cni.Remembered(path.Base(data)))
	}
	cni.RouterResidue(&residue)
	residue.IPSets = append(residue.IPSets, "inet6:kube-router-*")
	return residue
}
