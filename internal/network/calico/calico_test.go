package calico_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/step"
)

func request(t *testing.T) cni.Request {
	return cni.Request{
		Manifest:  cnitest.Fixture(t, "calico-manifest.yaml"),
		PodCIDR:   "10.96.0.0/16",
		Source:    flannel.Driver{}.Detect(cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))),
		NodeLabel: v1alpha1.LabelTarget,
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// TestAcceptance is of the manifests of three releases, of which the oldest has no nftables mode.
func TestAcceptance(t *testing.T) {
	for _, version := range []string{"v3.28.5", "v3.30.1", "v3.31.0"} {
		t.Run(version, func(t *testing.T) {
			r := request(t)
			manifest, err := os.ReadFile("testdata/calico-vxlan-" + version + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			r.Manifest = cnitest.Documents(t, manifest)
			cnitest.Run(t, cnitest.Case{
				Driver:  calico.Driver{},
				Present: cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
				Other:   cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
				Request: r, Golden: "testdata/install-" + version + ".txt", Update: *update,
			})
		})
	}
}

// text is an object as JSON, to look for words in.
func text(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func find(t *testing.T, objects []unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	for i := range objects {
		if objects[i].GetKind() == kind {
			return &objects[i]
		}
	}
	t.Fatalf("no %s", kind)
	return nil
}

func TestInstallJoint(t *testing.T) {
	target, err := calico.Driver{}.Install(request(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(target.Definitions) != 2 || len(target.Objects) != 7 {
		t.Errorf("%d definitions and %d objects", len(target.Definitions), len(target.Objects))
	}
	agent := text(t, find(t, target.Objects, "DaemonSet"))
	for _, want := range []string{
		`{"name":"CALICO_IPV4POOL_CIDR","value":"10.96.0.0/16"}`, `{"name":"CALICO_IPV4POOL_VXLAN","value":"Always"}`,
		`{"name":"CALICO_IPV4POOL_IPIP","value":"Never"}`,
		`{"name":"IP_AUTODETECTION_METHOD","value":"kubernetes-internal-ip"}`,
		`{"name":"CNI_CONF_NAME","value":"10-calico.conflist.theseus"}`,
		`"theseus.dev/target":"true"`, `"maxUnavailable":1`, `["/bin/calico-node","-felix-ready"]`,
		`"terminationGracePeriodSeconds":10`,
		`"startupProbe":{"exec":{"command":["/bin/calico-node","-felix-ready"]},"failureThreshold":150,"periodSeconds":2`,
	} {
		if !strings.Contains(agent, want) {
			t.Errorf("the agent lacks %s:\n%s", want, agent)
		}
	}
	for _, gone := range []string{"bird", "preStop"} {
		if strings.Contains(agent, gone) {
			t.Errorf("the agent still has %q:\n%s", gone, agent)
		}
	}
	if config := text(t, find(t, target.Objects, "ConfigMap")); !strings.Contains(config, `"calico_backend":"vxlan"`) {
		t.Errorf("the ConfigMap is %s", config)
	}
	pool := text(t, target.Extras)
	if len(target.Extras) != 1 || !strings.Contains(pool, `"cidr":"10.244.0.0/16"`) ||
		!strings.Contains(pool, `"disabled":true`) ||
		!strings.Contains(pool, `"natOutgoing":false`) || !strings.Contains(pool, `"vxlanMode":"Never"`) {
		t.Errorf("the pool of the old range is %s", pool)
	}
	if want := (step.ConfArgs{Staged: "10-calico.conflist.theseus",
		Active: "10-calico.conflist"}); target.Conf != want {
		t.Errorf("the configuration is %+v", target.Conf)
	}
	if target.Installation.Version != "v3.31.0" || target.Installation.Selector != "k8s-app=calico-node" {
		t.Errorf("installation: %+v", target.Installation)
	}
}

// TestInstallFinal: the last actions give the user's own form back for pods made from then on, then the user's
// own strategy, and take the mark off every object.
// TestOtherFolders: Calico's installer is told where its files are on the node, permanently, unless the user says it.
func TestOtherFolders(t *testing.T) {
	const folder, said = "/var/lib/rancher/k3s/agent/etc/cni/net.d", `{"name":"CNI_NET_DIR","value":"`
	const own, variable = `"path":"/etc/cni/net.d"`, `{"name":"CNI_CONF_NAME"`
	manifest, err := os.ReadFile("testdata/calico-vxlan-v3.31.0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		replace      []string
		folder, want string
	}{
		"default": {nil, "/etc/cni/net.d", ""},
		"k3s":     {[]string{own, `"path":"` + folder + `/"`}, folder, said + folder + `"`},
		"said": {[]string{own, `"path":"` + folder + `"`, variable, said + `/etc/link"},` + variable}, folder,
			said + `/etc/link"`},
	} {
		r := request(t)
		r.Manifest = cnitest.Documents(t, manifest)
		agent := find(t, r.Manifest, "DaemonSet")
		if err := json.Unmarshal([]byte(strings.NewReplacer(c.replace...).Replace(text(t, agent))), agent); err != nil {
			t.Fatal(err)
		}
		target, err := calico.Driver{}.Install(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Installation; got.ConfFolder != c.folder || got.PluginFolder != "/opt/cni/bin" {
			t.Errorf("%s: it writes to %s and %s", name, got.ConfFolder, got.PluginFolder)
		}
		for form, object := range map[string]any{"joint": find(t, target.Objects, "DaemonSet"),
			"final": target.Final[0].Object()} {
			agent := text(t, object)
			if c.want == "" && strings.Contains(agent, said) || c.want != "" && strings.Count(agent, said) != 1 ||
				!strings.Contains(agent, c.want) {
				t.Errorf("%s: the %s form should have %q once", name, form, c.want)
			}
		}
	}
}

func TestInstallFinal(t *testing.T) {
	target, err := calico.Driver{}.Install(request(t))
	if err != nil {
		t.Fatal(err)
	}
	first := target.Final[0]
	if len(target.Final) != 1 || first.Op() != step.OpApply || first.Object().GetKind() != "DaemonSet" {
		t.Fatalf("%d actions, the first is %s %q", len(target.Final), first.Op(), first.Title)
	}
	agent := text(t, first.Object())
	for _, want := range []string{`{"name":"CNI_CONF_NAME","value":"10-calico.conflist"}`,
		`"preStop"`, `"type":"OnDelete"`,
		`"terminationGracePeriodSeconds":0`, `{"name":"CALICO_IPV4POOL_CIDR","value":"10.96.0.0/16"}`} {
		if !strings.Contains(agent, want) {
			t.Errorf("the final form lacks %s:\n%s", want, agent)
		}
	}
	if strings.Contains(agent, "startupProbe") {
		t.Errorf("the final form has a startup probe that is not the user's:\n%s", agent)
	}
	if strings.Contains(agent, v1alpha1.LabelTarget) {
		t.Errorf("the final form still waits for a label:\n%s", agent)
	}
	marks := 0
	for _, action := range target.HandOver {
		if do, is := action.Do.(step.Patch); is && strings.Contains(string(do.Merge), `"theseus.dev/managed":null`) {
			marks++
		}
		if action.Ref().Kind == "DaemonSet" && !strings.Contains(string(action.Do.(step.Patch).Merge), `"maxUnavailable":2`) {
			t.Errorf("the user's own strategy does not come back: %s", action.Do.(step.Patch).Merge)
		}
	}
	if all := len(target.Definitions) + len(target.Objects); marks != all {
		t.Errorf("%d of %d objects lose the mark", marks, all)
	}
}

// TestSharedTables: next to an agent that enforces policy in iptables, Felix keeps its rules in nftables, and a
// guard holds them while it goes back to the user's own form.
func TestSharedTables(t *testing.T) {
	for _, test := range []struct {
		name                   string
		policy                 cni.PolicyDialect
		image, mode            string
		inNFTables, withGuards bool
	}{
		{"kube-router, weave-npc", cni.PolicyKubernetes, "quay.io/calico/node:v3.31.0", "", true, true},
		{"nothing that enforces policy", cni.PolicyNone, "quay.io/calico/node:v3.31.0", "", false, false},
		{"a Calico without the mode", cni.PolicyKubernetes, "quay.io/calico/node:v3.28.2", "", false, false},
		{"a version that is not known", cni.PolicyKubernetes, "registry.example/node@sha256:0", "", true, true},
		{"nftables are the user's own choice", cni.PolicyKubernetes, "quay.io/calico/node:v3.31.0",
			"Enabled", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t)
			r.Source.Capabilities.Policy = test.policy
			containers, _, _ := unstructured.NestedSlice(find(t, r.Manifest, "DaemonSet").Object, "spec",
				"template", "spec", "containers")
			containers[0].(map[string]any)["image"] = test.image
			if err := unstructured.SetNestedSlice(find(t, r.Manifest, "DaemonSet").Object, containers, "spec",
				"template", "spec", "containers"); err != nil {
				t.Fatal(err)
			}
			if test.mode != "" {
				r.Manifest = append(r.Manifest,
					cnitest.Documents(t, []byte("apiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\n"+
						"metadata: {name: default}\nspec: {nftablesMode: "+test.mode+"}\n"))...)
			}
			target, err := calico.Driver{}.Install(r)
			if err != nil {
				t.Fatal(err)
			}
			joint, final := text(t, find(t, target.Objects, "DaemonSet")), text(t, target.Final[0].Object())
			if got := strings.Contains(joint,
				`{"name":"FELIX_NFTABLESMODE","value":"Enabled"}`); got != test.inNFTables {
				t.Errorf("the joint form is in nftables: %t", got)
			}
			if strings.Contains(final, "FELIX_NFTABLES") {
				t.Errorf("the final form is not the user's own: %s", final)
			}
			if (target.Guard != nil) != test.withGuards {
				t.Errorf("guard: %+v", target.Guard)
			}
		})
	}
}

func TestInstallMTU(t *testing.T) {
	for _, test := range []struct {
		name          string
		mtu, overhead int
		own, want     string
	}{
		{"flannel over VXLAN on 1500", 1450, 50, "0", "1450"},
		{"flannel host-gw on 1500", 1500, 0, "0", "1450"},
		{"source with a small MTU", 1376, 50, "0", "1376"},
		{"user's own is smaller", 1450, 50, "1300", "1300"},
		{"not known", 0, 50, "0", "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t)
			r.Source.Capabilities.MTU, r.Source.Capabilities.Overhead = test.mtu, test.overhead
			config := find(t, r.Manifest, "ConfigMap")
			if err := unstructured.SetNestedField(config.Object, test.own, "data", "veth_mtu"); err != nil {
				t.Fatal(err)
			}
			target, err := calico.Driver{}.Install(r)
			if err != nil {
				t.Fatal(err)
			}
			got, _, _ := unstructured.NestedString(find(t, target.Objects, "ConfigMap").Object, "data", "veth_mtu")
			if got != test.want {
				t.Errorf("veth_mtu is %s, not %s", got, test.want)
			}
			if test.own != test.want {
				if back := text(t, target.Final[0].Object()); !strings.Contains(back, `"veth_mtu":"`+test.own+`"`) {
					t.Errorf("the user's own does not come back: %s", back)
				}
			}
		})
	}
}

// TestConfSortsFirst: the runtime reads the first file by name, so a source that sorts early pushes Calico's forward.
func TestConfSortsFirst(t *testing.T) {
	r := request(t)
	r.Source.Capabilities.ConfName = "05-flannel.conflist"
	target, err := calico.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	if target.Conf.Active != "00-calico.conflist" || target.Installation.Capabilities.ConfName != "10-calico.conflist" {
		t.Errorf("active %s, final %s", target.Conf.Active, target.Installation.Capabilities.ConfName)
	}
}

func TestInstallRefuses(t *testing.T) {
	env := func(t *testing.T, r *cni.Request, name, value string) {
		t.Helper()
		agent := find(t, r.Manifest, "DaemonSet")
		containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "template", "spec", "containers")
		container := containers[0].(map[string]any)
		list := container["env"].([]any)
		list = slices.DeleteFunc(list, func(v any) bool { return v.(map[string]any)["name"] == name })
		container["env"] = append(list, map[string]any{"name": name, "value": value})
		_ = unstructured.SetNestedSlice(agent.Object, containers, "spec", "template", "spec", "containers")
	}
	for _, test := range []struct {
		name   string
		change func(*testing.T, *cni.Request)
		words  string
	}{
		{"no agent", func(t *testing.T, r *cni.Request) { find(t, r.Manifest, "DaemonSet").SetName("canal") },
			"no DaemonSet calico-node"},
		{"operator", func(t *testing.T, r *cni.Request) {
			r.Manifest = append(r.Manifest, cnitest.Documents(t,
				[]byte("apiVersion: operator.tigera.io/v1\nkind: Installation\nmetadata: {name: default}\n"))...)
		}, "operator"},
		{"BPF by variable", func(t *testing.T, r *cni.Request) { env(t, r, "FELIX_BPFENABLED", "true") }, "BPF"},
		{"BPF by configuration", func(t *testing.T, r *cni.Request) {
			r.Manifest = append(r.Manifest, cnitest.Documents(t, []byte("apiVersion: crd.projectcalico.org/v1\n"+
				"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {bpfEnabled: true}\n"))...)
		}, "BPF"},
		{"etcd", func(t *testing.T, r *cni.Request) { env(t, r, "DATASTORE_TYPE", "etcdv3") }, "etcd"},
		{"policy only", func(t *testing.T, r *cni.Request) { env(t, r, "CALICO_NETWORKING_BACKEND", "none") },
			"only enforces policy"},
		{"no installer", func(t *testing.T, r *cni.Request) {
			unstructured.RemoveNestedField(find(t, r.Manifest, "DaemonSet").Object, "spec",
				"template", "spec", "initContainers")
		}, "init container"},
		{"no CIDR", func(_ *testing.T, r *cni.Request) { r.PodCIDR = "10.96.0.0" }, "is not an IPv4 CIDR"},
		{"IPv6", func(_ *testing.T, r *cni.Request) { r.PodCIDR = "fd00::/64" }, "is not an IPv4 CIDR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t)
			test.change(t, &r)
			_, err := calico.Driver{}.Install(r)
			var refused *cni.Refusal
			if !errors.As(err, &refused) {
				t.Fatalf("not refused: %v", err)
			}
			if !strings.Contains(refused.Message, test.words) || refused.Hint == "" {
				t.Errorf("the refusal does not say %q: %q, hint %q", test.words, refused.Message, refused.Hint)
			}
		})
	}
}

