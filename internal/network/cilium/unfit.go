package cilium

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// trait is a setting of Cilium with which it was never run next to another network.
type trait struct {
	key  string
	has  func(settings) bool
	what string // what Cilium does with it
	hint string // the value of the chart without it
}

// value reports a key with one of some values.
func value(key string, values ...string) func(settings) bool {
	return func(s settings) bool { return slices.Contains(values, s[key]) }
}

// traits are in the order in which they are reported. The lab ran Cilium next to flannel with none of them.
func traits() []trait {
	on := func(key, what, hint string) trait { return trait{key, value(key, "true"), what, hint} }
	return []trait{
		{"routing-mode", func(s settings) bool { return s.mode() == "none" }, "sends pods' packets without tunnels",
			"routingMode=tunnel"},
		{"tunnel-protocol", func(s settings) bool { return s.mode() == "geneve" },
			"uses Geneve", "tunnelProtocol=vxlan"},
		on("enable-ipv6", "gives pods IPv6 addresses", "ipv6.enabled=false"),
		on("enable-ipsec", "encrypts traffic between its nodes by IPsec", "encryption.enabled=false"),
		on("enable-wireguard", "encrypts traffic between its nodes by WireGuard", "encryption.enabled=false"),
		on("enable-ztunnel", "encrypts traffic between its pods by ztunnel", "encryption.enabled=false"),
		{"cluster-id", func(s settings) bool { return s["cluster-id"] != "" && s["cluster-id"] != "0" },
			"is a member of a cluster mesh", "cluster.id=0"},
		on("enable-host-firewall", "enforces policy on the nodes themselves", "hostFirewall.enabled=false"),
		on("enable-gateway-api", "serves Gateways", "gatewayAPI.enabled=false"),
		on("enable-ingress-controller", "serves Ingresses", "ingressController.enabled=false"),
		on("enable-bpf-masquerade", "masquerades in BPF, where no rule exempts traffic to the other network",
			"bpf.masquerade=false"),
		on("enable-endpoint-routes", "routes to each pod separately", "endpointRoutes.enabled=false"),
		{"datapath-mode", func(s settings) bool { return strings.HasPrefix(s["datapath-mode"], "netkit") },
			"attaches pods by netkit", "bpf.datapathMode=veth"},
		{"identity-allocation-mode", value("identity-allocation-mode", "kvstore"), "stores identities in etcd",
			"identityAllocationMode=crd"},
		{"enable-policy", value("enable-policy", "never"), "enforces no policy", "policyEnforcementMode=default"},
		{"enable-policy", value("enable-policy", "always"), "denies pods without policies everything",
			"policyEnforcementMode=default"},
		on("policy-audit-mode", "only logs what policy denies", "policyAuditMode=false"),
		{"enable-k8s-networkpolicy", value("enable-k8s-networkpolicy", "false"), "ignores NetworkPolicies",
			"k8sNetworkPolicy.enabled=true"},
		{"enable-ipv4-masquerade", value("enable-ipv4-masquerade", "false"), "masquerades nothing",
			"enableIPv4Masquerade=true"},
		on("enable-cilium-endpoint-slice", "groups its endpoints in CiliumEndpointSlices",
			"ciliumEndpointSlice.enabled=false"),
		{"labels", func(s settings) bool { return s["labels"] != "" }, "identifies pods by labels of the user's choice",
			"labels="},
		{"cluster-name", func(s settings) bool { return s["cluster-name"] != "" && s["cluster-name"] != clusterName },
			"has a name of its own", "cluster.name=" + clusterName},
	}
}

// alsoUntried names the traits of a live Cilium; empty if it has none.
func (s settings) alsoUntried() string {
	var all []string
	for _, t := range traits() {
		if t.has(s) {
			all = append(all, fmt.Sprintf("%s (%s)", t.what, t.key))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ". This one " + strings.Join(all, ", ")
}

// unfit refuses settings with a trait.
func (s settings) unfit() error {
	for _, t := range traits() {
		if t.has(s) {
			return refuse(fmt.Sprintf("Cilium %s with %s in %s, and Theseus was never run with that next to "+
				"another network",
				t.what, t.key, configName),
				"render the chart for the change of networks with --set "+t.hint+", and change the setting afterwards")
		}
	}
	return nil
}

// traitsNeverRun names the traits with which no upgrade was run.
func (s settings) traitsNeverRun() []string {
	var all []string
	for _, t := range traits() {
		if t.has(s) {
			all = append(all, fmt.Sprintf("that %s (%s)", t.what, t.key))
		}
	}
	return all
}

// neverRun are settings of the chart's own that the lab's Cilium does not have.
func (s settings) neverRun() []string {
	var all []string
	for _, of := range []struct{ key, what string }{
		{"enable-hubble", "with Hubble"}, {"enable-l7-proxy", "with L7 policies"},
		{"external-envoy-proxy", "with Envoy as a DaemonSet of its own"},
		{"enable-health-checking", "with health checks between its nodes"},
		{"enable-bandwidth-manager", "with limits of pods' bandwidth"},
		{"enable-bgp-control-plane", "with BGP"},
		{"enable-egress-gateway", "with egress gateways"},
		{"enable-ipv4-egress-gateway", "with egress gateways"}, // its name before 1.18
		{"enable-l2-announcements", "with addresses of Services that its nodes announce"},
		{"enable-local-redirect-policy", "with local redirects"},
		{"enable-sctp", "with SCTP"},
	} {
		if s.on(of.key) {
			all = append(all, of.what+" ("+of.key+")")
		}
	}
	return all
}

// proxyName is the DaemonSet of Cilium's L7 proxy.
const proxyName = "cilium-envoy"

// strangers refuses DaemonSets that would act on nodes on which no agent runs, and clusters of a mesh.
func (m *manifest) strangers() error {
	for i := range m.objects {
		object := &m.objects[i]
		switch {
		case object.GetKind() == "Deployment" && object.GetName() == meshName:
			return refuse("Deployment "+meshName+" connects the cluster to others of a cluster mesh, whose agents "+
				"do not know the pods of another network", "render the chart with --set clustermesh.useAPIServer=false")
		case object.GetKind() != "DaemonSet" || cni.FindContainer(object, "containers", container) != nil ||
			object.GetName() == proxyName:
		case object.GetName() == "cilium-node-init":
			return refuse("DaemonSet cilium-node-init changes the container runtime's configuration on every node "+
				"at once", "render the chart with --set nodeinit.enabled=false")
		default:
			return refuse(fmt.Sprintf("the manifest contains DaemonSet %s/%s, and its effect on pods of another "+
				"network is unknown", object.GetNamespace(), object.GetName()),
				"give only the output of Cilium's chart")
		}
	}
	return nil
}

// only makes a DaemonSet run on nodes with a label.
func only(set *unstructured.Unstructured, label string) {
	_ = unstructured.SetNestedField(set.Object, "true", "spec", "template", "spec", "nodeSelector", label)
}
