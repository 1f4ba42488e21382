package calico

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

func agentIn(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	for _, namespace := range []string{"kube-system", "calico-system"} {
		if set := snapshot.DaemonSet(namespace, agentName); set != nil {
			return set
		}
	}
	for i := range snapshot.DaemonSets {
		if snapshot.DaemonSets[i].Name == agentName {
			return &snapshot.DaemonSets[i]
		}
	}
	return nil
}

// elsewhere reports whether a DaemonSet of another name runs the agent for policy only, as a part of another network.
// The agent makes a pool when it starts, from which no pod gets an address.
func elsewhere(snapshot *cluster.Snapshot) bool {
	return slices.ContainsFunc(snapshot.DaemonSets, func(set appsv1.DaemonSet) bool {
		containers := set.Spec.Template.Spec.Containers
		return policyOnly(containers) && slices.ContainsFunc(containers,
			func(c corev1.Container) bool { return c.Name == agentName })
	})
}

// policyOnly reports whether the agent enforces policy for a network that is not Calico's.
func policyOnly(containers []corev1.Container) bool {
	return cni.EnvValue("CALICO_NETWORKING_BACKEND", containers...) == "none"
}

// inEtcd reports whether the agent keeps its objects in an etcd of its own. That is the default of an agent that is
// told of one (libcalico-go/lib/apiconfig).
func inEtcd(agent *appsv1.DaemonSet) bool {
	containers := agent.Spec.Template.Spec.Containers
	if kind := cni.EnvValue("DATASTORE_TYPE", containers...); kind != "" {
		return kind == "etcdv3"
	}
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "ETCD_ENDPOINTS" })
	})
}

// onBPF reports whether the eBPF data plane is on, which serves Services in the place of kube-proxy.
func onBPF(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) bool {
	return cni.EnvValue("FELIX_BPFENABLED", agent.Spec.Template.Spec.Containers...) == "true" ||
		slices.ContainsFunc(snapshot.Calico("FelixConfiguration"), func(o unstructured.Unstructured) bool {
			on, _, _ := unstructured.NestedBool(o.Object, "spec", "bpfEnabled")
			return on
		}) ||
		slices.ContainsFunc(snapshot.OtherOf(operatorGroup, "Installation"), func(o unstructured.Unstructured) bool {
			plane, _, _ := unstructured.NestedString(o.Object, "spec", "calicoNetwork", "linuxDataplane")
			return plane == "BPF"
		})
}

// placeholder is what the installer replaces in its template of a CNI configuration.
var placeholder = regexp.MustCompile(`__[A-Z0-9_]+__`)

// chained are the plugins of such a template that follow the first one, except portmap; nil if it cannot be read.
func chained(template string) []string {
	var conf struct {
		Plugins []struct{ Type string }
	}
	if json.Unmarshal([]byte(placeholder.ReplaceAllString(template, "0")), &conf) != nil {
		return nil
	}
	var types []string
	for _, plugin := range conf.Plugins {
		types = append(types, plugin.Type)
	}
	return cni.Chained(types)
}

// chainedIn are the plugins that follow Calico's on the nodes, or else in the template of its installer or operator.
func chainedIn(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet, file string) []string {
	for i := range snapshot.Facts {
		if conf, ok := snapshot.Facts[i].Serving(); ok && conf.File == file {
			return cni.Chained(conf.Plugins)
		}
	}
	for _, of := range [][2]string{{configName, "cni_network_config"}, {"cni-config", "config"}} {
		if config := snapshot.ConfigMap(agent.Namespace, of[0]); config != nil {
			return chained(config.Data[of[1]])
		}
	}
	return nil
}

// usersKinds are the kinds of objects that only users create.
var usersKinds = []string{"BGPFilter", "BGPPeer", "GlobalNetworkPolicy", "GlobalNetworkSet", "HostEndpoint",
	"NetworkPolicy", "NetworkSet", "StagedGlobalNetworkPolicy", "StagedKubernetesNetworkPolicy", "StagedNetworkPolicy"}

// unattached: both effects were seen with v3.31.0. When pods are adopted from another network, or back, the joint form
// prevents them.
const unattached = "unmodified, its agent replaces another network's route to a node's range by a blackhole " +
	"route, and deletes the conntrack entries of a pod that leaves it"