func TestDetectOddities(t *testing.T) {
	for _, test := range []struct {
		name, from, to, problem string
	}{
		{"staged", "10-calico.conflist}", "10-calico.conflist.theseus}", "not finished"},
		{"no agent", "kind: DaemonSet\nmetadata: {name: calico-node", "kind: DaemonSet\nmetadata: {name: other",
			"no DaemonSet calico-node"},
		{"not ready", "numberReady: 1", "numberReady: 0", "ready on 0 of 1"},
		{"no pool", "kind: IPPool", "kind: Other", "no enabled IPPool"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fixture := strings.Replace(string(cnitest.Text(t, "calico.yaml")), test.from, test.to, 1)
			found := calico.Driver{}.Detect(cnitest.Snapshot(t, cnitest.Documents(t, []byte(fixture))))
			if found == nil || !strings.Contains(strings.Join(found.Problems, "\n"), test.problem) {
				t.Errorf("problems do not say %q: %+v", test.problem, found)
			}
		})
	}
}

// TestReadings: agents read Felix' metrics at its port, and the blocks say how many addresses of a pool are in use.
func TestReadings(t *testing.T) {
	const config = "---\napiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\nmetadata: {name: %s}\n" +
		"spec: {prometheusMetricsPort: 9%d}\n"
	const block = "---\napiVersion: crd.projectcalico.org/v1\nkind: IPAMBlock\nmetadata: {name: %s}\n" +
		"spec: {cidr: %s, allocations: [0, null, 1, null, 0]}\n"
	text := string(cnitest.Text(t, "calico.yaml")) + fmt.Sprintf(config, "node.node-1", 1) +
		fmt.Sprintf(config, "default", 92) + fmt.Sprintf(block, "one", "10.96.5.0/29") +
		fmt.Sprintf(block, "elsewhere", "10.7.0.0/29") + fmt.Sprintf(block, "odd", "none")
	snapshot := cnitest.Snapshot(t, cnitest.Documents(t, []byte(text)))
	found := calico.Driver{}.Detect(snapshot)
	if found.Used != nil {
		t.Errorf("without blocks: %v", found.Used)
	}
	snapshot.Sources = append(snapshot.Sources,
		cluster.Source{Resource: "ipamblocks.crd.projectcalico.org", From: "live"})
	found = calico.Driver{}.Detect(snapshot)
	for _, carried := range found.Readings[0].Carried {
		if found.Readings[0].Counters[carried] == "" {
			t.Errorf("%s is no counter", carried)
		}
	}
	if len(found.Readings) != 1 || found.Readings[0].URL != "http://127.0.0.1:992/metrics" ||
		found.Readings[0].Local() != nil {
		t.Errorf("%+v", found.Readings)
	}
	if found.Used["10.96.0.0/16"] != 3 || len(found.Used) != 1 {
		t.Errorf("%v", found.Used)
	}
}

