package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// calicoPods is Calico with the range of town's pods.
var calicoPods = Profile{CNI: "calico", Dialect: Calico, Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}

const tierText = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: early}\nspec: {order: 10}"

// TestTranslate lists what becomes of policies: lines that the objects have, and what is reported. Where nothing is
// reported as without an equal, no verdict changes.
func TestTranslate(t *testing.T) {
	for _, test := range []struct {
		name     string
		policies []string
		want     []string // lines of the objects
		never    []string
		reported []string // of what has no equal
		notes    []string
	}{
		{name: "allow, then default deny",
			policies: []string{calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: "+
				"Allow, protocol: "+
				"TCP, source: {selector: app == 'db'}, destination: {ports: [80, '90:95', http]}}]}")},
			want: []string{"kind: CiliumNetworkPolicy", "app: web", "app: db", "k8s:io.kubernetes.pod.namespace: shop",
				`port: "80"`, "endPort: 95", "port: http"}, never: []string{"ingressDeny"},
			notes: []string{"endPort needs Cilium 1.16"}},
		{name: "SCTP", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: all(), ingress: [{action: Allow, protocol: SCTP}]}")},
			want: []string{"protocol: SCTP"}, notes: []string{"sctp.enabled=true"}},
		{name: "a final deny is default deny",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: all(), types: [Ingress, "+
				"Egress], ingress: "+
				"[{action: Deny}], egress: [{action: Allow}, {action: Deny}]}")},
			want: []string{"kind: CiliumClusterwideNetworkPolicy", "- {}", "- all"}, never: []string{"Deny"}},
		{name: "namespaces and accounts",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{namespaceSelector: team == 'shop', "+
				"serviceAccountSelector: projectcalico.org/name == 'web', ingress: [{action: Allow, source: "+
				"{namespaceSelector: "+
				"\"projectcalico.org/name in {'other','x'}\", serviceAccounts: {names: [client]}}}]}")},
			want: []string{"k8s:io.cilium.k8s.namespace.labels.team: " +
				"shop", "k8s:io.cilium.k8s.policy.serviceaccount: web",
				"k8s:io.cilium.k8s.policy.serviceaccount: client", "- other", "- x"}},
		{name: "namespaces that are excluded",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: app == 'web', ingress: [{action: "+
				"Allow, source: {namespaceSelector: projectcalico.org/name != 'other'}}]}")},
			want: []string{"key: k8s:io.kubernetes.pod.namespace\n      operator: Exists", "operator: NotIn"}},
		{name: "a namespace that is taken out",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: app == 'web', ingress: [{action: "+
				"Pass, source: {namespaceSelector: projectcalico.org/name == 'other'}}, {action: Allow, source: "+
				"{namespaceSelector: all()}}]}")},
			want: []string{"operator: Exists"}},
		{name: "selectors with alternatives and what no label has",
			policies: []string{calicoText("NetworkPolicy", "c", "{selector: \"!(has(x) && app != 'web')\", "+
				"ingress: [{action: "+
				"Allow, source: {selector: \"app not in {'a','b'} || !has(app)\"}}]}")},
			want: []string{"operator: DoesNotExist", "operator: NotIn", "app: web"}},
		{name: "ranges outside, with exceptions",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: all(), egress: [{action: Allow, "+
				"destination: "+
				"{nets: [172.16.0.0/12], notNets: [172.16.3.0/24]}}]}")},
			want: []string{"cidr: 172.16.0.0/12", "- 172.16.3.0/24"}, never: []string{"toEndpoints", "toEntities"}},
		{name: "a range with all pods and nodes",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: all(), egress: [{action: Allow, "+
				"destination: "+
				"{nets: [0.0.0.0/0]}}]}")},
			want: []string{"cidr: 0.0.0.0/0", "toEndpoints", "- host", "- remote-node"}},
		{name: "a range with some pods",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: all(), egress: [{action: Allow, "+
				"destination: "+
				"{nets: [10.0.0.0/24]}}]}")},
			want: []string{"cidr: 10.0.0.0/24"}, reported: []string{"a range never matches a pod"}},
		{name: "a range with some nodes and all pods",
			policies: []string{calicoText("GlobalNetworkPolicy", "g", "{selector: all(), egress: [{action: Allow, "+
				"destination: {nets: [10.0.0.0/8]}}, {action: Allow, destination: {nets: [192.168.0.0/24]}}]}"),
				"apiVersion: v1\nkind: Node\nmetadata: {name: n3}\nstatus: {addresses: [{type: InternalIP, address: " +
					"192.168.0.3}, {type: ExternalIP, address: 203.0.113.3}]}"},
			want: []string{"cidr: 10.0.0.0/8"}, reported: []string{"of some nodes and not of others"},
			never: []string{"- host", "- remote-node"}},
		{name: "network sets",
			policies: []string{setText("GlobalNetworkSet", "172.16.0.0/16"), calicoText("GlobalNetworkPolicy", "g",
				"{selector: app == 'web', ingress: [{action: Allow, source: {selector: role == 'x'}}]}")},
			want: []string{"cidr: 172.16.0.0/16", "role: x"}, notes: []string{"a set that changes"}},
		{name: "ICMP by type", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: all(), ingress: [{action: Allow, protocol: ICMP, icmp: {type: 8}}]}")},
			want: []string{"type: 8", "family: IPv4"}},
		{name: "all ICMP", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: all(), ingress: [{action: Allow, protocol: ICMPv6}]}")},
			want: []string{"type: 128", "family: IPv6"}, notes: []string{"the types that are in use"}},
		{name: "a deny before an allow",
			policies: []string{calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: "+
				"Deny, source: "+
				"{selector: app == 'db'}}, {action: Allow}]}")},
			want: []string{"ingressDeny", "- all"}},
		{name: "a deny of nodes spares the pod's own node, for probes",
			policies: []string{calicoText("NetworkPolicy", "c", "{order: 1, selector: app == 'web', ingress: "+
				"[{action: Deny, "+
				"protocol: TCP, destination: {ports: [22]}}, {action: Allow}]}")},
			want: []string{"ingressDeny", "- remote-node", "- world"}, never: []string{"- host"}},
		{name: "an allow before a deny before an allow",
			policies: []string{calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: "+
				"Allow, source: "+
				"{selector: app == 'db'}}, {action: Deny, source: {namespaceSelector: all()}}, {action: Allow}]}")},
			want: []string{"app: db", "- world"}, never: []string{"ingressDeny", "- all"}},
		{name: "order of policies",
			policies: []string{calicoText("NetworkPolicy", "late", "{order: 20, selector: app == 'web', ingress: "+
				"[{action: "+
				"Deny}]}"), calicoText("NetworkPolicy", "soon", "{order: 10, selector: app == 'web', ingress: "+
				"[{action: Allow, "+
				"source: {selector: app == 'db'}}]}")},
			want: []string{"app: db"}, never: []string{"Deny"}},
		{name: "a tier that denies and passes the rest",
			policies: []string{tierText, calicoText("GlobalNetworkPolicy", "early.g", "{tier: early, selector: "+
				"all(), ingress: "+
				"[{action: Deny, source: {nets: [172.16.0.0/12]}}, {action: Pass}]}"),
				calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: Allow}]}")},
			want:  []string{"ingressDeny", "cidr: 172.16.0.0/12", "ingress: false", "- all"},
			notes: []string{"enableDefaultDeny needs Cilium 1.16"}},
		{name: "a tier that passes a part",
			policies: []string{tierText, calicoText("GlobalNetworkPolicy", "early.g", "{tier: early, selector: "+
				"app == 'web', "+
				"ingress: [{action: Pass, source: {selector: app == 'db'}}]}"),
				calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: Allow, protocol: "+
					"TCP, destination: "+
					"{ports: [80]}}]}")},
			want: []string{"app: db", `port: "80"`}, never: []string{"- all", "- world"}},
		{name: "what passes all tiers is allowed",
			policies: []string{calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: "+
				"Pass, source: "+
				"{selector: app == 'db'}}]}")},
			want: []string{"app: db"}},
		{name: "a NetworkPolicy stays, and a deny before it holds",
			policies: []string{kubernetesText("{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"),
				calicoText("NetworkPolicy", "c", "{order: 1, selector: app == 'web', ingress: [{action: Allow, "+
					"protocol: TCP, "+
					"source: {selector: app == 'db'}, destination: {ports: [80]}}, {action: Deny, protocol: TCP, "+
					"source: {selector: "+
					"app == 'db'}}, {action: Allow}]}")},
			want: []string{"ingressDeny", "endPort: 79", `port: "81"`}, notes: []string{"endPort"}},
		{name: "what is left has protocols without a name", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: app == 'web', ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}, "+
				"{action: Deny, "+
				"protocol: TCP}, {action: Allow}]}")}, want: []string{"ingressDeny", "- all"},
			notes: []string{"endPort"}},
		{name: "a NetworkPolicy below a tier that closes",
			policies: []string{tierText, kubernetesText("{podSelector: {}, ingress: [{}]}"),
				calicoText("GlobalNetworkPolicy", "early.g", "{tier: early, selector: app == 'web', ingress: "+
					"[{action: Pass, "+
					"source: {selector: app == 'db'}}]}")},
			reported: []string{"Cilium allows all that this NetworkPolicy allows"}},
		{name: "log decides nothing", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: all(), ingress: [{action: Log}, {action: Allow}]}")},
			want: []string{"- all"}, notes: []string{"Log has no equivalent"}},
		{name: "no policy of its own", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: all(), ingress: [{action: Pass}]}")}, notes: []string{"decides nothing"}},
		{name: "values that no label has", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: \"app == 'no label'\", ingress: [{action: Allow}]}")}, notes: []string{"decides nothing"}},
		{name: "host endpoints", policies: []string{
			"apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: n1-eth0, labels: {host: " +
				"x}}\nspec: {}",
			calicoText("GlobalNetworkPolicy", "g", "{selector: has(host), ingress: [{action: Allow}]}")},
			reported: []string{"host endpoint n1-eth0"}},
		{name: "untracked", policies: []string{calicoText("GlobalNetworkPolicy", "g",
			"{selector: all(), doNotTrack: true, ingress: [{action: Allow}]}")}, reported: []string{"doNotTrack"}},
		{name: "rules without an " +
			"equal", policies: []string{calicoText("NetworkPolicy", "c", `{selector: all(), ingress: [
			{action: Allow, protocol: TCP, source: {ports: [1]}}, {action: Allow, http: {methods: [GET]}},
			{action: Allow, notProtocol: TCP}, {action: Allow, protocol: ICMP, icmp: {type: 3, code: 1}},
			{action: Allow, protocol: 47}, {action: Allow, source: {selector: app contains 'w'}},
			{action: Allow, source: {selector: has(pod-template-hash)}},
			{action: Allow, source: {serviceAccounts: {selector: team == 'x'}}},
			{action: Allow, protocol: TCP, destination: {notPorts: [http]}}]}`)},
			reported: []string{"source ports", "HTTP", "is not meant", "ICMP code", "protocol 47", "part of the value",
				"pod-template-hash", "kubectl get serviceaccounts", "excludes a named port"}},
		{name: "a named port of others", policies: []string{calicoText("NetworkPolicy", "c",
			"{selector: all(), egress: [{action: Allow, protocol: TCP, destination: {ports: [http]}}]}")},
			reported: []string{"for the whole cluster"}},
		{name: "bad input", policies: []string{calicoText("NetworkPolicy", "c", "{selector: 'app ==', ingress: []}"),
			calicoText("NetworkPolicy", "d", "{selector: all(), ingress: [{action: Maybe}, {action: Allow, "+
				"protocol: TCP, "+
				"destination: {ports: ['9:1']}}, {action: Allow, source: {nets: [nowhere]}}]}"),
			calicoText("NetworkPolicy", "e", "{tier: none, selector: all(), ingress: [{action: Allow}]}"),
			calicoText("NetworkPolicy", "f", "{selector: [1]}")},
			reported: []string{"expected a quoted string", `action "Maybe"`, `the port "9:1"`, `range "nowhere"`,
				"tier none does not exist", "cannot be read"}},
		{name: "a policy of that name is there",
			policies: []string{ciliumText("CiliumNetworkPolicy", "{endpointSelector: {}, egress: [{toEntities: "+
				"[all]}]}"),
				calicoText("NetworkPolicy", "c", "{selector: all(), ingress: [{action: Allow}]}")},
			reported: []string{"would overwrite"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := snapshotOf(t, append([]string{town}, test.policies...)...)
			got := Translate(snapshot, calicoPods)
			var text strings.Builder
			for _, o := range got.Objects {
				one, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				text.Write(one)
			}
			for _, want := range test.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			for _, never := range test.never {
				if strings.Contains(text.String(), never) {
					t.Errorf("%q in\n%s", never, text.String())
				}
			}
			remarks(t, "without an equal", got.Untranslated, test.reported)
			remarks(t, "notes", got.Notes, test.notes)
			target := calicoPods
			target.CNI, target.Dialect = "cilium", Cilium
			if j := got.Judge(snapshot, calicoPods, target); len(got.Untranslated) == 0 &&
				len(j.Differences)+len(j.Outside)+len(j.Unjudged) > 0 {
				t.Errorf("verdicts change: %+v\n%s", j, text.String())
			}
		})
	}
}

