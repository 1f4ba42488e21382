package setting

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

func lines(found []finding.Finding) string {
	var all []string
	for _, f := range found {
		all = append(all, fmt.Sprintf("%s %s %s: %s", f.Severity, f.ID, f.Subject.Name, f.Message))
	}
	return strings.Join(all, "\n")
}

func TestLint(t *testing.T) {
	have := lines(Read(read(t, cluster3), nil).Lint())
	want := `block flags/unknown one: bpf-lb-mod is not a setting: it has no effect
block flags/unknown calico-node: FELIX_NFTABLEMODE is not a setting: it has no effect
block flags/unknown default: bpfEnable is not a setting: it has no effect
block flags/value default: natPortRange is "9:1", which felix does not accept: it must be a port or a range such as 30000:32767; Felix uses the default, and reports that only in its log
warn flags/no-effect default: ipv6Support is "true" here and has no effect: DaemonSet/calico-system/calico-node overrides it with "false" on all 3 nodes that it applies to
warn flags/no-effect node.c: ipv6Support is "true" here and has no effect: DaemonSet/calico-system/calico-node overrides it with "false" on the one node that it applies to
warn flags/selectors-overlap edge-new: it has no effect on b: FelixConfiguration edge-old selects the same and is older
info flags/no-effect default: nftablesMode is "Disabled" here and has no effect: FelixConfiguration/edge-new overrides it with "Auto" on all 3 nodes that it applies to`
	if have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

func TestConflicts(t *testing.T) {
	for _, test := range []struct{ felix, proxy, want string }{
		{"nftablesMode: Disabled", "nftables", "calico/nftablesMode is Disabled and kube-proxy/mode is nftables on " +
			"a, b, c: Calico supports iptables only together with a kube-proxy that is not in nftables mode"},
		{"nftablesMode: Enabled", "nftables", ""},
		{"nftablesMode: Enabled", `""`, "calico/nftablesMode is Enabled and kube-proxy/mode is "},
		{"nftablesMode: Auto", "nftables", ""},
		{"{nftablesMode: Disabled, iptablesBackend: NFT}", "iptables", ""},
	} {
		f := Read(read(t, `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}}
- {apiVersion: v1, kind: Node, metadata: {name: b}}
- {apiVersion: v1, kind: Node, metadata: {name: c}}
- {apiVersion: crd.projectcalico.org/v1, kind: FelixConfiguration, metadata: {name: default}, spec: `+braced(test.felix)+`}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: kube-proxy, namespace: kube-system}, data: {config.conf: 'mode: `+test.proxy+`'}}
`), nil)
		have := lines(f.Lint())
		if test.want == "" && have != "" || !strings.Contains(have, test.want) {
			t.Errorf("%s, %s: %s", test.felix, test.proxy, have)
		}
	}
}

// TestAntrea reads what lies in the documents of one ConfigMap.
func TestAntrea(t *testing.T) {
	cluster := func(mode string) *Fleet {
		return Read(read(t, `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: antrea-config, namespace: kube-system}
  data:
    antrea-agent.conf: "trafficEncapMode: `+mode+`\nnoSNAT: true\nfeatureGates: {Egress: true}\n"
    antrea-controller.conf: "featureGates: {Egress: false}\n"
`), nil)
	}
	have := lines(cluster("tunnel").Lint())
	if want := `antrea-config: trafficEncapMode is "tunnel", which antrea-agent does not accept: it must be one of encap, noEncap, hybrid, networkPolicyOnly`; !strings.Contains(
		have, want) {
		t.Errorf("%s\nwant %s", have, want)
	}
	have = lines(cluster("hybrid").Lint())
	if want := "antrea/noSNAT is true and antrea/trafficEncapMode is hybrid on a: it is only allowed with " +
		"noEncap"; !strings.Contains(have, want) {
		t.Errorf("%s\nwant %s", have, want)
	}
	f := cluster("noEncap")
	if have := lines(f.Lint()); have != "" {
		t.Error(have)
	}
	for id, want := range map[string]string{"antrea/featureGates": `{"Egress":true}`,
		"antrea/controllerFeatureGates": `{"Egress":false}`} {
		k, _ := f.Catalogue().Get(id)
		if have := f.Value(k, "a").Value; have != want {
			t.Errorf("%s is %s", id, have)
		}
	}
}

func braced(text string) string {
	if strings.HasPrefix(text, "{") {
		return text
	}
	return "{" + text + "}"
}

func parse(t testing.TB, text string) *flagset.Set {
	t.Helper()
	set, err := flagset.Parse("flags.yaml", []byte(text), flagset.YAML, flagset.Strict)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestFlags(t *testing.T) {
	f := Read(read(t, cluster3), nil)
	set := parse(t, `
flags:
  calico/nftablesMode:
    state: ENABLED
    variants: {new: Enabled, old: Disabled}
    defaultVariant: old
    targeting: {if: [{in: [{var: node}, [a, b]]}, new]}
  six: {state: ENABLED, metadata: {knob: FELIX_IPV6SUPPORT}, variants: {on: true}, defaultVariant: on}
  backend:
    state: ENABLED
    metadata: {knob: calico/bgp}
    variants: {bird: bird, vxlan: vxlan}
    defaultVariant: bird
    targeting: {if: [{'==': [{var: labels.pool}, edge]}, vxlan]}
  lb: {state: ENABLED, metadata: {knob: cilium/bpf-lb-mode}, variants: {dsr: dsr}, defaultVariant: dsr}
  nothing: {state: DISABLED, metadata: {knob: bpfEnabled}, variants: {on: true}, defaultVariant: on}
  other: {state: ENABLED, variants: {on: true}, defaultVariant: on}
`)
	bound, found := f.Catalogue().Bind(set)
	if len(bound) != 5 || len(found) != 0 {
		t.Fatalf("%v, %v", bound, found)
	}
	after, found := f.With(bound, f.Evaluate(set, set.Keys(), 0, nil))
	if have := lines(found); have !=
		`block flags/scope backend: nodes get different values, and calico/bgp cannot be set for one node: its narrowest place is environment of calico-node (cluster)` {
		t.Errorf("%s", have)
	}
	d := Diff(f, after)
	var changes []string
	for _, c := range d.Changes {
		changes = append(changes, fmt.Sprint(c.Knob, " ", c.From, " ", c.To, " ", c.Nodes))
	}
	if have, want := strings.Join(changes, "; "), "calico/nftablesMode Auto Enabled [a]; calico/nftablesMode Auto "+
		"Disabled [c]; cilium/bpf-lb-mode hybrid dsr [b]; cilium/bpf-lb-mode snat dsr [c]"; have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
	if have := lines(LintEdit(d)); !strings.Contains(have,
		`block flags/no-effect node.a: ipv6Support is "true" here and has no effect: DaemonSet/calico-system/calico-node overrides it with "false" here and on 1 more nodes`) ||
		!strings.Contains(have, "warn flags/restarts-all felix: felix restarts on 2 of 3 nodes at the same time") {
		t.Errorf("%s", have)
	}
	_, found = f.Catalogue().Bind(parse(t, `
flags:
  calico/nftablesMode: {state: ENABLED, variants: {new: on, old: Disabled}, defaultVariant: old}
  a: {state: ENABLED, metadata: {knob: nftableMode}, variants: {old: Disabled}, defaultVariant: old}
  b: {state: ENABLED, metadata: {knob: calico/nftablesMode}, variants: {old: Disabled}, defaultVariant: old}
`))
	if have, want := lines(found),
		`block flags/unknown a: its metadata names the knob nftableMode: there is no flag "nftableMode" in the catalogue
block flags/conflict calico/nftablesMode: calico/nftablesMode and b both control calico/nftablesMode`; have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

// fleetOf is a cluster of n nodes whose settings are written in every way there is.
func fleetOf(t testing.TB, n int) *Fleet {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {apiVersion: v1, kind: Node, metadata: {name: node-%d, labels: {pool: p%d, zone: z%d}}}\n",
			i, i%7, i%3)
		if i%10 == 0 {
			fmt.Fprintf(&b, "- {apiVersion: crd.projectcalico.org/v1, kind: FelixConfiguration, metadata: {name: "+
				"node.node-%d}, spec: {bpfEnabled: true}}\n", i)
		}
	}
	b.WriteString(
		`- {apiVersion: crd.projectcalico.org/v1, kind: FelixConfiguration, metadata: {name: default}, spec: {bpfEnabled: false, ipv6Support: true}}
- {apiVersion: crd.projectcalico.org/v1, kind: FelixConfiguration, metadata: {name: pool}, spec: {nodeSelector: "pool == 'p1'", nftablesMode: Enabled}}
`)
	return Read(read(t, b.String()), nil)
}

// setOf is fifty flags that mean knobs, targeted by labels and by share.
func setOf(t testing.TB, share int) *flagset.Set {
	var b strings.Builder
	b.WriteString("flags:\n")
	count := 0
	for _, k := range New(nil).All() {
		if k.felix == nil || k.Type != Bool || k.Places[0].Kind == "" || count == 25 {
			continue
		}
		count++
		fmt.Fprintf(&b, "  %s:\n    {state: ENABLED, variants: {\"on\": true, \"off\": false}, defaultVariant: "+
			"\"off\", targeting: {if: [{node_selector: \"pool in (p1, p2, p3)\"}, {fractional: [[\"on\", %d], "+
			"[\"off\", %d]]}, \"off\"]}}\n",
			k.ID(), share, 100-share)
	}
	for _, k := range New(nil).All() {
		if k.felix == nil || k.Type != Integer || k.Places[0].Kind == "" || count == 50 {
			continue
		}
		count++
		fmt.Fprintf(&b, "  %s:\n    {state: ENABLED, variants: {a: 9010, b: 9020}, defaultVariant: a, targeting: "+
			"{fractional: [[a, %d], [b, %d]]}}\n", k.ID(), share, 100-share)
	}
	if count != 50 {
		t.Fatalf("%d flags", count)
	}
	return parse(t, b.String())
}

// BenchmarkWhatIf compares two sets of 50 flags on 5,000 nodes: evaluated, rendered, and held against each other. All
// flags differ between the two.
func BenchmarkWhatIf(b *testing.B) {
	base, one, two := fleetOf(b, 5000), setOf(b, 10), setOf(b, 30)
	for b.Loop() {
		base.prepared, base.made = nil, sync.Once{} // the contexts are part of the work
		bound, _ := base.Catalogue().Bind(one)
		before, _ := base.With(bound, base.Evaluate(one, one.Keys(), 0, nil))
		bound, _ = base.Catalogue().Bind(two)
		after, _ := base.With(bound, base.Evaluate(two, two.Keys(), 0, nil))
		d := Diff(before, after)
		if d.Nodes != 5000 || len(d.Changes) < 50 {
			b.Fatalf("%d nodes, %d changes", d.Nodes, len(d.Changes))
		}
	}
}

// BenchmarkEdit compares a cluster of 5,000 nodes with itself after one edit.
func BenchmarkEdit(b *testing.B) {
	base := fleetOf(b, 5000)
	edit := objects(b, "apiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\nmetadata: {name: default}\n"+
		"spec: {ipv6Support: false}\n")
	for b.Loop() {
		if d := Diff(base, base.After(edit)); len(d.Changes) != 1 {
			b.Fatal(d.Changes)
		}
	}
}
