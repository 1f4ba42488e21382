package calico

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Install implements cni.Driver. It makes two forms of the user's manifest. The joint form runs calico-node only on
// labelled nodes and writes its CNI configuration under a name that no runtime reads. The final form is the user's own,
// except for the settings that make the two networks compatible (address range, VXLAN).
func (d Driver) Install(request cni.Request) (*cni.Target, error) {
	if _, err := cni.PodRange("Calico", request.PodCIDR); err != nil {
		return nil, err
	}
	if takesOver(request.Source) {
		if err := canTakeOver(request); err != nil {
			return nil, err
		}
	}
	if byOperator(request.Manifest) {
		return operate(request)
	}
	final, err := understand(request.Manifest)
	if err != nil {
		return nil, err
	}
	if request.Takeover != nil {
		if err := final.takeOver(request); err != nil {
			return nil, err
		}
		final.fitTakeover(request.Takeover)
	}
	final.fit(request)
	joint, err := understand(append(final.definitions, final.objects...))
	if err != nil {
		return nil, err
	}
	conf := cni.Staged(final.confName(), "00-calico.conflist", request.Source)
	joint.stage(request, conf)
	api, err := final.api(request.Defined)
	if err != nil {
		return nil, err
	}
	cni.Label(joint.definitions)
	cni.Label(joint.objects)
	cni.Label(final.objects)

	target := &cni.Target{
		Installation: final.installation(request),
		Definitions:  joint.definitions,
		Objects:      joint.objects,
		Extras:       oldPools(request.Source, api),
		Final:        cni.Finish(joint.objects, final.objects),
		HandOver:     cni.HandOver(joint.definitions, final.objects),
		Conf:         conf,
	}
	for i := len(final.objects); i < len(joint.objects); i++ { // what only the joint form has comes last
		target.Discard = append(target.Discard, step.RefOf(&joint.objects[i]))
	}
	if takesOver(request.Source) {
		target.Installation.NeverRun = final.unlike(request.Source)
		target.Pools = final.ownPool(request, api)
		for _, pool := range target.Pools {
			target.Installation.Parts = slices.Insert(target.Installation.Parts, 0, step.RefOf(&pool))
		}
		target.HandOver = append(target.HandOver, cni.HandOver(target.Pools)...)
	}
	if request.Takeover != nil {
		target.Adoption = adoption(request, api)
		target.Extras = reservation(request.Takeover, api)
		for _, pool := range target.Adoption.Pools {
			target.Installation.Parts = slices.Insert(target.Installation.Parts, 0, step.RefOf(&pool))
		}
		target.Installation.Capabilities.Attachment = attachment(conf.Active)
	}
	if joint.nftables() && !final.nftables() {
		target.Guard = &step.Guard{Tables: []string{"ip calico", "ip6 calico"}, Without: []string{"Unknown interface"},
			For: step.Duration(2 * time.Minute)}
	}
	return target, nil
}

// takesOver reports whether the source already runs Calico's agent for policy, with Calico's objects in the cluster.
func takesOver(source *cni.Installation) bool { return source != nil && source.Cession != nil }

// keepReservations leaves out the container that moves the addresses of host-local to Calico's IPAM: it would delete
// the program host-local and its reservations on a node where the source still serves new pods, and stop Calico's
// plugin on all nodes meanwhile (cni-plugin/pkg/upgrade of projectcalico/calico). Seen with Canal and v3.31.0. When the
// agent gets its own form, the folder that the container looks for is gone.
func (m *manifest) keepReservations() {
	fields := []string{"spec", "template", "spec", "initContainers"}
	list, _, _ := unstructured.NestedSlice(m.agent.Object, fields...)
	list = slices.DeleteFunc(list, func(item any) bool {
		container, ok := item.(map[string]any)
		return ok && container["name"] == "upgrade-ipam"
	})
	_ = unstructured.SetNestedSlice(m.agent.Object, list, fields...) // the path is through maps
}