// remarks holds that each remark is one that is expected, and has a hint if it is about what has no equal.
func remarks(t *testing.T, what string, got []Remark, want []string) {
	t.Helper()
	for _, r := range got {
		if !slices.ContainsFunc(want, func(text string) bool { return strings.Contains(r.Text+r.Hint, text) }) {
			t.Errorf("%s: unexpected: %+v", what, r)
		}
	}
	for _, text := range want {
		if !slices.ContainsFunc(got, func(r Remark) bool { return strings.Contains(r.Text+r.Hint, text) }) {
			t.Errorf("%s: no %q in %+v", what, text, got)
		}
	}
}

// TestTranslateAccounts holds that labels of service accounts become names, if the input has the accounts.
func TestTranslateAccounts(t *testing.T) {
	snapshot := snapshotOf(t, town, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: db, namespace: shop, "+
		"labels: "+
		"{team: x}}", calicoText("NetworkPolicy", "c", "{selector: app == 'web', ingress: [{action: Allow, source: "+
		"{serviceAccounts: {selector: team == 'x'}}}]}"))
	got := Translate(snapshot, calicoPods)
	text, _ := yaml.Marshal(got.Objects)
	if !strings.Contains(string(text), "k8s:io.cilium.k8s.policy.serviceaccount: db") {
		t.Errorf("%s", text)
	}
	remarks(t, "without an equal", got.Untranslated, nil)
	remarks(t, "notes", got.Notes, []string{"labels that change later"})
}

