package cilium

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

var _ cni.Upgrader = Driver{}

// byHelm is the hint for upgrades that Theseus does not make.
const byHelm = "upgrade it as Cilium's upgrade guide says, and measure that: theseus guard -- helm upgrade ..."

// Upgrade implements cni.Upgrader. The user's manifest is the output of `helm template` of the other version's chart,
// with the values of the installed release. The operator is changed before the agents in both directions: a newer one
// creates the CRDs that newer agents wait for, and an older one leaves newer CRDs alone (pkg/k8s/apis/crdhelpers
// compares their schema versions).
func (d Driver) Upgrade(snapshot *cluster.Snapshot, found *cni.Installation, documents []unstructured.Unstructured,
	_ string) (*cni.Upgrade, error) {
	if err := cni.Owned(snapshot, found); err != nil {
		return nil, err
	}
	agent := snapshot.DaemonSet(found.Agent.Namespace, found.Agent.Name)
	if agent == nil {
		return nil, refuse("the DaemonSet "+found.Agent.String()+" does not exist",
			"install Cilium instead; there is nothing to upgrade")
	}
	if !cluster.IsSystemNamespace(agent.Namespace) {
		return nil, refuse(fmt.Sprintf("Cilium runs in the namespace %s, and a snapshot does not have all objects "+
			"there that a rollback needs", agent.Namespace), byHelm)
	}
	wanted, trial, err := renewed(documents)
	if err != nil {
		return nil, cni.OfManifest(err)
	}
	if err := versions(found.Version, wanted.version()); err != nil {
		return nil, cni.OfManifest(err)
	}
	if err := beside(snapshot, agent.Namespace); err != nil {
		return nil, err
	}
	live := read(snapshot.ConfigMap(agent.Namespace, configName))
	if err := wanted.sameNetwork(live, found); err != nil {
		return nil, err
	}
	if err := proxied(snapshot, wanted.version()); err != nil {
		return nil, err
	}
	object, err := cni.Plain(agent)
	if err != nil {
		return nil, err
	}
	u, err := wanted.upgrade(snapshot, found, object, live)
	if err != nil {
		return nil, err
	}
	u.Trial, u.Settings = trial, turned(live, wanted.settings())
	return u, nil
}

// renewed parses the manifest of another version. trial are the objects of the chart's pre-flight check.
func renewed(documents []unstructured.Unstructured) (m *manifest, trial []unstructured.Unstructured, err error) {
	var rest []unstructured.Unstructured
	for i := range documents {
		if strings.HasPrefix(documents[i].GetName(), preflight) {
			trial = append(trial, *documents[i].DeepCopy())
			continue
		}
		rest = append(rest, documents[i])
	}
	cni.SortForApply(trial)
	cni.Label(trial)
	if m, err = sort(rest); err != nil {
		return nil, nil, err
	}
	if len(m.policies) > 0 {
		return nil, nil, refuse(fmt.Sprintf("the manifest contains %s %s, and policies take effect on all nodes at "+
			"once", m.policies[0].GetKind(), m.policies[0].GetName()), "apply policies separately from the upgrade")
	}
	if len(m.definitions) > 0 {
		return nil, nil, refuse("the manifest contains CustomResourceDefinition "+m.definitions[0].GetName()+
			", and Cilium's operator makes the CRDs of its version", "remove the CRDs from the manifest")
	}
	for i := range m.objects {
		object := &m.objects[i]
		switch object.GetKind() {
		case "ConfigMap", "ServiceAccount", "Service", "Namespace", "Secret", "PodDisruptionBudget", "ResourceQuota",
			"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "IngressClass", "GatewayClass":
		case "Deployment":
			if object.GetName() == meshName {
				return nil, nil, meshed()
			}
		case "DaemonSet":
			if object.GetName() == proxyName {
				return nil, nil, external()
			}
			if object != m.agent {
				return nil, nil, refuse("the manifest contains a second DaemonSet, "+object.GetName(),
					"upgrade that one separately")
			}
		default:
			return nil, nil, refuse(fmt.Sprintf("the manifest contains %s %s, and Theseus does not know what becomes "+
				"of it if the upgrade is rolled back", object.GetKind(), object.GetName()), byHelm)
		}
	}
	return m, trial, nil
}

// beside refuses a cluster with a proxy or a cluster mesh that the manifest may lack: they would stay in the old
// version.
func beside(snapshot *cluster.Snapshot, namespace string) error {
	for i := range snapshot.DaemonSets {
		if d := &snapshot.DaemonSets[i]; d.Namespace == namespace && d.Name == proxyName {
			return external()
		}
	}
	for i := range snapshot.Deployments {
		if d := &snapshot.Deployments[i]; d.Namespace == namespace && d.Name == meshName {
			return meshed()
		}
	}
	return nil
}

