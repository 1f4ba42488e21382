package config

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

func TestIdentity(t *testing.T) {
	id := newIdentity("blue.example.com", "green.example.com", []Name{
		{"role", "masters.blue.exam-abc123", "masters.green.exa-def456"},
		{"group", "nodes.blue.example.com", "nodes.green.example.com"}})
	for text, want := range map[string]string{
		"blue.example.com":                              "green.example.com",
		"api.blue.example.com.":                         "api.green.example.com.",
		"s3://state/blue.example.com/pki":               "s3://state/green.example.com/pki",
		"of blue.example.com. And":                      "of green.example.com. And",
		"other-blue.example.com":                        "other-blue.example.com",
		"blue.example.com.evil.io":                      "blue.example.com.evil.io",
		"blue.example.community":                        "blue.example.community",
		"blue.example.com-2":                            "blue.example.com-2",
		"s3://blue-example-com-oidc":                    "s3://green-example-com-oidc",
		"s3://not-blue-example-com":                     "s3://not-blue-example-com",
		"arn:aws:iam::1:role/masters.blue.exam-abc123":  "arn:aws:iam::1:role/masters.green.exa-def456",
		"arn:aws:iam::1:role/masters.blue.exam-abc1234": "arn:aws:iam::1:role/masters.blue.exam-abc1234",
		"nodes.blue.example.com,blue.example.com":       "nodes.green.example.com,green.example.com",
		"": "",
	} {
		if got := id.rewrite(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"blue": "green", "blue-nodes": "green-nodes", "bluebird": "bluebird",
		"deep-blue": "deep-blue", "api.blue.io": "api.green.io"} {
		if got := word("blue", "green").rewrite(text); got != want {
			t.Errorf("the word: %q became %q, want %q", text, got, want)
		}
	}
}

func TestRebase(t *testing.T) {
	for _, test := range []struct{ p, from, to, want string }{
		{"172.20.32.0/19", "172.20.0.0/16", "10.44.0.0/16", "10.44.32.0/19"},
		{"100.64.0.10/32", "100.64.0.0/10", "100.128.0.0/10", "100.128.0.10/32"},
		{"100.96.0.0/11", "100.64.0.0/10", "10.0.0.0/10", "10.32.0.0/11"},
		{"2001:db8:1:20::/64", "2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:2:20::/64"},
		{"172.20.32.0/19", "172.20.0.0/16", "10.0.0.0/8", ""},
		{"172.21.0.0/19", "172.20.0.0/16", "10.44.0.0/16", ""},
		{"172.0.0.0/8", "172.20.0.0/16", "10.44.0.0/16", ""},
		{"172.20.32.0/19", "172.20.0.0/16", "2001::/16", ""},
	} {
		got, ok := rebase(netip.MustParsePrefix(test.p), netip.MustParsePrefix(test.from),
			netip.MustParsePrefix(test.to))
		if ok != (test.want != "") || ok && got.String() != test.want {
			t.Errorf("%s from %s to %s: %s %v, want %q", test.p, test.from, test.to, got, ok, test.want)
		}
	}
}

func TestSplitPort(t *testing.T) {
	for address, want := range map[string][2]string{"a:1": {"a", ":1"}, "a": {"a", ""}, "[::1]:6443": {"::1", ":6443"},
		"::1": {"::1", ""}, "[::1]": {"::1", ""}, ":1": {"", ":1"}, "[:": {"", ":"}} {
		if host, port := splitPort(address); host != want[0] || port != want[1] {
			t.Errorf("%s is %q and %q", address, host, port)
		}
	}
}

const small = `apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata:
  name: blue.example.com
spec:
  configBase: s3://state/blue.example.com
  networkCIDR: 172.20.0.0/16
  networking:
    weave: {}
  nonMasqueradeCIDR: 100.64.0.0/10
  subnets:
  - cidr: 172.20.32.0/19
    name: a
---
apiVersion: kops.k8s.io/v1alpha2
kind: InstanceGroup
metadata:
  labels:
    kops.k8s.io/cluster: blue.example.com
  name: nodes
spec:
  role: Node
`

// TestBadInput is the list of what is refused, with the line where there is one.
func TestBadInput(t *testing.T) {
	green := Options{Name: "green.example.com"}
	with := func(answers ...string) Options {
		options := Options{Name: "green.example.com", Answers: map[string]string{}}
		for _, answer := range answers {
			id, value, _ := strings.Cut(answer, "=")
			options.Answers[id] = value
		}
		return options
	}
	for name, test := range map[string]struct {
		old, new string
		options  Options
		want     string
	}{
		"no object": {"kind: Cluster", "sort: Cluster", green, "in.yaml:1: no kind or apiVersion"},
		"a newer API": {"kops.k8s.io/v1alpha2\nkind: Cluster", "kops.k8s.io/v1alpha3\nkind: Cluster",
			green, "in.yaml:1: version v1alpha3"},
		"no cluster":   {"kind: Cluster", "kind: Keyset", green, "no Cluster of kops"},
		"two clusters": {"kind: InstanceGroup", "kind: Cluster", green, "in.yaml:15: a second Cluster nodes"},
		"another's group": {"cluster: blue.example.com", "cluster: red.example.com", green,
			`in.yaml:15: InstanceGroup nodes is of cluster "red.example.com"`},
		"no group": {"kind: InstanceGroup", "kind: ConfigMap", green,
			"in.yaml:1: cluster blue.example.com has no InstanceGroup"},
		"no spec": {"spec:\n  configBase", "specification:\n  configBase", green,
			"in.yaml:1: a Cluster without name or spec"},
		"the same name":         {"", "", Options{Name: "blue.example.com"}, "would have the name of the original"},
		"no name":               {"", "", Options{Name: "Green_1"}, "--name Green_1"},
		"a short name":          {"", "", Options{Name: "green"}, "has no domain"},
		"gossip":                {"", "", Options{Name: "green.k8s.local"}, "ends in .k8s.local"},
		"a network that is not": {"", "", Options{Network: "weave"}, `the network "weave"`},
		"no network": {"weave: {}", "mesh: {}", Options{Network: "calico"},
			"in.yaml:9: spec.networking does not name one"},
		"two networks": {"weave: {}", "weave: {}\n    calico: {}", Options{Network: "cilium"},
			"in.yaml:9: spec.networking does not name one"},
		"the network that it has": {"weave: {}", "calico: {}", Options{Network: "calico"}, "calico already"},
		"amazonvpc elsewhere": {"configBase:", "cloudProvider: gce\n  configBase:",
			Options{Network: "amazonvpc"}, "on AWS only"},
		"braces": {"networking:\n    weave: {}", "networking: {weave: {}}",
			Options{Network: "calico"}, "in.yaml:8: weave is written within braces"},
		"an answer nobody asked for": {"", "", with("network=own", "peering=no", "nonsense=1"),
			"nonsense was not asked"},
		"an answer that is none":  {"", "", with("network=own", "peering=perhaps"), "not one of yes, no"},
		"peering with one range":  {"", "", with("network=own", "peering=yes"), "peering=yes and network=own"},
		"peering with an overlap": {"", "", with("network=172.20.0.0/16", "peering=yes"), "overlaps"},
		"a range within": {"", "", with("network=10.0.1.0/16", "peering=no"),
			"which would begin at 10.0.0.0/16"},
		"a range without length": {"", "", with("network=10.44.0.0"), "neither a range nor the ID"},
		"a range of IPv6":        {"", "", with("network=2001:db8::/48", "peering=no"), "not of the kind of"},
		"two nodes of kubeadm": {small, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" +
			"clusterName: blue\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n" +
			"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n", Options{Name: "green",
			Answers: map[string]string{"peering": "no"}}, "in.yaml:8: a second JoinConfiguration"},
		"shared with nobody": {"", "", with("network=shared"), "names no network"},
		"a subnet outside": {"", "", with("network=vpc-1", "networkCIDR=keep", "subnets.a.cidr=10.0.0.0/19"),
			"no range of 172.20.0.0/16"},
		"a subnet that is taken": {"", "",
			with("network=vpc-1", "networkCIDR=keep", "subnets.a.cidr=172.20.32.0/20"), "which is taken"},
		"pods of another size": {"", "", with("network=vpc-1", "networkCIDR=keep",
			"subnets.a.cidr=172.20.96.0/19", "pods=100.128.0.0/11"), "no range of the size"},
		"pods on machines": {"networkCIDR: 172.20.0.0/16", "networkCIDR: 10.64.0.0/16", with("network=vpc-1",
			"networkCIDR=keep", "subnets.a.cidr=10.64.96.0/19", "pods=10.64.0.0/10"), "overlaps with the machines'"},
		"a range that is none": {"172.20.0.0/16", "172.20.0.0/61", with("network=10.0.0.0/16", "peering=no"),
			"in.yaml:7: networkCIDR"},
		"a state store of none": {small, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" +
			"clusterName: blue\n", Options{Name: "green", State: "s3://x"}, "only kops has a state store"},
		"a missing object": {small, "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\n" +
			"metadata:\n  name: blue\nspec:\n  infrastructureRef:\n    kind: AWSCluster\n    name: blue\n",
			Options{Name: "green"}, "in.yaml:7: spec.infrastructureRef names AWSCluster blue, which is not"},
		"no label of a network": {small, "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata:\n" +
			"  name: blue\nspec:\n  paused: false\n", Options{Network: "calico"}, "no label"},
		"nothing that surges": {small, "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata:\n" +
			"  name: blue\nspec:\n  paused: false\n", Options{Surge: true}, "no MachineDeployment"},
		"a name with dots": {small, "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata:\n" +
			"  name: blue\nspec:\n  paused: false\n", green, "--name green.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(small, test.old, test.new, 1)
			if test.old != "" && text == small {
				t.Fatal("the input is not bad")
			}
			file, err := splice.Parse("in.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Convert([]*splice.File{file}, test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v, want %s", err, test.want)
			}
			if hinted, ok := err.(interface{ Hint() string }); !ok || hinted.Hint() == "" {
				t.Errorf("no hint with %v", err)
			}
		})
	}
}

