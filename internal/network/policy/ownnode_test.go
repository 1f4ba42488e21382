package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// near is host/near, on the host network of the node of shop/web.
const near = `
apiVersion: v1
kind: Pod
metadata: {name: near, namespace: host}
spec: {nodeName: n1, hostNetwork: true, containers: [{name: c}]}
status: {podIP: 192.168.0.1}
`

var kindnet = Profile{CNI: "kindnet", Version: "v20250512", Dialect: Kubernetes}

// TestOwnNode: what a pod sends to its own node is up to egress policies on most networks. What a node sends to its own
// pods always arrives.
func TestOwnNode(t *testing.T) {
	beside := kindnet
	beside.Firewall = true
	isolated := kubernetesText("{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress, Ingress]}")
	block := kubernetesText("{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: " +
		"[{ipBlock: {cidr: 192.168.0.0/30}}]}]}")
	entity := func(name string) string {
		return ciliumText("CiliumNetworkPolicy",
			"{endpointSelector: {matchLabels: {app: web}}, egress: [{toEntities: ["+name+"]}]}")
	}
	for _, test := range []struct {
		name    string
		profile Profile
		policy  string
		want    string // the verdicts of web to its own node, and to another
	}{
		{"kube-router", kubeRouter, isolated, "deny deny"},
		{"Calico", calicoNow, isolated, "deny deny"},
		{"Cilium", ciliumNow, isolated, "deny deny"},
		{"Weave Net", weave, isolated, "allow deny"},
		{"kindnet", kindnet, isolated, "allow deny"},
		{"kube-router beside kindnet", beside, isolated, "deny deny"},
		{"nothing enforces it", Profile{CNI: "flannel", Dialect: None}, isolated, "allow allow"},
		{"the node by its address", kubeRouter, block, "allow allow"},
		{"Cilium selects no node by address", ciliumNow, block, "deny deny"},
		{"Calico's rule", calicoNow, calicoText("GlobalNetworkPolicy", "g", "{selector: app == 'web', types: "+
			"[Egress], egress: [{action: Allow, destination: {nets: [192.168.0.1/32]}}]}"), "allow deny"},
		{"another pod's policy", calicoNow, calicoText("GlobalNetworkPolicy", "g",
			"{selector: app == 'db', types: [Egress]}"), "allow allow"},
		{"host", ciliumNow, entity("host"), "allow deny"},
		{"remote-node", ciliumNow, entity("remote-node"), "deny allow"},
		{"both", ciliumNow, entity("host, remote-node"), "allow allow"},
		{"cluster", ciliumNow, entity("cluster"), "allow allow"},
		{"world", ciliumNow, entity("world"), "deny deny"},
		{"kube-apiserver", ciliumNow, entity("kube-apiserver"), "depends depends"},
	} {
		m := Build(snapshotOf(t, town, near, test.policy), test.profile, test.profile)
		got := string(verdictOf(t, m, After, "shop/web host/near TCP 80")) + " " +
			string(verdictOf(t, m, After, "shop/web host/agent TCP 80"))
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		for _, flow := range []string{"host/near shop/web TCP 80", "host/near host/near TCP 80"} {
			if got := verdictOf(t, m, After, flow); got != Allow {
				t.Errorf("%s: %s: %s", test.name, flow, got)
			}
		}
	}
}

// TestFromHost: the entity host is a pod's own node, which needs no policy. Hosts that are others it does not let in.
func TestFromHost(t *testing.T) {
	for entity, want := range map[string]Verdict{"host": Deny, "remote-node": Allow} {
		m := Build(snapshotOf(t, town, near, ciliumText("CiliumNetworkPolicy",
			"{endpointSelector: {matchLabels: {app: web}}, ingress: [{fromEntities: ["+entity+"]}]}")),
			ciliumNow, ciliumNow)
		if got := verdictOf(t, m, After, "host/agent shop/web TCP 80"); got != want {
			t.Errorf("%s: %s, want %s", entity, got, want)
		}
		if got := verdictOf(t, m, After, "host/near shop/web TCP 80"); got != Allow {
			t.Errorf("%s: the own node: %s", entity, got)
		}
	}
}

