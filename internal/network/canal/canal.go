// Package canal is the driver of Canal: flannel routes between nodes, and Calico's agent enforces policy, both in one
// DaemonSet. Pods get addresses of their node's own range (host-local) and interfaces of Calico's plugin. It is
// supported as a source only, and only Calico can take its place.
package canal

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names that are fixed in Calico's canal.yaml.
const (
	agentName  = "calico-node" // the container, and a ClusterRole that Calico's own manifest has too
	configName = "canal-config"
	confName   = "10-canal.conflist"
	confVar    = "CNI_CONF_NAME"
	typhaName  = "calico-typha"
	typhaVar   = "FELIX_TYPHAK8SSERVICENAME"
	network    = "k8s-pod-network" // to the plugins
	poolName   = "default-ipv4-ippool"
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "canal" }

// Install implements cni.Driver: Canal as a target is not supported.
func (d Driver) Install(cni.Request) (*cni.Target, error) { return nil, d.NeverComes() }

// NeverComes implements cni.Outgoing.
func (Driver) NeverComes() *cni.Refusal {
	return &cni.Refusal{
		Message: "Canal is not supported as a target",
		Hint:    "Theseus moves clusters away from Canal; choose another target with --to",
	}
}

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	for i := range snapshot.DaemonSets {
		if set := &snapshot.DaemonSets[i]; enforcer(set) != nil &&
			cni.ImageOf(set.Spec.Template.Spec.Containers, "flannel") != "" {
			return describe(snapshot, set)
		}
	}
	if config := snapshot.ConfigMap("kube-system", configName); config != nil {
		return &cni.Installation{
			CNI: "canal", Includes: includes(), Capabilities: capabilities(config, nil, confName),
			Agent: step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: config.Namespace, Name: "canal"},
			Problems: []string{"ConfigMap " + config.Namespace + "/" + config.Name + " exists, but no DaemonSet runs " +
				"flannel and Calico in one pod: Canal was removed, or is only partly installed"},
		}
	}
	return nil
}

func includes() []string { return []string{"flannel", "calico"} }

// enforcer returns the container of a DaemonSet that runs Calico's agent.
func enforcer(set *appsv1.DaemonSet) *corev1.Container {
	containers := set.Spec.Template.Spec.Containers
	for i := range containers {
		if strings.Contains(containers[i].Image, "calico") {
			return &containers[i]
		}
	}
	return nil
}

// capabilities are those of flannel's tunnels, with Calico's policy.
func capabilities(config *corev1.ConfigMap, agent *appsv1.DaemonSet, conf string) cni.Capabilities {
	caps, _, _ := flannel.Tunnels(config, agent, conf)
	caps.Policy = cni.PolicyCalico
	caps.CanRequestAddress = false
	caps.Unattached = "its pods are not attached to a bridge, and Theseus can only adopt pods from a bridge"
	return caps
}

func describe(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) *cni.Installation {
	felix, name := enforcer(agent), "DaemonSet "+agent.Namespace+"/"+agent.Name
	found := &cni.Installation{
		CNI: "canal", Version: cluster.ImageOf(felix.Image).Tag, Includes: includes(),
		Agent: cni.DaemonSetRef(agent), Selector: cni.SelectorOf(agent),
		ConfFolder:   cni.HostFolder(agent, "/host/etc/cni/net.d"),
		PluginFolder: cni.HostFolder(agent, "/host/opt/cni/bin"),
		Problems:     cni.NotReady(snapshot, agent),
		Readings:     []step.Reading{calico.Reading(snapshot, agent.Spec.Template.Spec.Containers)},
	}
	conf := confOf(agent)
	config, mounted := settings(snapshot, agent)
	found.Capabilities = capabilities(config, agent, conf)
	found.Parts = parts(agent, config)
	if config == nil {
		if mounted != "" {
			found.Problems = append(found.Problems, "ConfigMap "+agent.Namespace+"/"+mounted+
				" does not exist, so Theseus does not know flannel's network")
			return found
		}
		found.Untried = name + " runs Calico and flannel in one pod (Canal), but no ConfigMap holds flannel's " +
			"network. So it was not installed by Calico's canal.yaml. On RKE2, for example, a Helm controller " +
			"reverts changes to it"
		found.Instead = elsewhere
		return found
	}
	_, cidrs, problems := flannel.Tunnels(config, agent, conf)
	found.PodCIDRs, found.Problems = cidrs, append(found.Problems, problems...)
	found.Untried, found.Instead = untried(snapshot, found, config, felix)
	if found.Untried == noPool {
		found.Problems = append(found.Problems, noPool)
	}
	caps := &found.Capabilities
	caps.ReplacesKubeProxy = onBPF(snapshot, felix)
	folder := files(snapshot, caps)
	found.Data = []string{folder}
	if left(agent) {
		found.Problems = append(found.Problems, name+" has the settings of a migration: one was begun here and is "+
			"not finished")
		return found
	}
	if found.Untried == "" {
		found.Cession = cession(agent, felix)
	}
	return found
}

