package cilium_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cilium"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// next is the manifest of v1.20.2 with the pre-flight check, as two outputs of the chart one after the other.
func next(t *testing.T) string {
	return chart(t, "v1.20.2") + "\n---\n" + string(cnitest.Text(t, "charts/cilium-preflight-v1.20.2.yaml"))
}

// upgraded plans another version of a Cilium that runs.
func upgraded(t *testing.T, from, manifest string, change func(*cluster.Snapshot)) (*cni.Upgrade, error) {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Cilium(t, from))
	if change != nil {
		change(snapshot)
	}
	found := cilium.Driver{}.Detect(snapshot)
	if found == nil || len(found.Problems) > 0 {
		t.Fatalf("%+v", found)
	}
	return cilium.Driver{}.Upgrade(snapshot, found, cnitest.Documents(t, []byte(manifest)), "")
}

func TestUpgrade(t *testing.T) {
	u, err := upgraded(t, "v1.19.6", next(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !u.Leading || len(u.Followers) > 0 || len(u.Leaders) != 1 || u.Leaders[0].Ref.Name != "cilium-operator" {
		t.Errorf("the operator does not lead: %+v, %+v", u.Leaders, u.Followers)
	}
	if len(u.Leaders[0].New) != 2 || u.Leaders[0].New[0].Ref().Name != "cilium-config" ||
		len(u.Leaders[0].Old) != 2 || u.Leaders[0].Old[0].Ref().Name != "cilium-config" {
		t.Errorf("the operator starts without the settings of its version: %+v", u.Leaders[0])
	}
	if len(u.Trial) == 0 || !slices.ContainsFunc(u.Trial, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet" && o.GetName() == "cilium-pre-flight-check"
	}) {
		t.Errorf("the pre-flight check is not part of it: %d objects", len(u.Trial))
	}
	for _, list := range [][]unstructured.Unstructured{u.Objects, u.Rights, u.Roles} {
		for _, object := range list {
			if strings.Contains(object.GetName(), "pre-flight") {
				t.Errorf("%s %s of the pre-flight check stays", object.GetKind(), object.GetName())
			}
		}
	}
	said := strings.Join(u.Settings, "\n")
	if !strings.Contains(said, `enable-datapath-plugins is added ("false")`) || strings.Contains(said, "routing-mode") {
		t.Errorf("the settings that change: %s", said)
	}
	if u.Installation.Version != "v1.20.2" || u.Installation.Untried != "" || len(u.Rights) != len(u.Roles) ||
		len(u.Rights) < 4 {
		t.Errorf("%+v, %d rights, %d roles", u.Installation, len(u.Rights), len(u.Roles))
	}
	back, err := upgraded(t, "v1.20.2", chart(t, "v1.19.6"), nil)
	if err != nil || !back.Leading || len(back.Leaders) != 1 || back.Installation.Version != "v1.19.6" {
		t.Errorf("and back: %+v, %v", back, err)
	}
}

// policy is a CiliumNetworkPolicy of the cluster with an L7 rule.
func policy(t *testing.T, kind, rules string) unstructured.Unstructured {
	t.Helper()
	return cnitest.Documents(t, []byte("apiVersion: cilium.io/v2\nkind: "+kind+"\nmetadata: {name: l7}\n"+
		"spec: {endpointSelector: {}, ingress: [{toPorts: [{ports: [{port: '80'}], rules: "+rules+"}]}]}\n"))[0]
}

// set changes a setting of the cluster.
func set(key, value string) func(*cluster.Snapshot) {
	return func(s *cluster.Snapshot) {
		for i := range s.ConfigMaps {
			if s.ConfigMaps[i].Name == "cilium-config" {
				s.ConfigMaps[i].Data[key] = value
			}
		}
	}
}

func TestUpgradeRefused(t *testing.T) {
	text := chart(t, "v1.20.2")
	replaced := func(old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("the chart has no %q", old)
		}
		return strings.ReplaceAll(text, old, with)
	}
	with := func(o unstructured.Unstructured) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) { s.Other = append(s.Other, o) }
	}
	added := func(key, value string) string {
		return replaced(`enable-ipv4: "true"`, fmt.Sprintf("enable-ipv4: \"true\"\n  %s: %q", key, value))
	}
	for name, test := range map[string]struct {
		from, manifest string
		change         func(*cluster.Snapshot)
		want           string
	}{
		"the same version":   {"v1.20.2", text, nil, "runs already"},
		"two minor releases": {"v1.19.6", replaced(":v1.20.2", ":v1.21.0"), nil, "more than one minor release"},
		"two back": {"v1.20.2", strings.ReplaceAll(chart(t, "v1.19.6"), ":v1.19.6", ":v1.18.5"), nil,
			"more than one minor release"},
		"another major": {"v1.19.6", replaced(":v1.20.2", ":v2.19.0"), nil, "more than one minor release"},
		"no version": {"v1.19.6", replaced("cilium/cilium:v1.20.2", "cilium/cilium:latest"), nil,
			"which version it is"},
		"before 1.14": {"v1.19.6", replaced(":v1.20.2", ":v1.13.9"), nil, "before 1.14"},
		"native routing": {"v1.19.6", replaced(`routing-mode: "tunnel"`, `routing-mode: "native"`), nil,
			"routing-mode"},
		"another range": {"v1.19.6", replaced(`"10.0.0.0/16"`, `"10.7.0.0/16"`), nil, "cluster-pool-ipv4-cidr"},
		"another tunnel": {"v1.19.6", replaced(`tunnel-protocol: "vxlan"`, `tunnel-protocol: "geneve"`), nil,
			"tunnel-protocol"},
		"a cluster mesh": {"v1.19.6", text + "\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " +
			"clustermesh-apiserver, namespace: kube-system}\n", nil, "cluster mesh"},
		"with Envoy": {"v1.19.6", text + "\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: " +
			"cilium-envoy, namespace: kube-system}\n", nil, "L7 proxy"},
		"a second DaemonSet": {"v1.19.6", text + "\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: " +
			"other, namespace: kube-system}\n", nil, "a second DaemonSet, other"},
		"a Job": {"v1.19.6", text + "\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: hubble-generate-certs}\n",
			nil, "contains Job hubble-generate-certs"},
		"policies": {"v1.19.6", text + "\n---\napiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\n" +
			"metadata: {name: x}\n", nil, "policies take effect on all nodes at once"},
		"no agent": {"v1.19.6", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cilium-config}\n", nil,
			"no DaemonSet with a container cilium-agent"},
		"pre-flight alone": {"v1.19.6", string(cnitest.Text(t, "charts/cilium-preflight-v1.20.2.yaml")), nil,
			"no DaemonSet with a container cilium-agent"},
		"another namespace": {"v1.19.6", replaced("namespace: kube-system", "namespace: cilium"), nil,
			"the agent in the manifest is"},
		"Hubble's relay runs": {"v1.19.6", text, func(s *cluster.Snapshot) {
			relay := s.Deployments[0]
			relay.Name = "hubble-relay"
			s.Deployments = append(s.Deployments, relay)
		}, "hubble-relay runs, and the manifest lacks it"},
		"a cluster mesh runs": {"v1.19.6", text, func(s *cluster.Snapshot) {
			mesh := s.Deployments[0]
			mesh.Name = "clustermesh-apiserver"
			s.Deployments = append(s.Deployments, mesh)
		}, "cluster mesh"},
		"Envoy runs": {"v1.19.6", text, func(s *cluster.Snapshot) {
			proxy := *s.DaemonSets[0].DeepCopy()
			proxy.Name, proxy.Spec.Template.Spec.Containers[0].Name = "cilium-envoy", "cilium-envoy"
			s.DaemonSets = append(s.DaemonSets, proxy)
		}, "L7 proxy"},
		"a CRD": {"v1.19.6", text + "\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
			"metadata: {name: ciliumnodes.cilium.io}\n", nil, "CustomResourceDefinition ciliumnodes.cilium.io"},
		"server names": {"v1.19.6", text, with(cnitest.Documents(t, []byte("apiVersion: cilium.io/v2\n"+
			"kind: CiliumNetworkPolicy\nmetadata: {name: tls}\n"+
			"spec: {egress: [{toPorts: [{serverNames: [a.example]}]}]}\n"))[0]), "has L7 rules (serverNames)"},
		"BGP goes":           {"v1.19.6", text, set("enable-bgp-control-plane", "true"), "enable-bgp-control-plane is"},
		"BGP comes":          {"v1.19.6", added("enable-bgp-control-plane", "true"), nil, `would be "true"`},
		"a range goes":       {"v1.19.6", text, set("ipv4-native-routing-cidr", "10.0.0.0/8"), "ipv4-native"},
		"map sizes":          {"v1.19.6", added("bpf-ct-global-tcp-max", "1000"), nil, "bpf-ct-global-tcp-max"},
		"strict":             {"v1.19.6", text, set("encryption-strict-egress-cidr", "10.0.0.0/16"), "strict-egress"},
		"an unknown setting": {"v1.19.6", text, set("enable-what-comes", "true"), "enable-what-comes"},
		"an unknown value":   {"v1.19.6", added("what-comes", "b"), set("what-comes", "a"), `what-comes is "a" and`},
		"HTTP rules": {"v1.19.6", text, with(policy(t, "CiliumNetworkPolicy", "{http: [{method: GET}]}")),
			"has L7 rules (http)"},
		"DNS rules of the cluster": {"v1.19.6", text, with(policy(t, "CiliumClusterwideNetworkPolicy", "{dns: [{}]}")),
			"has L7 rules (dns)"},
		"Kafka rules": {"v1.19.6", text, with(policy(t, "CiliumNetworkPolicy", "{kafka: [{}]}")),
			"rules for kafka, which Cilium 1.20 removed"},
		"an Envoy configuration": {"v1.19.6", text, with(policy(t, "CiliumEnvoyConfig", "{}")),
			"configures Cilium's proxy"},
		"chained": {"v1.19.6", replaced(`cni-exclusive: "true"`, "cni-chaining-mode: aws-cni"), nil,
			"cni-chaining-mode"},
		"WireGuard": {"v1.19.6", text, set("enable-wireguard", "true"), `enable-wireguard is "true" and would be ""`},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := upgraded(t, test.from, test.manifest, test.change)
			refused, ok := errors.AsType[*cni.Refusal](err)
			if !ok || !strings.Contains(refused.Message, test.want) || refused.Hint == "" {
				t.Errorf("it is to be refused with %q: %+v, %v", test.want, u, err)
			}
		})
	}
}