// canTakeOver refuses manifests with which no Calico ever took policy over from an agent in place.
func canTakeOver(request cni.Request) error {
	name := request.Source.Title()
	if byOperator(request.Manifest) {
		return refuse("Calico never took policy over from "+name+" by its operator, which refuses to install Calico "+
			"next to another agent of it",
			"give the manifest without the operator, such as manifests/calico-vxlan.yaml of the release")
	}
	m, err := understand(request.Manifest)
	if err != nil {
		return err
	}
	image, _ := cni.FindContainer(m.agent, "containers", agentName)["image"].(string)
	present, err := version.ParseSemantic(request.Source.Version)
	if err != nil {
		return refuse(fmt.Sprintf("the image of Calico's agent in %s does not say which version runs: %q", name,
			request.Source.Version), "use images whose tags are versions, such as v3.31.0")
	}
	wanted, err := version.ParseSemantic(cluster.ImageOf(image).Tag)
	if err != nil {
		return refuse(fmt.Sprintf("the image of %s in the manifest does not say which version it is: %q", agentName,
			cluster.ImageOf(image).Tag), "use images whose tags are versions, such as v3.31.0")
	}
	if wanted.LessThan(present) {
		return refuse(fmt.Sprintf("the manifest installs Calico %s, and %s has %s already: the older CRDs would take "+
			"fields from policies", cluster.ImageOf(image).Tag, name, request.Source.Version),
			"give the manifest of "+request.Source.Version+" or later")
	}
	return nil
}

// unlike names the settings of an agent in place that Calico's agent of the manifest would not have, or have with
// another value.
func (m *manifest) unlike(source *cni.Installation) []string {
	agent := cni.FindContainer(m.agent, "containers", agentName)
	var names []string
	for name, value := range source.Cession.Settings {
		own := m.env(agent, name)
		if findEnv(agent, name) == nil || value != "" && own != "" && !strings.EqualFold(value, own) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{"without settings that the agent of " + source.Title() + " has (" + strings.Join(names, ", ") + ")"}
}

// ownPool is the pool that calico-node would make if the cluster had none. The agent of a network that only takes
// policy from Calico has made one of that name, from which no pod has an address.
func (m *manifest) ownPool(request cni.Request, api string) []unstructured.Unstructured {
	agent := cni.FindContainer(m.agent, "containers", agentName)
	size, err := strconv.Atoi(m.env(agent, "CALICO_IPV4POOL_BLOCK_SIZE"))
	if err != nil {
		size = 26
	}
	pools := []unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": api,
		"kind":       "IPPool",
		"metadata":   map[string]any{"name": poolName},
		"spec": map[string]any{
			"cidr": request.PodCIDR, "blockSize": int64(size), "disabled": false,
			"natOutgoing": m.env(agent, "CALICO_IPV4POOL_NAT_OUTGOING") != "false",
			"vxlanMode":   "Always", "ipipMode": "Never", "nodeSelector": "all()",
		},
	}}}
	cni.Label(pools)
	return pools
}

// fit makes the permanent changes that keep the two networks from conflicting.
func (m *manifest) fit(request cni.Request) {
	agent := cni.FindContainer(m.agent, "containers", agentName)
	setEnv(agent, poolCIDR, request.PodCIDR)
	setEnv(agent, "CALICO_IPV4POOL_VXLAN", "Always")
	setEnv(agent, "CALICO_IPV4POOL_IPIP", "Never")
	if m.hasSetting("calico_backend") {
		m.set("calico_backend", "vxlan")
	} else {
		setEnv(agent, "CALICO_NETWORKING_BACKEND", "vxlan")
	}
	// The first interface found may be the other network's; the node's own address in the API cannot be.
	if method := m.env(agent, "IP_AUTODETECTION_METHOD"); method == "" || method == "first-found" {
		setEnv(agent, "IP_AUTODETECTION_METHOD", "kubernetes-internal-ip")
	}
	m.nameConfFolder()
	// Without BGP, BIRD does not run, so its probes must be removed.
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		command, ok, _ := unstructured.NestedStringSlice(agent, probe, "exec", "command")
		if !ok {
			continue
		}
		command = slices.DeleteFunc(command, func(word string) bool {
			return slices.Contains([]string{"bird-live", "bird-ready"}, strings.TrimLeft(word, "-"))
		})
		_ = unstructured.SetNestedStringSlice(agent, command, probe, "exec", "command")
	}
}