// TestMasqueraded: it is known which pods Calico masquerades and whither, unless it does so in a way of its own.
func TestMasqueraded(t *testing.T) {
	const pool, excluded = "---\napiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: other}\n" +
		"spec: {cidr: 10.97.0.0/16, disabled: true}\n",
		"---\napiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\nmetadata: {name: node.a}\n" +
			"spec: {natOutgoingExclusions: IPPoolsAndHostIPs}\n"
	found := func(more string) *cni.Masquerade {
		t.Helper()
		fixture := strings.Replace(string(cnitest.Text(t, "calico.yaml")), "natOutgoing: true",
			"natOutgoing: true, nodeSelector: all()", 1)
		return calico.Driver{}.Detect(cnitest.Snapshot(t,
			cnitest.Documents(t, []byte(fixture+more)))).Capabilities.Masquerade
	}
	plain := found(pool)
	if plain == nil || !slices.Equal(plain.From, []string{"10.96.0.0/16"}) ||
		!slices.Equal(plain.Except, []string{"10.96.0.0/16", "10.97.0.0/16"}) {
		t.Errorf("%+v", plain)
	}
	if other := found(pool + excluded); other != nil {
		t.Errorf("with exclusions of its own: %+v", other)
	}
}

// FuzzChained holds that no template of a CNI configuration, however broken, makes the driver panic.
func FuzzChained(f *testing.F) {
	f.Add(`{"plugins": [{"type": "calico", "mtu": __CNI_MTU__}, {"type": "portmap"}, {"type": "bandwidth"}]}`)
	f.Add(`{"plugins": [{"type": __X__}, "", {}]`)
	f.Fuzz(func(t *testing.T, text string) {
		snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
		snapshot.ConfigMaps[0].Data["cni_network_config"] = text
		found := calico.Driver{}.Detect(snapshot)
		if slices.Contains(found.Capabilities.Chained, "portmap") {
			t.Errorf("%q: %v", text, found.Capabilities.Chained)
		}
	})
}