// noPool is said of a Canal whose agents have made no pool.
const noPool = "no IPPool for IPv4 exists, though the agents of Canal make one, and Theseus was never run without it"

// elsewhere is what to do about a Canal that Theseus does not change.
const elsewhere = cni.Elsewhere + "; or use Calico's own migration from flannel and Canal, which drains nodes one by " +
	"one, and measure it: theseus guard start before, theseus guard stop after"

// untried says of a Canal that is set up as none was run, what to do.
func untried(snapshot *cluster.Snapshot, found *cni.Installation, config *corev1.ConfigMap,
	felix *corev1.Container) (why, instead string) {
	name := "DaemonSet " + found.Agent.Namespace + "/" + found.Agent.Name
	if kind := found.Capabilities.Encapsulation; kind != "vxlan" {
		return fmt.Sprintf("flannel has another backend than vxlan in %s, and Theseus was never run with such a Canal",
			name), elsewhere
	}
	if cni.EnvValue("DATASTORE_TYPE", *felix) != "kubernetes" {
		return "Calico keeps its objects in an etcd of its own (" + name + "), where Theseus cannot read its policies",
			elsewhere
	}
	if typha(snapshot, config, felix) {
		return "agents of " + name + " may go through Typha (" + typhaName + "), and Theseus was never run with such " +
				"a Canal", "remove Typha first: set typha_service_name to none in ConfigMap " + config.Namespace + "/" +
				config.Name + ", restart the agents, and delete Deployment and Service " + typhaName +
				"; then plan again"
	}
	own, four := cni.Prefixes(found.PodCIDRs), false
	for _, pool := range snapshot.Calico("IPPool") {
		cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
		prefix, err := netip.ParsePrefix(cidr)
		four = four || err == nil && prefix.Addr().Is4()
		if harmless(&pool, own) {
			continue
		}
		hint := "delete it, as no pod of Canal has an address from it: kubectl delete ippools.crd.projectcalico.org " +
			pool.GetName() + "; then plan again"
		if pool.GetName() == poolName { // without any pool, Calico's first agent would make one with a tunnel
			hint = "take its tunnel away, as no pod of Canal has an address from it: kubectl patch " +
				"ippools.crd.projectcalico.org " + poolName +
				` --type merge -p '{"spec":{"vxlanMode":"Never"}}'; then plan again`
		}
		return fmt.Sprintf("IPPool %s (%s) would give pods of Calico addresses, or tell Calico how to treat pods of "+
			"Canal, and Theseus was never run with such a pool", pool.GetName(), cidr), hint
	}
	if !four { // Calico's first agent would make one with a tunnel, which Canal's agents on other nodes would use
		return noPool, "delete one pod of " + name + ": when it starts again, Canal makes its pool " + poolName +
			"; then plan again"
	}
	return "", ""
}

// typha reports whether Canal's agents read the API through Typha.
func typha(snapshot *cluster.Snapshot, config *corev1.ConfigMap, felix *corev1.Container) bool {
	named := func(service string) bool { return service != "" && service != "none" }
	return named(config.Data["typha_service_name"]) || named(cni.EnvValue(typhaVar, *felix)) ||
		slices.ContainsFunc(snapshot.Deployments, func(d appsv1.Deployment) bool { return d.Name == typhaName })
}

// harmless reports whether a pool is the one that Canal's own agent makes, without a tunnel, or neither gives pods of
// Calico addresses nor is of the range of Canal's pods.
func harmless(pool *unstructured.Unstructured, own []netip.Prefix) bool {
	if pool.GetName() == poolName {
		mode, _, _ := unstructured.NestedString(pool.Object, "spec", "vxlanMode")
		return mode == "" || mode == "Never"
	}
	cidr, _, _ := unstructured.NestedString(pool.Object, "spec", "cidr")
	off, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled")
	prefix, err := netip.ParsePrefix(cidr)
	return err == nil && !slices.ContainsFunc(own, prefix.Overlaps) && (off || !prefix.Addr().Is4())
}