// stage turns the manifest into its joint form.
func (m *manifest) stage(request cni.Request, conf step.ConfArgs) {
	spec := []string{"spec", "template", "spec"}
	set := func(value any, fields ...string) {
		// understand has checked that the path leads through maps.
		_ = unstructured.SetNestedField(m.agent.Object, value, fields...)
	}
	set("true", append(slices.Clone(spec), "nodeSelector", request.NodeLabel)...)
	set(map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(1)}},
		"spec", "updateStrategy")
	// A rollback removes the agent from a node and then cleans the node, so the process must have ended when the pod
	// is gone. The agent's shutdown command would mark the node's network as unavailable.
	set(int64(10), append(slices.Clone(spec), "terminationGracePeriodSeconds")...)
	agent := cni.FindContainer(m.agent, "containers", agentName)
	unstructured.RemoveNestedField(agent, "lifecycle", "preStop")
	if lifecycle, ok := agent["lifecycle"].(map[string]any); ok && len(lifecycle) == 0 {
		delete(agent, "lifecycle")
	}
	askOften(agent)
	if sharesTables(request.Source) && hasNFTables(agent) {
		setEnv(agent, "FELIX_NFTABLESMODE", "Enabled")
		setEnv(agent, "FELIX_NFTABLESMARKMASK", "0xfff00000")
	}
	if request.Takeover != nil || takesOver(request.Source) {
		// The tunnel must exist before the range needs it, because Felix restarts when the first tunnel is enabled.
		setEnv(agent, "FELIX_VXLANENABLED", "true")
	}
	if request.Takeover != nil {
		m.keepConnections()
	}
	if takesOver(request.Source) {
		m.keepReservations()
	}
	setEnv(m.installer(), confNameVar, conf.Staged)
	if mtu := jointMTU(request.Source, m.setting("veth_mtu")); mtu > 0 {
		m.setMTU(agent, strconv.Itoa(mtu))
	}
}

// askOften shortens the time until a container is known to be ready: it adds a startup probe that runs the same check
// as the readiness probe every two seconds until it succeeds, instead of waiting for the readiness probe's long period.
func askOften(container map[string]any) {
	ready, ok, _ := unstructured.NestedMap(container, "readinessProbe")
	if _, own := container["startupProbe"]; own || !ok {
		return
	}
	delete(ready, "initialDelaySeconds")
	delete(ready, "successThreshold")
	ready["periodSeconds"], ready["failureThreshold"] = int64(2), int64(150)
	container["startupProbe"] = ready
}

// sharesTables reports whether an agent of the source (kube-router, weave-npc) enforces policy in iptables. Such an
// agent accepts packets before Felix's rules if its own rules come first (weaver inserts them when it starts). It also
// uses mark bits of Felix's default mask: 0x10000 and 0x20000 (kube-router v1.5.1, pkg/controllers/netpol), and 0x40000
// for traffic that egress policy allows (Weave Net 2.6.5, npc/constants.go), which Felix leaves set on packets that a
// rule with many CIDRs or ports allows (felix/rules/policy.go). With its own nftables tables and other bits, Felix can
// deny what the other agent accepts, and vice versa.
func sharesTables(source *cni.Installation) bool {
	return source != nil && source.Capabilities.Policy == cni.PolicyKubernetes
}

// hasNFTables reports whether an agent's version has the nftables mode: since v3.29, or if the version is unknown.
func hasNFTables(agent map[string]any) bool {
	image, _ := agent["image"].(string)
	found, err := version.ParseGeneric(cluster.ImageOf(image).Tag)
	return err != nil || found.AtLeast(version.MajorMinor(3, 29))
}

// nftables reports whether Felix uses nftables; an environment variable overrides the configuration.
func (m *manifest) nftables() bool {
	mode := m.env(cni.FindContainer(m.agent, "containers", agentName), "FELIX_NFTABLESMODE")
	for i := range m.objects {
		if mode == "" && m.objects[i].GetKind() == "FelixConfiguration" && m.objects[i].GetName() == "default" {
			mode, _, _ = unstructured.NestedString(m.objects[i].Object, "spec", "nftablesMode")
		}
	}
	return strings.EqualFold(mode, "enabled")
}

func (m *manifest) setMTU(agent map[string]any, mtu string) {
	if m.hasSetting("veth_mtu") {
		m.set("veth_mtu", mtu)
		return
	}
	setEnv(agent, "FELIX_VXLANMTU", mtu)
	setEnv(m.installer(), "CNI_MTU", mtu)
}