func describe(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) *cni.Installation {
	template := agent.Spec.Template.Spec
	conf := cni.EnvValue(confNameVar, template.InitContainers...)
	found := &cni.Installation{
		CNI:          "calico",
		Version:      versionOf(template.Containers),
		Agent:        step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: agent.Namespace, Name: agent.Name},
		Selector:     cni.SelectorOf(agent),
		ConfFolder:   cni.HostFolder(agent, "/host"+confFolder),
		PluginFolder: cni.HostFolder(agent, "/host"+pluginFolder),
		Capabilities: capabilities(orDefault(strings.TrimSuffix(conf, cni.StagedSuffix), defaultConf)),
		Problems:     notReady(agent),
	}
	found.Capabilities.Unattached = unattached
	found.Problems = append(found.Problems, cni.Unfinished(agent, conf)...)
	if policyOnly(template.Containers) {
		found.Untried = "DaemonSet " + agent.Namespace + "/" + agent.Name + " only enforces policy, next to another " +
			"network that assigns pod addresses: Theseus changes neither of the two"
		found.Instead = cni.Elsewhere + "; " + cni.Measured
		return found
	}
	if inEtcd(agent) {
		found.Untried = "Calico keeps its objects in an etcd of its own (ETCD_ENDPOINTS of DaemonSet " +
			agent.Namespace + "/" + agent.Name + "), where Theseus can read neither its pools nor its policies"
		found.Instead = "move its objects to the Kubernetes API first, with Calico's own procedure (calicoctl " +
			"datastore migrate export and import), and measure that: theseus guard start before, theseus guard stop " +
			"after; then take a new snapshot: theseus snapshot"
		return found
	}
	found.Capabilities.Chained = chainedIn(snapshot, agent, found.Capabilities.ConfName)
	found.Capabilities.ReplacesKubeProxy = onBPF(snapshot, agent)
	pools := readPools(snapshot)
	applyPools(found, pools)
	found.Used = used(snapshot, pools)
	applyFelix(&found.Capabilities, snapshot.Calico("FelixConfiguration"))
	found.Capabilities.PolicyMarks = markBits(snapshot.Calico("FelixConfiguration"),
		func(name string) string { return cni.EnvValue(name, template.Containers...) })
	found.Capabilities.Encrypts = encrypts(snapshot.Calico("FelixConfiguration"), template.Containers)
	found.Capabilities.Untracked = untracked(found.Version, found.Capabilities)
	found.Capabilities.Masquerade = masqueraded(snapshot.Calico("IPPool"), snapshot.Calico("FelixConfiguration"),
		func(name string) string { return cni.EnvValue(name, template.Containers...) })
	found.Parts = partsIn(snapshot, agent)
	found.Readings = []step.Reading{Reading(snapshot, template.Containers)}
	for _, kind := range usersKinds {
		for _, object := range snapshot.Calico(kind) {
			found.Written = append(found.Written, step.RefOf(&object))
		}
	}
	slices.SortFunc(found.Written, func(a, b step.Ref) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// Reading is where Felix serves its metrics, if they are enabled: felix/config of Calico. A variable precedes the
// cluster's FelixConfiguration; those of single nodes are not read.
func Reading(snapshot *cluster.Snapshot, containers []corev1.Container) step.Reading {
	port := "9091"
	for _, object := range snapshot.Calico("FelixConfiguration") {
		if set, ok, _ := unstructured.NestedInt64(object.Object, "spec", "prometheusMetricsPort"); ok &&
			object.GetName() == "default" {
			port = strconv.FormatInt(set, 10)
		}
	}
	return step.Reading{
		URL: "http://127.0.0.1:" +
			orDefault(cni.EnvValue("FELIX_PROMETHEUSMETRICSPORT", containers...), port) + "/metrics",
		Counters: map[string]string{
			"felix.int_dataplane_failures":                 "felix_int_dataplane_failures",
			"felix.int_dataplane_apply_time_seconds_count": "felix_int_dataplane_apply_time_seconds_count",
		},
		Gauges: map[string]string{
			"felix.int_dataplane_apply_time_seconds.p50": `felix_int_dataplane_apply_time_seconds{quantile="0.5"}`,
			"felix.int_dataplane_apply_time_seconds.p99": `felix_int_dataplane_apply_time_seconds{quantile="0.99"}`,
		},
		Carried: []string{"felix.int_dataplane_apply_time_seconds_count"},
	}
}

// pool has the relevant parts of an IPPool.
type pool struct {
	name, cidr, vxlan, ipip string
	disabled                bool
}

func readPools(snapshot *cluster.Snapshot) []pool {
	var pools []pool
	for _, object := range snapshot.Calico("IPPool") {
		spec, _, _ := unstructured.NestedMap(object.Object, "spec")
		text := func(field string) string { value, _ := spec[field].(string); return value }
		disabled, _ := spec["disabled"].(bool)
		pools = append(pools, pool{object.GetName(), text("cidr"), text("vxlanMode"), text("ipipMode"), disabled})
	}
	slices.SortFunc(pools, func(a, b pool) int { return strings.Compare(a.name, b.name) })
	return pools
}

// used counts the addresses of each pool that its blocks have assigned; nil if the blocks were not read.
func used(snapshot *cluster.Snapshot, pools []pool) map[string]int64 {
	if ok, _ := snapshot.HasCalico("ipamblocks"); !ok {
		return nil
	}
	all := map[string]int64{}
	for _, p := range pools {
		if prefix, err := netip.ParsePrefix(p.cidr); err == nil {
			all[prefix.Masked().String()] = 0
		}
	}
	for _, object := range snapshot.Calico("IPAMBlock") {
		text, _, _ := unstructured.NestedString(object.Object, "spec", "cidr")
		block, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		allocations, _, _ := unstructured.NestedSlice(object.Object, "spec", "allocations")
		for name := range all {
			if pool := netip.MustParsePrefix(name); pool.Bits() <= block.Bits() && pool.Contains(block.Addr()) {
				for _, allocation := range allocations {
					if allocation != nil {
						all[name]++
					}
				}
			}
		}
	}
	return all
}

// applyPools reads ranges and encapsulation from the enabled pools.
func applyPools(found *cni.Installation, pools []pool) {
	caps := &found.Capabilities
	for _, p := range pools {
		if p.disabled {
			continue
		}
		found.PodCIDRs = append(found.PodCIDRs, p.cidr)
		switch {
		case p.vxlan != "" && p.vxlan != "Never":
		case p.ipip != "" && p.ipip != "Never":
			caps.Encapsulation, caps.VNI, caps.Port, caps.Overhead = "ipip", 0, 0, 20
			caps.HostLinks = []string{"tunl0", "cali*"}
		default:
			caps.Encapsulation, caps.VNI, caps.Port, caps.Overhead = "none", 0, 0, 0
			caps.HostLinks = []string{"cali*"}
		}
	}
	if len(found.PodCIDRs) == 0 {
		found.Problems = append(found.Problems,
			"no enabled IPPool was found, so Theseus does not know Calico's pod addresses")
	}
}

// applyFelix reads VNI and port from FelixConfigurations, if set there.
func applyFelix(caps *cni.Capabilities, configurations []unstructured.Unstructured) {
	if caps.Encapsulation != "vxlan" {
		return
	}
	for _, configuration := range configurations {
		if vni, ok, _ := unstructured.NestedInt64(configuration.Object, "spec", "vxlanVNI"); ok && vni != 0 {
			caps.VNI = int(vni)
		}
		if port, ok, _ := unstructured.NestedInt64(configuration.Object, "spec", "vxlanPort"); ok && port != 0 {
			caps.Port = int(port)
		}
	}
}

// markBits are the bits of packet marks that Felix uses, where a setting says so; 0 stands for its default, 0xffff0000.
// It uses those of one of the two settings, which depends on its data plane: what may be either counts.
func markBits(configurations []unstructured.Unstructured, env func(name string) string) uint32 {
	var bits uint64
	for _, name := range []string{"iptablesMarkMask", "nftablesMarkMask"} {
		mask, _ := strconv.ParseUint(env("FELIX_"+strings.ToUpper(name)), 0, 32)
		bits |= mask
		for _, configuration := range configurations {
			if mask, _, _ := unstructured.NestedInt64(configuration.Object, "spec", name); mask > 0 {
				bits |= uint64(mask)
			}
		}
	}
	return uint32(bits)
}

// encrypts reports whether Felix encrypts traffic between nodes (WireGuard), for either family and on any node.
func encrypts(configurations []unstructured.Unstructured, containers []corev1.Container) bool {
	for _, name := range []string{"wireguardEnabled", "wireguardEnabledV6"} {
		on, _ := strconv.ParseBool(cni.EnvValue("FELIX_"+strings.ToUpper(name), containers...))
		if on || slices.ContainsFunc(configurations, func(o unstructured.Unstructured) bool {
			on, _, _ := unstructured.NestedBool(o.Object, "spec", name)
			return on
		}) {
			return true
		}
	}
	return false
}

// untracked: since v3.29 Felix exempts VXLAN from connection tracking
// (https://github.com/projectcalico/calico/pull/8977). An unknown version counts as one of those.
func untracked(of string, caps cni.Capabilities) *step.Untracked {
	if now, err := version.ParseSemantic(of); caps.Encapsulation != "vxlan" ||
		err == nil && now.LessThan(version.MajorMinor(3, 29)) {
		return nil
	}
	return &step.Untracked{Port: caps.Port, Link: vxlanLink}
}

func versionOf(containers []corev1.Container) string {
	for _, container := range containers {
		if container.Name == agentName {
			return cluster.ImageOf(container.Image).Tag
		}
	}
	return ""
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func notReady(set *appsv1.DaemonSet) []string {
	if set.Status.NumberReady >= set.Status.DesiredNumberScheduled {
		return nil
	}
	return []string{fmt.Sprintf("DaemonSet %s/%s is ready on %d of %d nodes", set.Namespace, set.Name,
		set.Status.NumberReady, set.Status.DesiredNumberScheduled)}
}

// partsIn lists Calico's objects in the order in which they can be deleted. RBAC objects are not in a snapshot; their
// names are upstream's, and deleting an object that does not exist is harmless. The CRDs are last; deleting them
// deletes all custom resources.
func partsIn(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) []step.Ref {
	var all []step.Ref
	webhooks := false
	for _, d := range snapshot.Deployments {
		if d.Namespace == agent.Namespace &&
			slices.Contains([]string{controllersName, typhaName, webhooksName}, d.Name) {
			webhooks = webhooks || d.Name == webhooksName
			all = append(all, step.Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: d.Namespace, Name: d.Name})
		}
	}
	all = append(all, step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: agent.Namespace, Name: agent.Name})
	if config := snapshot.ConfigMap(agent.Namespace, configName); config != nil {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: config.Namespace, Name: config.Name})
	}
	for _, name := range []string{controllersName, typhaName, webhooksName} {
		if slices.ContainsFunc(snapshot.Services,
			func(s corev1.Service) bool { return s.Namespace == agent.Namespace && s.Name == name }) {
			all = append(all, step.Ref{APIVersion: "v1", Kind: "Service", Namespace: agent.Namespace, Name: name})
		}
		if slices.ContainsFunc(snapshot.Budgets,
			func(b policyv1.PodDisruptionBudget) bool { return b.Namespace == agent.Namespace && b.Name == name }) {
			all = append(all, step.Ref{APIVersion: "policy/v1", Kind: "PodDisruptionBudget",
				Namespace: agent.Namespace, Name: name})
		}
	}
	const rbac = "rbac.authorization.k8s.io/v1"
	for _, name := range []string{agentName, "calico-cni-plugin", controllersName, "calico-tier-getter"} {
		all = append(all, step.Ref{APIVersion: rbac, Kind: "ClusterRoleBinding", Name: name},
			step.Ref{APIVersion: rbac, Kind: "ClusterRole", Name: name})
	}
	for _, name := range []string{agentName, "calico-cni-plugin", controllersName} {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "ServiceAccount", Namespace: agent.Namespace, Name: name})
	}
	if webhooks {
		all = append(all, webhookParts(agent.Namespace)...)
	}
	for _, crd := range snapshot.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
		if _, group, _ := strings.Cut(crd.GetName(), "."); cluster.IsCalico(group) {
			all = append(all, step.RefOf(&crd))
		}
	}
	return all
}