func meshed() error {
	return refuse("Deployment "+meshName+" connects the cluster to others of a cluster mesh, whose versions Theseus "+
		"does not know", byHelm)
}

func external() error {
	return refuse("DaemonSet "+proxyName+" is Cilium's L7 proxy: connections through it are reset when it restarts, "+
		"and Theseus was never run with it", byHelm+"; without L7 policies, Gateways and Ingresses, set "+
		"envoy.enabled=false and l7Proxy=false on the installed release first")
}

// preflight is how the names of the objects of the chart's pre-flight check begin. Its DaemonSet pulls the agent's
// image on each node, and its Deployment validates policies by the new version.
const preflight = "cilium-pre-flight"

// meshName is the Deployment that connects a cluster to others.
const meshName = "clustermesh-apiserver"

func (m *manifest) version() string {
	image, _ := cni.FindContainer(m.agent, "containers", container)["image"].(string)
	return cluster.ImageOf(image).Tag
}

// versions refuses versions that Cilium's project does not test side by side: it supports upgrades and rollbacks
// between consecutive minor releases only.
func versions(from, to string) error {
	then, err := version.ParseSemantic(from)
	if err != nil {
		return refuse(fmt.Sprintf("the image of %s does not say which version runs: %q", container, from),
			"use images whose tags are versions, such as v1.19.6")
	}
	now, err := version.ParseSemantic(to)
	if err != nil {
		return refuse(fmt.Sprintf("the image of %s in the manifest does not say which version it is: %q", container,
			to), "use images whose tags are versions, such as v1.20.2")
	}
	minors := int(now.Minor()) - int(then.Minor())
	switch oldest := version.MustParseSemantic("v1.14.0"); {
	case from == to:
		return refuse("Cilium "+to+" runs already", "give the manifest of another version")
	case then.LessThan(oldest) || now.LessThan(oldest):
		return refuse("Cilium before 1.14 writes the CNI configuration by a script, and Theseus was never run with "+
			"that", byHelm)
	case then.Major() != now.Major() || max(minors, -minors) > 1:
		return refuse(fmt.Sprintf("from %s to %s is more than one minor release, and Cilium supports upgrades and "+
			"rollbacks only between consecutive minor releases", from, to),
			"use several plans, each over one minor release, from the latest patch release of each")
	}
	return nil
}

// forming are the keys that decide where packets go, or who may send them: an agent with another value would leave the
// agents of other nodes, or would drop what it let through before.
func forming() []string {
	return append(telling(), "allow-localhost", "bpf-lb-mode", "enable-l7-proxy", "ipam", "node-port-range",
		"cluster-pool-ipv4-cidr", "cluster-pool-ipv4-mask-size", "cluster-pool-ipv6-cidr",
		"cluster-pool-ipv6-mask-size", "cluster-id", "cluster-name", "datapath-mode", "enable-bpf-masquerade",
		"enable-endpoint-routes", "enable-host-firewall", "enable-ipsec", "enable-ipv4", "enable-ipv4-masquerade",
		"enable-ipv6", "enable-ipv6-masquerade", "enable-k8s-networkpolicy", "enable-policy", "enable-wireguard",
		"identity-allocation-mode", "ipv4-native-routing-cidr", "ipv6-native-routing-cidr", "labels", "mtu",
		"policy-audit-mode", "tunnel",
		// an agent replaces a map of another size, and with it the connections in it
		"bpf-ct-global-any-max", "bpf-ct-global-tcp-max", "bpf-nat-global-max", "bpf-neigh-global-max",
		"bpf-lb-affinity-map-max", "bpf-lb-maglev-map-max", "bpf-lb-map-max", "bpf-lb-rev-nat-map-max",
		"bpf-lb-service-backend-map-max", "bpf-lb-service-map-max", "bpf-lb-source-range-map-max",
		"bpf-map-dynamic-size-ratio", "bpf-policy-map-max", "preallocate-bpf-maps")
}

// features are keys of what Cilium does only if it is told to; without one, and with "false", it is off.
func features() []string {
	return []string{"auto-direct-node-routes", "devices", "direct-routing-device", "egress-masquerade-interfaces",
		"enable-bgp-control-plane", "enable-egress-gateway", "enable-gateway-api",
		"enable-ingress-controller", "enable-ip-masq-agent",
		"enable-ipv4-egress-gateway", "enable-l2-announcements", "enable-l2-pod-announcements",
		"enable-local-redirect-policy", "enable-ztunnel", "external-envoy-proxy", "policy-cidr-match-mode"}
}