// TestDenyOfOwnNode: Cilium's deny rules precede the one that lets a node reach its own pods.
func TestDenyOfOwnNode(t *testing.T) {
	for rule, want := range map[string]string{
		"{fromEntities: [all]}":                               "deny deny closes",
		"{fromEntities: [host]}":                              "deny allow closes",
		"{fromEntities: [remote-node]}":                       "allow deny closes",
		"{toPorts: [{ports: [{port: '80', protocol: TCP}]}]}": "deny deny closes",
		"{toPorts: [{ports: [{port: '81', protocol: TCP}]}]}": "allow allow closes",
		"{fromEndpoints: [{matchLabels: {app: web}}]}":        "allow allow ",
		"{fromCIDR: [192.168.0.0/16]}":                        "allow allow ",
	} {
		text := ciliumText("CiliumNetworkPolicy", "{endpointSelector: {matchLabels: {app: web}}, enableDefaultDeny: "+
			"{ingress: false}, ingressDeny: ["+rule+"]}")
		m := Build(snapshotOf(t, town, near, text), Profile{CNI: "flannel"}, ciliumNow)
		got := string(verdictOf(t, m, After, "host/near shop/web TCP 80")) + " " +
			string(verdictOf(t, m, After, "host/agent shop/web TCP 80")) + " "
		for _, d := range m.Differences() {
			got += string(d.Change)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

// TestOwnNodeDifferences: the comparison finds what changes between a pod and its own node alone.
func TestOwnNodeDifferences(t *testing.T) {
	egress := kubernetesText("{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: " +
		"[{port: 53, protocol: UDP}]}]}")
	entity := ciliumText("CiliumNetworkPolicy", "{endpointSelector: {matchLabels: {app: web}}, egress: [{toEntities: "+
		"[host, remote-node]}, {toEndpoints: [{}]}]}")
	for _, test := range []struct {
		name          string
		before, after Profile
		texts         []string
		want          string
	}{
		{"closes", weave, calicoNow, []string{near, egress}, "closes k 1 1 weave/own-node-is-free shop/web host/near"},
		{"opens", kubeRouter, kindnet, []string{near, egress},
			"opens k 1 1 kindnet/own-node-is-free shop/web host/near"},
		{"both leave it", weave, kindnet, []string{near, egress}, ""},
		{"both police it", kubeRouter, ciliumNow, []string{near, egress}, ""},
		{"no pod of the host network there", weave, calicoNow, []string{egress}, ""},
		{"two on the node", weave, calicoNow,
			[]string{near, strings.Replace(near, "name: near", "name: two", 1), egress},
			"closes k 1 2 weave/own-node-is-free shop/web host/two"},
		{"allowed there", weave, ciliumNow, []string{near, entity}, "closes c 1 1 shop/web other/client"},
	} {
		m := Build(snapshotOf(t, append([]string{town}, test.texts...)...), test.before, test.after)
		var got []string
		for _, d := range m.Differences() {
			w := d.Witness
			parts := []string{string(d.Change), d.Policy.Name, strings.Repeat("1", d.Pods), string(rune('0' + d.Peers))}
			parts = append(append(parts, d.Deviations...), name(w.From), name(w.To))
			got = append(got, strings.Join(parts, " "))
			if own := d.OwnNode(); own != (len(d.Deviations) > 0) {
				t.Errorf("%s: own node %v", test.name, own)
			}
		}
		if diff := cmp.Diff(test.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if len(m.Probes()) != len(m.Differences()) {
			t.Errorf("%s: %d probes", test.name, len(m.Probes()))
		}
	}
}

// TestProfileOfFirewall: kube-router beside a network is known from the installation.
func TestProfileOfFirewall(t *testing.T) {
	for _, agent := range []*step.Ref{nil, {Kind: "DaemonSet"}} {
		if got := ProfileOf(&cni.Installation{CNI: "kindnet", PolicyAgent: agent}).Firewall; got != (agent != nil) {
			t.Errorf("%v: %v", agent, got)
		}
	}
}