// TestJudge holds that the judge sees a wrong translation: of pods, and of addresses outside.
func TestJudge(t *testing.T) {
	snapshot := snapshotOf(t, town, calicoText("NetworkPolicy", "c",
		"{selector: app == 'web', ingress: [{action: Allow, source: {selector: app == 'db'}}]}"))
	target := calicoPods
	target.CNI, target.Dialect = "cilium", Cilium
	nothing := &Translation{}
	j := nothing.Judge(snapshot, calicoPods, target)
	if len(j.Differences) == 0 || j.Differences[0].Change != Opens {
		t.Errorf("pods: %+v", j.Differences)
	}
	opens := func(o Outside) bool { return o.Change == Opens && o.Pod.Name == "web" && o.First.Is4() }
	if !slices.ContainsFunc(j.Outside, opens) {
		t.Errorf("addresses: %+v", j.Outside)
	}
}

// TestOutside holds Cilium's rules for addresses outside of the cluster.
func TestOutside(t *testing.T) {
	for _, test := range []struct {
		rule string
		want string // the verdict of 172.16.1.1 and of 172.17.0.1, as "allow deny"
	}{
		{"{fromEntities: [world]}", "allow allow"},
		{"{fromEntities: [all]}", "allow allow"},
		{"{fromEntities: [world-ipv6]}", "deny deny"},
		{"{fromEntities: [cluster, host]}", "deny deny"},
		{"{fromEndpoints: [{}]}", "deny deny"},
		{"{fromEndpoints: [{matchExpressions: [{key: app, operator: DoesNotExist}]}]}", "deny deny"},
		{"{fromEndpoints: [{matchExpressions: [{key: io.kubernetes.pod.namespace, operator: NotIn, values: [x]}]}]}",
			"allow allow"},
		{"{fromEndpoints: [{matchExpressions: [{key: 'k8s:io.kubernetes.pod.namespace', operator: NotIn, values: " +
			"[x]}, {key: 'k8s:io.kubernetes.pod.namespace', operator: Exists}]}]}", "deny deny"},
		{"{fromEndpoints: [{matchExpressions: [{key: io.cilium.k8s.namespace.labels.team, operator: DoesNotExist}]}]}",
			"allow allow"},
		{"{fromEndpoints: [{matchLabels: {app: db}, matchExpressions: [{key: io.kubernetes.pod.namespace, operator: " +
			"NotIn, values: [x]}]}]}", "deny deny"},
		{"{fromCIDR: [172.16.0.0/16]}", "allow deny"},
		{"{fromCIDRSet: [{cidr: 172.16.0.0/12, except: [172.16.0.0/16]}]}", "deny allow"},
		{"{fromCIDRSet: [{cidrGroupRef: x}]}", "depends depends"},
		{"{toPorts: [{ports: [{port: '80', protocol: TCP}]}]}", "allow allow"},
	} {
		snapshot := snapshotOf(t, town, ciliumText("CiliumNetworkPolicy",
			"{endpointSelector: {matchLabels: {app: web}}, ingress: ["+test.rule+"]}"))
		m := Build(snapshot, Profile{CNI: "flannel", Dialect: None}, ciliumNow)
		var got []string
		for _, text := range []string{"172.16.1.1", "172.17.0.1"} {
			verdict := Allow // as before
			for _, o := range m.OutsideDifferences() {
				a := netip.MustParseAddr(text)
				if o.First.Compare(a) <= 0 && a.Compare(o.Last) <= 0 && o.Ports.Has(Port{"TCP", 80}) {
					verdict = o.After
				}
			}
			got = append(got, string(verdict))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", test.rule, got, test.want)
		}
	}
}