// begun are keys that a newer chart writes as "true" without a value of the user's, and an older one does not know.
func begun() []string {
	return []string{"clustermesh-default-global-namespace", "clustermesh-mcs-api-install-crds", "enable-drift-checker",
		"enable-dynamic-config", "enable-lb-ipam", "enable-no-service-endpoints-routable",
		"enable-non-default-deny-policies", "enable-policy-secrets-sync", "enable-source-ip-verification",
		"policy-default-local-cluster", "policy-secrets-only-from-secrets-namespace"}
}

// harmless reports keys whose values have no effect on packets that no L7 proxy handles, and those of options that
// Cilium removed because they are always on.
func harmless(key string) bool {
	for _, prefix := range []string{"debug", "dnsproxy-", "envoy-", "hubble-", "k8s-client-", "metrics", "monitor-",
		"operator-", "prometheus-", "proxy-", "tofqdns-"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"cilium-endpoint-gc-interval", "cni-log-file", "enable-hubble", "enable-metrics",
		"enable-k8s-terminating-endpoint", "enable-runtime-device-detection", "enable-svc-source-range-check",
		"enable-tunnel-big-tcp", "identity-gc-interval", "identity-heartbeat-timeout", "nodes-gc-interval",
		"unmanaged-pod-watcher-interval"}, key)
}

// changes reports whether a key makes another network of the one that runs. A key that a version adds has a default of
// that version, and does not.
func changes(key string, live, wanted settings) bool {
	from, was := live[key]
	to, is := wanted[key]
	off := func(value string) bool { return value == "" || value == "false" }
	switch {
	case from == to || harmless(key):
		return false
	case slices.Contains(forming(), key):
		return true
	case slices.Contains(features(), key), strings.Contains(key, "encryption-strict"):
		return !off(from) || !off(to)
	case was && is:
		return true
	}
	return was && from == "true" && !slices.Contains(begun(), key)
}

// sameNetwork refuses manifests that change more than the version.
func (m *manifest) sameNetwork(live settings, found *cni.Installation) error {
	if err := cni.SameAgent(found, m.agent, "render the chart with the namespace and the values of the installed "+
		"release: helm get values cilium"); err != nil {
		return err
	}
	wanted := m.settings()
	for _, key := range keysOf(live, wanted) {
		if changes(key, live, wanted) {
			return refuse(fmt.Sprintf("the manifest changes more than the version: %s is %q and would be %q",
				key, live[key], wanted[key]), "render the chart with the values of the installed release (helm get "+
				"values cilium) and upgradeCompatibility, or change the setting with a separate plan")
		}
	}
	return nil
}

// turned lists the settings that the other version's chart adds, removes or changes.
func turned(live, wanted settings) []string {
	var all []string
	for _, key := range keysOf(live, wanted) {
		from, was := live[key]
		to, is := wanted[key]
		switch {
		case !was:
			all = append(all, fmt.Sprintf("%s is added (%q)", key, to))
		case !is:
			all = append(all, fmt.Sprintf("%s is removed (%q)", key, from))
		case from != to:
			all = append(all, fmt.Sprintf("%s changes from %q to %q", key, from, to))
		}
	}
	return all
}

// keysOf lists the keys of both, in order.
func keysOf(live, wanted settings) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(live)), maps.Keys(wanted))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// noProxylib is the first release whose proxy does not parse other protocols than HTTP and DNS.
var noProxylib = version.MustParseSemantic("v1.20.0-0")

// proxied refuses a cluster whose traffic passes Cilium's L7 proxy. By Cilium's upgrade guide, connections through it
// are reset when an agent restarts.
func proxied(snapshot *cluster.Snapshot, to string) error {
	now, _ := version.ParseSemantic(to) // versions has parsed it
	for _, kind := range []string{"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"} {
		for _, policy := range snapshot.OtherOf(group, kind) {
			rules := l7(&policy)
			if len(rules) == 0 {
				continue
			}
			name := strings.TrimPrefix(policy.GetNamespace()+"/"+policy.GetName(), "/")
			for _, removed := range []string{"kafka", "l7", "l7proto"} {
				if slices.Contains(rules, removed) && now.AtLeast(noProxylib) {
					return refuse(fmt.Sprintf("%s %s has rules for %s, which Cilium 1.20 removed: its agents would "+
						"reject the policy", kind, name, removed),
						"remove these rules from the policy before the upgrade")
				}
			}
			return refuse(fmt.Sprintf("%s %s has L7 rules (%s): connections through Cilium's proxy are reset when an "+
				"agent restarts", kind, name, strings.Join(rules, ", ")), byHelm)
		}
	}
	for _, kind := range []string{"CiliumEnvoyConfig", "CiliumClusterwideEnvoyConfig"} {
		if all := snapshot.OtherOf(group, kind); len(all) > 0 {
			return refuse(fmt.Sprintf("%s %s configures Cilium's proxy (as for Gateways and Ingresses): connections "+
				"through it are reset when an agent restarts", kind, all[0].GetName()), byHelm)
		}
	}
	return nil
}