// TestChained: what follows Calico's plugin is read from its template, in place and in a manifest.
func TestChained(t *testing.T) {
	const text = `{"plugins": [{"type": "calico", "mtu": __CNI_MTU__}, {"type": "portmap"}, {"type": "bandwidth"}]}`
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
	snapshot.ConfigMaps[0].Data["cni_network_config"] = text
	r := request(t)
	_ = unstructured.SetNestedField(find(t, r.Manifest, "ConfigMap").Object, text, "data", "cni_network_config")
	target, err := calico.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range []*cni.Installation{calico.Driver{}.Detect(snapshot), &target.Installation} {
		if !slices.Equal(found.Capabilities.Chained, []string{"bandwidth"}) {
			t.Errorf("%v", found.Capabilities.Chained)
		}
	}
}

// TestMarkMask: the bits of marks that Felix is told to use are known, and none where it uses its own.
func TestMarkMask(t *testing.T) {
	for _, test := range []struct {
		name, spec, env string
		want            uint32
	}{
		{"default", "", "", 0},
		{"by configuration", "{iptablesMarkMask: 16776960}", "", 0xffff00},
		{"by variable", "", "0xff0000", 0xff0000},
		{"by both, in hexadecimal and decimal", "{nftablesMarkMask: 4278190080}", "255", 0xff0000ff},
		{"what is no mask", "{iptablesMarkMask: wide}", "wide", 0},
	} {
		snapshot := cnitest.Golden(t, "calico")
		if test.spec != "" {
			snapshot.Other = append(snapshot.Other, cnitest.Documents(t, []byte(
				"apiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\nmetadata: {name: node.a}\nspec: "+
					test.spec+"\n"))...)
		}
		if test.env != "" {
			containers := snapshot.DaemonSet("kube-system", "calico-node").Spec.Template.Spec.Containers
			containers[0].Env = append(containers[0].Env,
				corev1.EnvVar{Name: "FELIX_IPTABLESMARKMASK", Value: test.env})
		}
		if got := (calico.Driver{}).Detect(snapshot).Capabilities.PolicyMarks; got != test.want {
			t.Errorf("%s: %#x, not %#x", test.name, got, test.want)
		}
	}
}