// TestKeysAreNotShown lets no key into what is printed.
func TestKeysAreNotShown(t *testing.T) {
	const key = "hunter2hunter2"
	text := strings.Replace(small, "spec:\n  configBase",
		"spec:\n  gossipConfig:\n    secret: "+key+"\n  configBase", 1)
	for _, answer := range []string{"", "keep", "drop", "other-" + key} {
		file, err := splice.Parse("in.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		answers := map[string]string{"network": "own", "peering": "no", "gossipConfig.secret": answer}
		result, err := Convert([]*splice.File{file}, Options{Name: "green.example.com", Answers: answers})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range result.Changes {
			if strings.Contains(c.From+c.To+c.Why, key) {
				t.Errorf("%q: shown in %+v", answer, c)
			}
		}
		if asked := len(result.Questions) == 1; asked != (answer == "") {
			t.Errorf("%q: %v", answer, result.Questions)
		}
		for _, q := range result.Questions {
			if strings.Contains(q.Text, key) {
				t.Errorf("shown in %+v", q)
			}
		}
		if strings.Contains(string(result.Text), key) != (answer == "keep" || answer == "other-"+key) {
			t.Errorf("%q: the text is\n%s", answer, result.Text)
		}
	}
}

// TestAgain converts what was converted: the original's own change says that it is done, and a mirror's mirror is a
// mirror.
func TestAgain(t *testing.T) {
	convert := func(text string, options Options) *Result {
		t.Helper()
		file, err := splice.Parse("in.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		result, err := Convert([]*splice.File{file}, options)
		if err != nil || len(result.Questions) > 0 {
			t.Fatal(err, result)
		}
		return result
	}
	once := convert(small, Options{Surge: true})
	if again := convert(string(once.Text), Options{Surge: true}); len(again.Changes) > 0 ||
		string(again.Text) != string(once.Text) {
		t.Errorf("surge is not idempotent: %v", again.Changes)
	}
	answers := map[string]string{"network": "own", "peering": "no"}
	there := convert(small, Options{Name: "green.example.com", Answers: answers})
	back := convert(string(there.Text), Options{Name: "blue.example.com", Answers: answers})
	if string(back.Text) != small {
		t.Errorf("there and back is\n%s", back.Text)
	}
}

// FuzzConvert looks for panics, and for a mirror that still has the original's name where names are.
func FuzzConvert(f *testing.F) {
	for _, name := range []string{"kops-blue.yaml", "capi-blue.yaml", "kubeadm-blue.yaml"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), true)
	}
	f.Add(small, false)
	f.Fuzz(func(t *testing.T, text string, mirror bool) {
		if len(text) > 1<<14 {
			return
		}
		file, err := splice.Parse("in.yaml", []byte(text))
		if err != nil {
			return
		}
		options := Options{Network: "calico", Surge: true}
		if mirror {
			options = Options{Name: "green.prod.example.com", Network: "calico",
				Answers: map[string]string{"network": "10.44.0.0/16", "peering": "yes", "pods": "same"}}
		}
		Convert([]*splice.File{file}, options) //nolint:errcheck // only a panic fails; the editor proves what it makes
	})
}