// l7 lists the protocols of a policy's L7 rules, and what else sends its packets through the proxy, each once.
func l7(policy *unstructured.Unstructured) []string {
	specs, _, _ := unstructured.NestedSlice(policy.Object, "specs")
	if spec, ok, _ := unstructured.NestedMap(policy.Object, "spec"); ok {
		specs = append(specs, spec)
	}
	found := map[string]bool{}
	for _, spec := range specs {
		spec, _ := spec.(map[string]any)
		for _, direction := range []string{"ingress", "egress"} {
			entries, _ := spec[direction].([]any)
			for _, entry := range entries {
				entry, _ := entry.(map[string]any)
				ports, _ := entry["toPorts"].([]any)
				for _, port := range ports {
					port, _ := port.(map[string]any)
					for _, field := range []string{"listener", "originatingTLS", "serverNames", "terminatingTLS"} {
						if port[field] != nil {
							found[field] = true
						}
					}
					rules, _ := port["rules"].(map[string]any)
					for protocol := range rules {
						found[protocol] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// upgrade makes the changes between what runs and a manifest.
func (m *manifest) upgrade(snapshot *cluster.Snapshot, found *cni.Installation,
	agent *unstructured.Unstructured, live settings) (*cni.Upgrade, error) {
	next, s := *found, m.settings()
	next.Version, next.Untried = m.version(), ""
	next.ConfFolder = cni.HostFolderIn(m.agent, strings.TrimSuffix(confDir, "/"))
	next.PluginFolder = cni.HostFolderIn(m.agent, pluginDir)
	// what was on, and what will be
	next.NeverRun = slices.Concat(live.traitsNeverRun(), s.traitsNeverRun(), live.neverRun(), s.neverRun())
	slices.Sort(next.NeverRun)
	next.NeverRun = slices.Compact(next.NeverRun)
	next.Defect = s.stale(next.Version)
	u := &cni.Upgrade{Installation: next, Leading: true}
	u.Agent = cni.TemplateForm(agent, m.agent, found.Version, next.Version)
	u.Hold, u.Unhold, u.Resume = cni.Strategies(agent, m.agent)
	for i := range m.objects {
		switch object := &m.objects[i]; object.GetKind() {
		case "DaemonSet", "Secret": // Helm makes new certificates each time, and those of now remain valid
		case "Deployment":
			leader, err := lead(snapshot, object)
			if err != nil {
				return nil, err
			}
			u.Leaders = append(u.Leaders, *leader)
		case "ConfigMap":
			u.Config(snapshot, object)
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			u.Rights = append(u.Rights, cni.Beside(object, m.objects))
			u.Roles = append(u.Roles, *object)
		default:
			u.Objects = append(u.Objects, *object)
		}
	}
	cni.Label(u.Rights)
	if err := cni.Complete(snapshot, found, []string{operatorName, "hubble-relay", "hubble-ui"}, u.Leaders,
		"give the whole output of the chart, with the values of the installed release"); err != nil {
		return nil, err
	}
	for i := range u.Leaders { // the operator reads its settings only when it starts
		if f := &u.Leaders[i]; f.Ref.Name == operatorName {
			n := len(u.Agent.New) - 1 // the last one is the template
			f.New, f.Old = slices.Concat(u.Agent.New[:n], f.New), slices.Concat(u.Agent.Old[:n], f.Old)
		}
	}
	return u, nil
}

// lead returns a Deployment that is changed before the agents.
func lead(snapshot *cluster.Snapshot, wanted *unstructured.Unstructured) (*cni.Follower, error) {
	why := "It shows what agents report. Traffic between pods does not depend on it."
	if wanted.GetName() == operatorName {
		why = "A newer operator creates the CRDs that newer agents wait for, and an older one leaves them as " +
			"they are. Nodes keep their ranges, and agents enforce policy, while it restarts."
	}
	return cni.Follow(snapshot, wanted, why)
}