// jointMTU is the smaller of the two networks' MTUs, so that no packet of one is too large for the other; 0 means
// that Calico chooses, which subtracts 50 from the node's MTU.
func jointMTU(source *cni.Installation, own string) int {
	wanted, _ := strconv.Atoi(own)
	if source == nil || source.Capabilities.MTU == 0 {
		return wanted
	}
	path := source.Capabilities.MTU + source.Capabilities.Overhead
	smallest := min(source.Capabilities.MTU, path-50)
	if wanted > 0 {
		smallest = min(smallest, wanted)
	}
	return smallest
}

// nameConfFolder tells the installer which folder of the node it writes to, unless it is the default: the installer
// writes that into the CNI configuration, as the place of Calico's kubeconfig on the node.
func (m *manifest) nameConfFolder() {
	if folder := m.confFolder(); folder != "" && folder != confFolder && m.env(m.installer(), confFolderVar) == "" {
		setEnv(m.installer(), confFolderVar, folder)
	}
}

// confFolder and pluginFolder are the node's folders to which the installer writes.
func (m *manifest) confFolder() string   { return cni.HostFolderIn(m.agent, "/host"+confFolder) }
func (m *manifest) pluginFolder() string { return cni.HostFolderIn(m.agent, "/host"+pluginFolder) }

// confName is the user's name of the configuration, even if it is already staged.
func (m *manifest) confName() string {
	return strings.TrimSuffix(orDefault(m.env(m.installer(), confNameVar), defaultConf), cni.StagedSuffix)
}

// oldPools are disabled pools that tell Calico that the old addresses also belong to pods, so that it does not
// masquerade traffic to them. Disabled pools allocate no addresses.
func oldPools(source *cni.Installation, api string) []unstructured.Unstructured {
	if source == nil {
		return nil
	}
	var pools []unstructured.Unstructured
	for i, cidr := range source.PodCIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err != nil || !prefix.Addr().Is4() {
			continue
		}
		pools = append(pools, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": api,
			"kind":       "IPPool",
			"metadata":   map[string]any{"name": fmt.Sprintf("theseus-old-%d", i)},
			"spec": map[string]any{
				"cidr": cidr, "blockSize": int64(26), "disabled": true, "natOutgoing": false,
				"vxlanMode": "Never", "ipipMode": "Never", "nodeSelector": "!all()",
			},
		}})
	}
	cni.Label(pools)
	return pools
}

func (m *manifest) installation(request cni.Request) cni.Installation {
	agent := cni.FindContainer(m.agent, "containers", agentName)
	image, _ := agent["image"].(string)
	caps := capabilities(m.confName())
	var felix []unstructured.Unstructured
	for _, object := range m.objects {
		if object.GetKind() == "FelixConfiguration" {
			felix = append(felix, object)
		}
	}
	applyFelix(&caps, felix)
	if vni, err := strconv.Atoi(m.env(agent, "FELIX_VXLANVNI")); err == nil {
		caps.VNI = vni
	}
	if port, err := strconv.Atoi(m.env(agent, "FELIX_VXLANPORT")); err == nil {
		caps.Port = port
	}
	caps.Untracked = untracked(cluster.ImageOf(image).Tag, caps)
	env := func(name string) string { return m.env(agent, name) }
	caps.Masquerade = willMasquerade(request, env("CALICO_IPV4POOL_NAT_OUTGOING") != "false", felix, env)
	caps.Chained = chained(cmp.Or(m.env(m.installer(), "CNI_NETWORK_CONFIG"),
		m.setting("cni_network_config")))
	caps.MTU = jointMTU(request.Source, m.setting("veth_mtu"))
	return cni.Installation{
		CNI:          "calico",
		Version:      cluster.ImageOf(image).Tag,
		Agent:        step.RefOf(m.agent),
		Selector:     cni.SelectorText(m.agent),
		ConfFolder:   m.confFolder(),
		PluginFolder: m.pluginFolder(),
		PodCIDRs:     rangesOf(request),
		Capabilities: caps,
		Parts:        cni.Parts(m.objects, m.definitions),
	}
}