// TestUpgradeNeverRun: what leaves the network as it is, and was never run, is named.
func TestUpgradeNeverRun(t *testing.T) {
	manifest := strings.ReplaceAll(chart(t, "v1.20.2"), `enable-ipv4: "true"`,
		"enable-ipv4: \"true\"\n  enable-ipsec: \"true\"")
	u, err := upgraded(t, "v1.19.6", manifest, func(s *cluster.Snapshot) {
		set("enable-ipsec", "true")(s)
		set("enable-hubble", "true")(s)             // goes
		set("enable-bgp-control-plane", "false")(s) // as without it
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"that encrypts traffic between its nodes by IPsec (enable-ipsec)",
		"with Hubble (enable-hubble)"} {
		if got := u.Installation.NeverRun; !slices.Contains(got, want) {
			t.Errorf("%q", got)
		}
	}
}

// TestInstallRefusesL7: next to another network, neither L7 policies nor a cluster mesh.
func TestInstallRefusesL7(t *testing.T) {
	for want, object := range map[string]string{
		"has L7 rules (listener, originatingTLS, terminatingTLS)": "apiVersion: cilium.io/v2\n" +
			"kind: CiliumNetworkPolicy\nmetadata: {name: x, namespace: shop}\nspec: {egress: [{toPorts: " +
			"[{listener: {name: a}, originatingTLS: {}, terminatingTLS: {}}]}]}\n",
		"has L7 rules (http)": "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\n" +
			"metadata: {name: x, namespace: shop}\nspec: {ingress: [{toPorts: [{rules: {http: [{}]}}]}]}\n",
		"a cluster mesh": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: clustermesh-apiserver}\n",
	} {
		r := request(t)
		r.Manifest = append(r.Manifest, cnitest.Documents(t, []byte(object))...)
		if _, err := (cilium.Driver{}).Install(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
