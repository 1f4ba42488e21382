package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
)

// town is a small cluster: shop/web and shop/db, other/client, and host/agent on the host network of a third node.
const town = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: other, labels: {team: other}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
status: {podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n2, serviceAccountName: db, containers: [{name: c, ports: [{name: http, containerPort: 9090}, {name: dns, containerPort: 53, protocol: UDP}]}]}
status: {podIP: 10.0.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: other, labels: {app: client}}
spec: {nodeName: n1, serviceAccountName: client, containers: [{name: c}]}
status: {podIP: 10.0.1.1}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: host, labels: {app: web}}
spec: {nodeName: n3, hostNetwork: true, containers: [{name: c}]}
status: {podIP: 192.168.0.3}
---
apiVersion: v1
kind: Pod
metadata: {name: done, namespace: shop, labels: {app: web}}
spec: {nodeName: n3, containers: [{name: c}]}
status: {phase: Succeeded, podIP: 10.0.0.9}
`

func snapshotOf(t *testing.T, texts ...string) *cluster.Snapshot {
	t.Helper()
	builder := document.New("test")
	if err := builder.Add("input", strings.NewReader(strings.Join(texts, "\n---\n")), false); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := builder.Snapshot()
	return snapshot
}

var (
	kubeRouter = Profile{CNI: "kube-router", Dialect: Kubernetes}
	calicoNow  = Profile{CNI: "calico", Dialect: Calico}
	ciliumNow  = Profile{CNI: "cilium", Dialect: Cilium}
	ciliumOld  = Profile{CNI: "cilium", Version: "v1.15.7", Dialect: Cilium}
	weave      = Profile{CNI: "weave", Version: "2.6.5", Dialect: Kubernetes}
)

func calicoText(kind, name, spec string) string {
	return "apiVersion: projectcalico.org/v3\nkind: " + kind + "\nmetadata: {name: " + name + ", namespace: " +
		map[string]string{"NetworkPolicy": "shop"}[kind] + "}\nspec: " + spec
}

// setText is a network set with the label role=x.
func setText(kind, net string) string {
	return "apiVersion: projectcalico.org/v3\nkind: " + kind + "\nmetadata: {name: s, labels: {role: x}, namespace: " +
		map[string]string{"NetworkSet": "shop"}[kind] + "}\nspec: {nets: [" + net + "]}"
}

func ciliumText(kind, spec string) string {
	return "apiVersion: cilium.io/v2\nkind: " + kind + "\nmetadata: {name: c, namespace: " +
		map[string]string{"CiliumNetworkPolicy": "shop"}[kind] + "}\nspec: " + spec
}

func kubernetesText(spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: k, namespace: shop}\nspec: " + spec
}

// TestVerdict lists what a policy does to one connection, each as "from to port: verdict".
func TestVerdict(t *testing.T) {
	const client, web, db, agent = "other/client", "shop/web", "shop/db", "host/agent"
	for _, test := range []struct {
		name     string
		profile  Profile
		policies []string
		want     map[string]Verdict
	}{
		{"nothing enforces nothing", Profile{CNI: "flannel", Dialect: None},
			[]string{kubernetesText("{podSelector: {}}")}, map[string]Verdict{client + " " + web + " TCP 80": Allow}},
		{"no types: ingress", kubeRouter, []string{kubernetesText("{podSelector: {}}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, web + " " + client + " TCP 80": Allow,
				web + " " + web + " TCP 80": Allow}},
		{"no types, rules for egress: both", kubeRouter,
			[]string{kubernetesText("{podSelector: {}, egress: [{ports: [{port: 53, protocol: UDP}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, web + " " + client + " TCP 80": Deny,
				web + " " + client + " UDP 53": Allow}},
		{"a named port is the listener's", kubeRouter,
			[]string{kubernetesText("{podSelector: {}, ingress: [{ports: [{port: http}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 8080": Allow, client + " " + db + " TCP 8080": Deny,
				client + " " + db + " TCP 9090": Allow, client + " " + db + " UDP 9090": Deny}},
		{"a named port out", kubeRouter,
			[]string{"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: k, namespace: other}\n" +
				"spec: {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}"},
			map[string]Verdict{client + " " + web + " TCP 8080": Allow, client + " " + db + " TCP 8080": Deny,
				client + " " + db + " TCP 9090": Allow}},
		{"a host is no pod, but its address", kubeRouter, []string{kubernetesText(
			"{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}}]}]}"),
			strings.Replace(kubernetesText("{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: "+
				"{cidr: 192.168.0.0/24}}]}]}"), "name: k", "name: k2", 1)},
			map[string]Verdict{agent + " " + web + " TCP 80": Deny, client + " " + web + " TCP 80": Allow,
				agent + " " + db + " TCP 80": Allow, client + " " + db + " TCP 80": Deny}},
		{"an address that is no address", kubeRouter,
			[]string{kubernetesText("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny}},
		{"except", kubeRouter, []string{kubernetesText(
			"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/16, except: [10.0.1.0/24]}}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"Cilium never selects pods by address",
			ciliumNow, []string{kubernetesText("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, agent + " " + web + " TCP 80": Deny}},
		{"endPort on Cilium", ciliumNow,
			[]string{kubernetesText("{podSelector: {}, ingress: [{ports: [{port: 80, endPort: 90}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 85": Allow, client + " " + web + " TCP 91": Deny}},
		{"endPort on an older Cilium", ciliumOld,
			[]string{kubernetesText("{podSelector: {}, ingress: [{ports: [{port: 80, endPort: 90}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, client + " " + web + " TCP 85": Deny}},
		{"weave leaves out a policy with a named port",
			weave, []string{kubernetesText("{podSelector: {}, ingress: [{ports: [{port: http}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 81": Allow}},
		{"the first of Calico's rules decides", calicoNow, []string{calicoText("GlobalNetworkPolicy", "g",
			"{order: 1, types: [Ingress], ingress: [{action: Log}, {action: Deny, source: {selector: app == "+
				"'client'}}, {action: Allow}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"a NetworkPolicy stands at order 1000", calicoNow, []string{kubernetesText("{podSelector: {}}"),
			calicoText("GlobalNetworkPolicy", "early",
				"{order: 999, selector: app == 'web', types: [Ingress], ingress: [{action: Allow}]}"),
			calicoText("GlobalNetworkPolicy", "late",
				"{order: 1001, selector: app == 'db', types: [Ingress], ingress: [{action: Allow}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, client + " " + db + " TCP 80": Allow}},
		{"a tier that passes", calicoNow, []string{
			"apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: first}\n" +
				"spec: {order: 1, defaultAction: Pass}",
			calicoText("GlobalNetworkPolicy", "g", "{tier: first, types: [Ingress], ingress: [{action: Deny, source: "+
				"{namespaceSelector: team == 'other'}}]}"),
			kubernetesText("{podSelector: {}, ingress: [{ports: [{port: 80}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow,
				db + " " + web + " TCP 81": Deny}},
		{"a tier that denies", calicoNow, []string{
			"apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: first}\nspec: {order: 1}",
			calicoText("GlobalNetworkPolicy", "g",
				"{tier: first, types: [Ingress], ingress: [{action: Pass, source: {selector: app == 'db'}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"selectors of a namespaced policy stay in it", calicoNow, []string{calicoText("NetworkPolicy", "c",
			"{types: [Ingress], ingress: [{action: Allow, source: {selector: has(app)}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"global() is nobody in a namespace", calicoNow, []string{calicoText("NetworkPolicy", "c",
			"{types: [Ingress], ingress: [{action: Allow, source: {namespaceSelector: global()}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Deny}},
		{"service accounts", calicoNow,
			[]string{calicoText("NetworkPolicy", "c", "{types: [Ingress], serviceAccountSelector: "+
				"projectcalico.org/name == 'web', ingress: [{action: Allow, source: "+
				"{serviceAccounts: {names: [db]}}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow,
				client + " " + db + " TCP 80": Allow}},
		{"labels of service accounts", calicoNow,
			[]string{"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: db, namespace: shop, labels: {role: x}}",
				calicoText("GlobalNetworkPolicy", "g", "{types: [Ingress], serviceAccountSelector: role == 'x'}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, client + " " + db + " TCP 80": Deny}},
		{"a subject by unknown labels of service accounts", calicoNow,
			[]string{calicoText("NetworkPolicy", "c", "{types: [Ingress], selector: app == 'db', "+
				"serviceAccountSelector: role == 'x'}"),
				calicoText("GlobalNetworkPolicy", "g", "{types: [Ingress], namespaceSelector: team == 'other', "+
					"selector: pcsa.role == 'x'}")},
			map[string]Verdict{web + " " + db + " TCP 80": Depends, agent + " " + web + " TCP 80": Allow,
				web + " " + client + " TCP 80": Depends}},
		{"a peer by unknown labels of service accounts", calicoNow,
			[]string{calicoText("NetworkPolicy", "c", "{types: [Ingress], selector: app == 'web', ingress: [{action: "+
				"Allow, source: {selector: app == 'db', serviceAccounts: {selector: role == 'x'}}}]}")},
			map[string]Verdict{db + " " + web + " TCP 80": Depends, client + " " + web + " TCP 80": Deny}},
		{"a peer not by unknown labels of service accounts", calicoNow,
			[]string{calicoText("GlobalNetworkPolicy", "g", "{types: [Ingress], ingress: [{action: Allow, "+
				"source: {selector: app == 'db', notSelector: pcsa.role == 'x'}}]}")},
			map[string]Verdict{db + " " + web + " TCP 80": Depends, client + " " + web + " TCP 80": Deny}},
		{"names of service accounts are known", calicoNow,
			[]string{calicoText("GlobalNetworkPolicy", "g", "{types: [Ingress], "+
				"selector: pcsa.projectcalico.org/name == 'web'}")},
			map[string]Verdict{db + " " + web + " TCP 80": Deny, web + " " + db + " TCP 80": Allow}},
		{"a network set of the cluster", calicoNow,
			[]string{setText("GlobalNetworkSet", "10.0.1.0/24"), calicoText("GlobalNetworkPolicy", "g",
				"{types: [Ingress], ingress: [{action: Deny, source: {selector: role == 'x'}}, {action: Allow}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"pods and a network set", calicoNow,
			[]string{setText("GlobalNetworkSet", "192.168.0.0/24"), calicoText("GlobalNetworkPolicy", "g",
				"{types: [Ingress], ingress: [{action: Allow, source: {selector: role == 'x' || app == 'db'}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow,
				agent + " " + web + " TCP 80": Allow}},
		{"a network set that is excluded", calicoNow,
			[]string{setText("GlobalNetworkSet", "10.0.1.0/24"), calicoText("GlobalNetworkPolicy", "g",
				"{types: [Ingress], ingress: [{action: Allow, source: {notSelector: role == 'x'}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"a network set of the namespace", calicoNow,
			[]string{setText("NetworkSet", "10.0.1.0/24"), calicoText("NetworkPolicy", "c",
				"{types: [Ingress], ingress: [{action: Allow, source: {selector: role == 'x'}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, db + " " + web + " TCP 80": Deny}},
		{"no policy of a namespace has a network set of the cluster, unless it says so", calicoNow,
			[]string{setText("GlobalNetworkSet", "10.0.1.0/24"), calicoText("NetworkPolicy", "c", "{types: [Ingress], "+
				"selector: app == 'web', ingress: [{action: Allow, source: {selector: role == 'x'}}]}"),
				calicoText("NetworkPolicy", "d", "{types: [Ingress], selector: app == 'db', ingress: [{action: Allow, "+
					"source: {selector: role == 'x', namespaceSelector: global()}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, client + " " + db + " TCP 80": Allow}},
		{"a network set by its namespace", calicoNow,
			[]string{setText("NetworkSet", "10.0.1.0/24"), calicoText("GlobalNetworkPolicy", "g", "{types: [Ingress], "+
				"ingress: [{action: Allow, source: {namespaceSelector: team == 'shop'}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, agent + " " + web + " TCP 80": Deny}},
		{"a network set is no pod, and has no service account", calicoNow,
			[]string{setText("GlobalNetworkSet", "10.0.1.0/24"), calicoText("GlobalNetworkPolicy", "g",
				"{types: [Ingress], selector: '!has(role)', ingress: [{action: Allow, source: {serviceAccounts: "+
					"{names: [db]}}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"what a rule says of the subject itself", calicoNow, []string{calicoText("GlobalNetworkPolicy", "g",
			"{types: [Ingress], ingress: [{action: Allow, destination: {selector: app == 'web'}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, client + " " + db + " TCP 80": Deny}},
		{"ports, ranges, names, protocols", calicoNow, []string{calicoText("NetworkPolicy", "c",
			"{ingress: [{action: Deny, protocol: ICMP}, {action: Allow, protocol: 6, destination: {ports: [80, "+
				"'90:95', http], notPorts: [93]}}, {action: Allow, notProtocol: TCP}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, client + " " + web + " TCP 92": Allow,
				client + " " + web + " TCP 93": Deny, client + " " + web + " TCP 8080": Allow,
				client + " " + web + " TCP 81": Deny, client + " " + web + " UDP 81": Allow}},
		{"nets and the version of IP", calicoNow, []string{calicoText("NetworkPolicy", "c", "{ingress: [{action: "+
			"Deny, ipVersion: 6}, {action: Allow, source: {nets: [10.0.0.0/8], notNets: [10.0.1.0/24]}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny, db + " " + web + " TCP 80": Allow}},
		{"source ports are not modelled", calicoNow, []string{calicoText("NetworkPolicy", "c",
			"{ingress: [{action: Allow, protocol: TCP, source: {ports: [123]}}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Depends, client + " " + web + " UDP 80": Deny}},
		{"stored and served are one", calicoNow,
			[]string{calicoText("GlobalNetworkPolicy", "g", "{types: [Ingress], ingress: [{action: Allow}]}"),
				"apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: default.g}\n" +
					"spec: {order: 1, types: [Ingress]}"},
			map[string]Verdict{client + " " + web + " TCP 80": Allow}},
		{"what Cilium denies is denied first", ciliumNow,
			[]string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, ingress: [{fromEntities: [all]}], "+
				"ingressDeny: [{fromEndpoints: [{matchLabels: {k8s:app: db}}], toPorts: [{ports: [{port: '80'}]}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, db + " " + web + " TCP 80": Deny,
				db + " " + web + " TCP 81": Allow, agent + " " + web + " TCP 1": Allow}},
		{"an empty rule isolates", ciliumNow,
			[]string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, ingress: [{}]}")},
			map[string]Verdict{db + " " + web + " TCP 80": Deny, web + " " + client + " TCP 80": Allow}},
		{"an empty list selects nobody", ciliumNow, []string{ciliumText("CiliumNetworkPolicy",
			"{endpointSelector: {}, ingress: [{fromEndpoints: [], toPorts: [{ports: [{port: '80'}]}]}]}")},
			map[string]Verdict{db + " " + web + " TCP 80": Deny}},
		{"only ports: everybody", ciliumNow,
			[]string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, ingress: [{toPorts: [{ports: [{port: "+
				"'80', endPort: 82, protocol: TCP}, {port: dns, protocol: ANY}]}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 82": Allow, client + " " + web + " TCP 83": Deny,
				agent + " " + web + " TCP 80": Allow, client + " " + db + " UDP 53": Allow,
				client + " " + db + " TCP 53": Deny}},
		{"no default deny", ciliumNow, []string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, "+
			"enableDefaultDeny: {ingress: false}, ingressDeny: [{fromEndpoints: [{matchLabels: {app: db}}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, db + " " + web + " TCP 80": Deny}},
		{"namespaces by label, and accounts", ciliumNow, []string{ciliumText("CiliumClusterwideNetworkPolicy",
			"{endpointSelector: {matchLabels: {io.cilium.k8s.policy.serviceaccount: web}}, ingress: [{fromEndpoints: "+
				"[{matchLabels: {'k8s:io.cilium.k8s.namespace.labels.team': other}}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Allow, db + " " + web + " TCP 80": Deny,
				client + " " + db + " TCP 80": Allow}},
		{"layer 7 and names outside", ciliumNow, []string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, "+
			"ingress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{}]}}]}], egress: [{toFQDNs: "+
			"[{matchName: example.org}]}, {toServices: [{}], toPorts: [{ports: [{port: '9', protocol: TCP}]}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Depends, client + " " + web + " TCP 81": Deny,
				web + " " + client + " TCP 80": Deny, web + " " + client + " TCP 9": Depends}},
		{"only ICMP", ciliumNow, []string{ciliumText("CiliumNetworkPolicy",
			"{endpointSelector: {}, ingress: [{fromEntities: [cluster], icmps: [{fields: [{type: 8}]}]}]}")},
			map[string]Verdict{client + " " + web + " TCP 80": Deny}},
		{"addresses outside", ciliumNow, []string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, ingress: "+
			"[{fromCIDR: [203.0.113.0/24]}], egress: [{toEntities: [world]}], egressDeny: [{toCIDR: "+
			"[203.0.113.9/32]}]}")},
			map[string]Verdict{"203.0.113.7 " + web + " TCP 80": Allow, "192.0.2.1 " + web + " TCP 80": Deny,
				web + " 203.0.113.7 TCP 80": Allow, web + " 203.0.113.9 TCP 80": Deny,
				web + " " + client + " TCP 80": Deny}},
		{"nodes", ciliumNow, []string{ciliumText("CiliumNetworkPolicy",
			"{endpointSelector: {}, ingress: [{fromEntities: [remote-node]}]}")},
			map[string]Verdict{agent + " " + web + " TCP 80": Allow, client + " " + web + " TCP 80": Deny}},
	} {
		t.Run(test.name, func(t *testing.T) {
			model := Build(snapshotOf(t, append([]string{town}, test.policies...)...), test.profile, test.profile)
			got := map[string]Verdict{}
			for flow := range test.want {
				got[flow] = verdictOf(t, model, Before, flow)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d := model.Differences(); len(d) > 0 {
				t.Errorf("a profile differs from itself: %+v", d)
			}
		})
	}
}

// verdictOf reads "from to protocol port".
func verdictOf(t *testing.T, m *Model, side Side, flow string) Verdict {
	t.Helper()
	words := strings.Fields(flow)
	var port Port
	for _, p := range protocols {
		if string(p) == words[2] {
			port.Protocol = p
		}
	}
	for _, digit := range words[3] {
		port.Number = port.Number*10 + int(digit-'0')
	}
	got, err := m.Verdict(side, words[0], words[1], port)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestVerdictOfNothing(t *testing.T) {
	model := Build(snapshotOf(t, town), kubeRouter, calicoNow)
	for _, bad := range []struct {
		from, to string
		port     Port
	}{{"shop/web", "shop/none", Port{"TCP", 80}}, {"none", "shop/web", Port{"TCP", 80}},
		{"shop/web", "shop/done", Port{"TCP", 80}},
		{"shop/web", "shop/db", Port{"ICMP", 80}}, {"shop/web", "shop/db", Port{"TCP", 0}},
		{"shop/web", "shop/db", Port{"UDP", 65536}}} {
		if v, err := model.Verdict(Before, bad.from, bad.to, bad.port); err == nil {
			t.Errorf("%v: %s", bad, v)
		}
	}
}

// TestGaps holds that what is not modelled is said.
func TestGaps(t *testing.T) {
	for _, test := range []struct{ policy, says string }{
		{kubernetesText("{podSelector: {matchExpressions: [{key: a, operator: Odd}]}}"),
			"its podSelector cannot be read"},
		{kubernetesText("{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: " +
			"In}]}}]}]}"), "a peer's selector cannot be read"},
		{kubernetesText("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0}}]}]}"),
			"the address range 10.0.0 cannot be read"},
		{calicoText("NetworkPolicy", "c", "{selector: 'a =='}"), "its selector cannot be read"},
		{calicoText("NetworkPolicy", "c", "{ingress: [{action: Maybe}]}"),
			"ingress rule 1 cannot be read, so it is left out: the action"},
		{calicoText("NetworkPolicy", "c", "{ingress: [{action: Allow, protocol: X}]}"),
			"ingress rule 1 cannot be read, so it is left out: the protocol"},
		{calicoText("NetworkPolicy", "c", "{ingress: [{action: Allow, protocol: TCP, destination: {ports: ['9:1']}}]}"),
			"ingress rule 1 cannot be read, so it is left out: the port"},
		{calicoText("NetworkPolicy", "c", "{egress: [{action: Allow, source: {selector: '('}}]}"),
			"egress rule 1 cannot be read"},
		{calicoText("NetworkPolicy", "c", "{egress: [{action: Allow, destination: {services: {name: x}}, http: {}}]}"),
			"http, services: not modelled"},
		{calicoText("NetworkPolicy", "c", "{serviceAccountSelector: role == 'x'}"),
			"labels of service accounts are not in the snapshot"},
		{calicoText("NetworkPolicy", "c", "{order: first}"), "it cannot be read, so it is left out"},
		{calicoText("GlobalNetworkPolicy", "g", "{doNotTrack: true}"), "doNotTrack and preDNAT are not modelled"},
		{calicoText("NetworkPolicy", "c", "{ingress: [{action: Allow, source: {selector: pcsa.role == 'x'}}]}"),
			"labels of service accounts are not in the snapshot: if the rest"},
		{calicoText("GlobalNetworkSet", "g", "{nets: 10.0.0.0/8}"), "it cannot be read"},
		{calicoText("GlobalNetworkSet", "g", "{nets: [10.0.0]}") + "\n---\n" + calicoText("GlobalNetworkPolicy", "g",
			"{ingress: [{action: Allow, source: {selector: all()}}]}"), "the address range 10.0.0 cannot be read"},
		{calicoText("HostEndpoint", "g", "{node: n1}"), "host endpoints are not modelled"},
		{ciliumText("CiliumClusterwideNetworkPolicy", "{nodeSelector: {}}"), "policies of nodes are not modelled"},
		{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, ingress: [{fromRequires: [{}]}]}"),
			"fromRequires and toRequires are not modelled"},
		{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, ingress: [{fromGroups: [{}]}]}"),
			"groups are not modelled"},
		{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, egress: [{toNodes: [{}]}]}"),
			"fromNodes and toNodes are not modelled"},
		{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, egress: [{toEntities: [kube-apiserver]}]}"),
			"the entity kube-apiserver is not modelled"},
		{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, egress: [{toPorts: [{ports: [{port: '8x:9'}]}]}]}"),
			"it cannot be read, so it is left out: the port"},
		{ciliumText("CiliumNetworkPolicy", "{endpointSelector: []}"), "it cannot be read, so it is left out"},
		{"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: a}",
			"policies of this kind are not evaluated"},
	} {
		gaps := Build(snapshotOf(t, town, test.policy), calicoNow, ciliumNow).Gaps()
		if len(gaps) != 1 || !strings.HasPrefix(gaps[0].What, test.says) {
			t.Errorf("%s\nwant %q, got %+v", test.policy, test.says, gaps)
		}
	}
}

// TestDifference holds what is said of a difference, and that one probe may show several.
func TestDifference(t *testing.T) {
	closed := kubernetesText(
		"{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 80, endPort: 90}]}]}")
	twice := strings.Replace(closed, "name: k", "name: again", 1)
	model := Build(snapshotOf(t, town, closed, twice), Profile{CNI: "flannel", Dialect: None}, calicoNow)
	var got []string
	for _, d := range model.Differences() {
		if d.Only != After || d.Pods != 2 || d.Witness.Before != Allow || d.Witness.After != Deny {
			t.Errorf("%+v", d)
		}
		got = append(got,
			strings.Join([]string{d.Policy.Name, d.Direction.String(), string(d.Change), d.Ports.String()}, " "))
	}
	want := []string{"again ingress closes TCP 1-79, 91-65535; all UDP; all SCTP", "again egress closes every port",
		"k ingress closes TCP 1-79, 91-65535; all UDP; all SCTP", "k egress closes every port"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	probes := model.Probes()
	if len(probes) != 1 || len(probes[0].Shows) != 4 {
		t.Errorf("probes: %+v", probes)
	}
}

// TestAddresses holds what follows from addresses that pods do not have yet.
func TestAddresses(t *testing.T) {
	ranges := func(texts ...string) (found []netip.Prefix) {
		for _, text := range texts {
			found = append(found, netip.MustParsePrefix(text))
		}
		return found
	}
	block := kubernetesText(
		"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/16, except: [10.0.128.0/17]}}]}]}")
	for _, test := range []struct {
		profile Profile
		flow    string
		want    Verdict
	}{
		{Profile{Dialect: Kubernetes}, "other/client shop/web TCP 80", Allow},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.0.0.0/16")}, "other/client shop/web TCP 80", Allow},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.9.0.0/16")}, "other/client shop/web TCP 80", Deny},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.0.64.0/18")}, "other/client shop/web TCP 80", Allow},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.0.192.0/18", "fd00::/64")},
			"other/client shop/web TCP 80", Deny},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.0.64.0/18", "10.9.0.0/16")},
			"other/client shop/web TCP 80", Depends},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.0.0.0/24")}, "host/agent shop/web TCP 80", Deny},
		{Profile{Dialect: Kubernetes, Pods: ranges("10.0.0.0/24"), Tunnelled: true},
			"host/agent shop/web TCP 80", Depends},
	} {
		model := Build(snapshotOf(t, town, block), kubeRouter, test.profile)
		if got := verdictOf(t, model, After, test.flow); got != test.want {
			t.Errorf("%v %v: %s, want %s", test.profile.Pods, test.flow, got, test.want)
		}
	}
}

// TestDeviations holds the data to its form.
func TestDeviations(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Deviations() {
		if seen[d.ID] || !strings.HasPrefix(d.ID, d.CNI+"/") || d.Says == "" ||
			!strings.HasPrefix(d.Source, "https://") {
			t.Errorf("%+v", d)
		}
		seen[d.ID] = true
		if _, ok := majorMinor(d.Until); d.Until != "" && !ok {
			t.Errorf("%s: %q is no version", d.ID, d.Until)
		}
	}
	for _, id := range []string{deviatesCIDR, deviatesEndPort, deviatesNamedPorts, deviatesRange,
		weaveOwnNode, kindnetOwnNode} {
		if !seen[id] {
			t.Errorf("%s is not in the data", id)
		}
	}
	for version, want := range map[string]bool{"v1.15.9": true, "1.9": true, "1.16.0": false, "2.0": false, "": false,
		"latest": false, "1.x": false} {
		if got := (Profile{CNI: "cilium", Version: version}).deviates(deviatesEndPort); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func TestPorts(t *testing.T) {
	for text, set := range map[string]spans{
		"no port": nil, "every port": allPorts, "TCP 80": protocolPorts(0, 80, 80),
		"all UDP": protocolPorts(1, 0, 70000), "TCP 1-2; SCTP 5": protocolPorts(0, 1, 2).union(protocolPorts(2, 5, 5)),
		"TCP 1, 3, 5, 7, 9, 11, and 2 more": makeSpans(span{1, 1}, span{3, 3}, span{5, 5}, span{7, 7}, span{9, 9},
			span{11, 11}, span{13, 13}, span{15, 15}),
	} {
		if got := (Ports{set}).String(); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}

// TestSpans holds sets to plain ones.
func TestSpans(t *testing.T) {
	members := func(s spans) (all []uint32) {
		for i, r := range s {
			if r.first > r.last || i > 0 && s[i-1].last+1 >= r.first {
				t.Fatalf("%v is not in order", s)
			}
			for n := r.first; n <= r.last; n++ {
				all = append(all, n)
			}
		}
		return all
	}
	const size = 7
	set := func(bits int) spans {
		var ranges []span
		for n := range size {
			if bits>>n&1 == 1 {
				ranges = append(ranges, span{uint32(n), uint32(n)})
			}
		}
		slices.Reverse(ranges)
		return makeSpans(ranges...)
	}
	for a := range 1 << size {
		for b := range 1 << size {
			for name, got := range map[string][2]spans{
				"union": {set(a).union(set(b)), set(a | b)}, "intersect": {set(a).intersect(set(b)), set(a & b)},
				"subtract": {set(a).subtract(set(b)), set(a &^ b)}} {
				if !slices.Equal(members(got[0]), members(got[1])) {
					t.Fatalf("%s of %v and %v: %v", name, set(a), set(b), got[0])
				}
			}
		}
		for n := range size {
			if set(a).contains(uint32(n)) != (a>>n&1 == 1) {
				t.Fatalf("%v, %d", set(a), n)
			}
		}
	}
	top := spans{{5, ^uint32(0)}}
	if got := top.subtract(spans{{7, ^uint32(0)}}); !slices.Equal(got, spans{{5, 6}}) || len(top.subtract(top)) > 0 ||
		!slices.Equal(top.union(spans{{6, 9}}), top) {
		t.Errorf("at the upper end: %v", got)
	}
}

// definitionText is a CRD of a kind.
func definitionText(kind, resource, group string) string {
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + resource + "." +
		group + "}\nspec: {group: " + group + ", names: {kind: " + kind + ", plural: " + resource + "}}"
}

// TestUnevaluated: a policy of a kind that neither network evaluates is a gap, and so is a kind that was not read. The
// verdicts of the pods that it may select depend; those of other pods do not.
func TestUnevaluated(t *testing.T) {
	const toWeb, toClient, among = "other/client shop/web TCP 80", "shop/web other/client TCP 80",
		"other/client other/second TCP 80"
	second := "apiVersion: v1\nkind: Pod\nmetadata: {name: second, namespace: other}\n" +
		"spec: {nodeName: n2, containers: [{name: c}]}\nstatus: {podIP: 10.0.1.2}"
	admin := func(kind, spec string) string {
		return "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: " + kind + "\nmetadata: {name: a}\nspec: " + spec
	}
	all := map[string]Verdict{toWeb: Depends, toClient: Depends, among: Depends}
	ofShop := map[string]Verdict{toWeb: Depends, toClient: Depends, among: Allow}
	ofNone := map[string]Verdict{toWeb: Allow, toClient: Allow, among: Allow}
	for name, test := range map[string]struct {
		text, gap string
		want      map[string]Verdict
	}{
		"none": {"", "", ofNone},
		"namespaces": {admin("AdminNetworkPolicy", "{subject: {namespaces: {matchLabels: {team: shop}}}}"),
			"AdminNetworkPolicy/a", ofShop},
		"every namespace": {admin("ClusterNetworkPolicy", "{subject: {namespaces: {}}}"),
			"ClusterNetworkPolicy/a", all},
		"pods": {admin("BaselineAdminNetworkPolicy", "{subject: {pods: {namespaceSelector: {}, podSelector: "+
			"{matchLabels: {app: web}}}}}"), "BaselineAdminNetworkPolicy/a", ofShop},
		"no pods": {admin("AdminNetworkPolicy", "{subject: {namespaces: {matchLabels: {team: none}}}}"),
			"AdminNetworkPolicy/a", ofNone},
		"no subject": {admin("AdminNetworkPolicy", "{}"), "AdminNetworkPolicy/a", all},
		"an odd subject": {admin("AdminNetworkPolicy", "{subject: {pods: {podSelector: {}}}}"),
			"AdminNetworkPolicy/a", all},
		"a subject of two": {admin("AdminNetworkPolicy", "{subject: {namespaces: {}, pods: {}}}"),
			"AdminNetworkPolicy/a", all},
		"a bad selector": {admin("AdminNetworkPolicy", "{subject: {namespaces: {matchExpressions: [{key: a, operator: "+
			"Odd}]}}}"), "AdminNetworkPolicy/a", all},
		"no spec": {admin("AdminNetworkPolicy", "[]"), "AdminNetworkPolicy/a", all},
		"Antrea": {"apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop}",
			"NetworkPolicy.crd.antrea.io/shop/a", ofShop},
		"Antrea's of the cluster": {
			"apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: a}",
			"ClusterNetworkPolicy.crd.antrea.io/a", all},
		"OVN": {"apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {name: a, namespace: shop}",
			"EgressFirewall/shop/a", ofShop},
		"Cilium's": {ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}}"), "CiliumNetworkPolicy/shop/c", ofShop},
		"a kind that no one knows": {
			definitionText("IsovalentNetworkPolicy", "isovalentnetworkpolicies", "isovalent.com"),
			"CustomResourceDefinition/isovalentnetworkpolicies.isovalent.com", all},
		"a kind that no one knows, without objects": {
			definitionText("IsovalentNetworkPolicy", "isovalentnetworkpolicies", "isovalent.com") +
				"\n---\napiVersion: isovalent.com/v1\nkind: IsovalentNetworkPolicyList\nitems: []", "", ofNone},
		"a kind that no one knows, with an object": {
			definitionText("IsovalentNetworkPolicy", "isovalentnetworkpolicies", "isovalent.com") +
				"\n---\napiVersion: isovalent.com/v1\nkind: IsovalentNetworkPolicy\nmetadata: {name: a}",
			"CustomResourceDefinition/isovalentnetworkpolicies.isovalent.com", all},
		"a kind from which NetworkPolicies are made": {definitionText("ProjectNetworkPolicy",
			"projectnetworkpolicies", "management.cattle.io"), "", ofNone},
		"a kind without its objects": {definitionText("AdminNetworkPolicy", "adminnetworkpolicies",
			"policy.networking.k8s.io"),
			"CustomResourceDefinition/adminnetworkpolicies.policy.networking.k8s.io", all},
		"staged policies decide nothing": {definitionText("StagedNetworkPolicy", "stagednetworkpolicies",
			"crd.projectcalico.org"), "", ofNone},
		"secondary interfaces": {definitionText("MultiNetworkPolicy", "multi-networkpolicies", "k8s.cni.cncf.io"), "",
			ofNone},
		"a policy that cannot be read": {calicoText("NetworkPolicy", "c", "{order: first}"),
			"NetworkPolicy.projectcalico.org/shop/c", ofShop},
		"a rule that cannot be read": {
			calicoText("GlobalNetworkPolicy", "g", "{ingress: [{action: Maybe}, {action: Allow}]}"),
			"GlobalNetworkPolicy.projectcalico.org/g", all},
	} {
		model := Build(snapshotOf(t, town, second, test.text), calicoNow, calicoNow)
		gap := ""
		for _, g := range model.Unevaluated() {
			gap += g.Policy.String()
		}
		if gap != test.gap {
			t.Errorf("%s: gap %q, want %q", name, gap, test.gap)
		}
		for flow, want := range test.want {
			if got := verdictOf(t, model, Before, flow); got != want {
				t.Errorf("%s: %s: %s, want %s", name, flow, got, want)
			}
		}
	}
}

// TestUnreadPolicies: policies of a live cluster that could not be read are a gap; those that the API server does not
// serve are not.
func TestUnreadPolicies(t *testing.T) {
	for _, test := range []struct {
		source cluster.Source
		gaps   int
	}{
		{cluster.Source{Resource: "adminnetworkpolicies.policy.networking.k8s.io", From: "live"}, 0},
		{cluster.Source{Resource: "adminnetworkpolicies.policy.networking.k8s.io", Missing: "forbidden"}, 1},
		{cluster.Source{Resource: "adminnetworkpolicies.policy.networking.k8s.io", Missing: cluster.NotServed}, 0},
		{cluster.Source{Resource: "policy.networking.k8s.io", Missing: "error: x"}, 3},
		{cluster.Source{Resource: "policy.networking.k8s.io", From: "live"}, 0},
		{cluster.Source{Resource: "ciliumnetworkpolicies.cilium.io", Missing: "forbidden"}, 1},
		{cluster.Source{Resource: "globalnetworkpolicies.crd.projectcalico.org", Missing: "forbidden"}, 1},
		{cluster.Source{Resource: "globalnetworkpolicies.projectcalico.org", Missing: cluster.NotServed}, 0},
		{cluster.Source{Resource: "nodes", Missing: "forbidden"}, 0},
		{cluster.Source{Resource: "customresourcedefinitions", Missing: "forbidden"}, 1},
		{cluster.Source{Resource: "customresourcedefinitions", From: "live"}, 0},
		{cluster.Source{Resource: "customresourcedefinitions", Missing: "not in the input"}, 0},
		// a snapshot of an earlier release, which read neither other groups nor their CRDs
		{cluster.Source{Resource: "cilium.io", From: "live"}, 13},
		{cluster.Source{Resource: "cilium.io", From: "file"}, 0},
	} {
		snapshot := snapshotOf(t, town)
		snapshot.Sources = append(snapshot.Sources, test.source)
		model := Build(snapshot, calicoNow, calicoNow)
		if gaps := model.Unevaluated(); len(gaps) != test.gaps {
			t.Errorf("%+v: %v", test.source, gaps)
		}
		if got := verdictOf(t, model, Before, "other/client shop/web TCP 80"); (got == Depends) != (test.gaps > 0) {
			t.Errorf("%+v: %s", test.source, got)
		}
	}
}

// TestInertPolicies: policies of Calico or Cilium are a gap that leaves no verdict open if the cluster was read and has
// no agent of that network.
func TestInertPolicies(t *testing.T) {
	live := []cluster.Source{{Resource: "daemonsets", From: "live"}, {Resource: "pods", From: "live"}}
	const calico, cilium = "NetworkPolicy.projectcalico.org/shop/c", "CiliumNetworkPolicy/shop/c"
	agent := func(name, image string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: kube-system}\nspec: {hostNetwork: true, " +
			"nodeName: n1, containers: [{name: " + name + ", image: " + image + "}]}"
	}
	for name, test := range map[string]struct {
		profile Profile
		sources []cluster.Source
		text    string
		// inert and left are the policies that decide nothing, and those that may.
		inert, left string
	}{
		"left over from Calico": {ciliumNow, live, "", calico, ""},
		"left over from Cilium": {calicoNow, live, "", cilium, ""},
		"left over from both":   {kubeRouter, live, "", cilium + calico, ""},
		"canal":                 {kubeRouter, live, agent("felix", "docker.io/calico/node:v3"), cilium, calico},
		"by a digest":           {kubeRouter, live, agent("cilium-agent", "registry/a@sha256:0"), calico, cilium},
		"files":                 {kubeRouter, nil, "", "", cilium + calico},
		"no DaemonSets": {kubeRouter, []cluster.Source{{Resource: "daemonsets", Missing: "forbidden"}, live[1]}, "", "",
			cilium + calico},
		"a DaemonSet without pods": {kubeRouter, live, "apiVersion: apps/v1\nkind: DaemonSet\n" +
			"metadata: {name: calico-node, namespace: kube-system}", cilium, calico},
	} {
		snapshot := snapshotOf(t, town, test.text, calicoText("NetworkPolicy", "c", "{}"),
			ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}}"))
		snapshot.Sources = append(slices.DeleteFunc(snapshot.Sources, func(s cluster.Source) bool {
			return s.Resource == "daemonsets" || s.Resource == "pods"
		}), test.sources...)
		model := Build(snapshot, test.profile, test.profile)
		var inert, left string
		for _, g := range model.Gaps() {
			switch {
			case g.LeftOut:
				left += g.Policy.String()
			case strings.HasPrefix(g.What, "no agent of its network runs"):
				inert += g.Policy.String()
			}
		}
		if inert != test.inert || left != test.left {
			t.Errorf("%s: inert %q, left out %q", name, inert, left)
		}
	}
	unread := snapshotOf(t, town)
	unread.Sources = append([]cluster.Source{{Resource: "cilium.io", Missing: "error: x"}}, live...)
	if gaps := Build(unread, kubeRouter, kubeRouter).Unevaluated(); len(gaps) > 0 {
		t.Errorf("unread policies of a network that does not run: %v", gaps)
	}
}