// settings returns the ConfigMap with flannel's network, and the name of the one that the agent mounts.
func settings(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) (config *corev1.ConfigMap, mounted string) {
	for _, volume := range agent.Spec.Template.Spec.Volumes {
		if volume.ConfigMap == nil {
			continue
		}
		mounted = volume.ConfigMap.Name
		found := snapshot.ConfigMap(agent.Namespace, mounted)
		if found != nil && found.Data["net-conf.json"] != "" {
			return found, mounted
		}
	}
	return nil, mounted
}

// confOf is the name under which the init container writes the CNI configuration.
func confOf(agent *appsv1.DaemonSet) string {
	for _, container := range agent.Spec.Template.Spec.InitContainers {
		if name := cni.EnvValue(confVar, container); name != "" {
			return name
		}
	}
	return confName
}

// onBPF reports whether Calico's agent serves Services in the place of kube-proxy.
func onBPF(snapshot *cluster.Snapshot, felix *corev1.Container) bool {
	return cni.EnvValue("FELIX_BPFENABLED", *felix) == "true" ||
		slices.ContainsFunc(snapshot.Calico("FelixConfiguration"), func(o unstructured.Unstructured) bool {
			on, _, _ := unstructured.NestedBool(o.Object, "spec", "bpfEnabled")
			return on
		})
}

// files adds what only the nodes say, and returns the folder in which host-local keeps addresses. Calico's plugin may
// give a pod's interface a larger MTU than flannel's tunnel has: the smaller one reaches other nodes.
func files(snapshot *cluster.Snapshot, caps *cni.Capabilities) (data string) {
	name := network
	for i := range snapshot.Facts {
		facts := &snapshot.Facts[i]
		if conf, ok := facts.Serving(); ok && conf.File == caps.ConfName {
			name = conf.Network
			for _, plugin := range cni.Chained(conf.Plugins) {
				if !slices.Contains(caps.Chained, plugin) {
					caps.Chained = append(caps.Chained, plugin)
				}
			}
		}
		for _, link := range facts.Links {
			switch {
			case link.MTU == 0:
			case step.Matches(caps.HostLinks, link.Name) && (caps.MTU == 0 || link.MTU < caps.MTU):
				caps.MTU = link.MTU
			case strings.HasPrefix(link.Name, "cali"):
				caps.LinkMTU = max(caps.LinkMTU, link.MTU)
			}
		}
	}
	if caps.MTU == 0 || caps.LinkMTU <= caps.MTU {
		caps.LinkMTU = 0
	}
	slices.Sort(caps.Chained)
	return "/var/lib/cni/networks/" + name
}

// parts are Canal's own objects, in the order in which they can be deleted. What Calico's own manifest has too stays:
// the CRDs, the controllers, and the rights of both.
func parts(agent *appsv1.DaemonSet, config *corev1.ConfigMap) []step.Ref {
	all := []step.Ref{cni.DaemonSetRef(agent)}
	if config != nil {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: config.Namespace, Name: config.Name})
	}
	const rbac = "rbac.authorization.k8s.io/v1"
	for _, name := range []string{"canal-flannel", "canal-calico"} {
		all = append(all, step.Ref{APIVersion: rbac, Kind: "ClusterRoleBinding", Name: name})
	}
	all = append(all, step.Ref{APIVersion: rbac, Kind: "ClusterRole", Name: "flannel"})
	if account := agent.Spec.Template.Spec.ServiceAccountName; account != "" && account != "default" {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "ServiceAccount", Namespace: agent.Namespace, Name: account})
	}
	return all
}

// Residue implements cni.Driver. It is what flannel leaves: what Calico's agent leaves is the next network's.
func (Driver) Residue(found *cni.Installation) step.Residue {
	conf := found.Capabilities.ConfName
	return step.Residue{
		Links:        slices.Clone(found.Capabilities.HostLinks),
		Chains:       []string{"FLANNEL-*"},
		RuleComments: []string{"flanneld masq", "flanneld forward"},
		NFTables:     []string{"ip flannel-ipv4", "ip6 flannel-ipv6"},
		Routes:       found.PodCIDRs,
		ConfFiles:    []string{conf, conf + cni.StagedSuffix},
		Paths:        append([]string{"/run/flannel"}, found.Data...),
		Annotations:  []string{"flannel.alpha.coreos.com/*"},
	}
}
