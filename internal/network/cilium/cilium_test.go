package cilium_test

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cilium"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/step"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// chart is what the chart of a release makes, as text.
func chart(t *testing.T, version string) string {
	return string(cnitest.Text(t, "charts/cilium-"+version+".yaml"))
}

func present(t *testing.T) *cluster.Snapshot {
	return cnitest.Snapshot(t, cnitest.Cilium(t, "v1.16.5"))
}

func request(t *testing.T) cni.Request {
	return cni.Request{
		Manifest:  cnitest.Documents(t, []byte(chart(t, "v1.16.5"))),
		PodCIDR:   "10.96.0.0/16",
		Source:    flannel.Driver{}.Detect(cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))),
		NodeLabel: v1alpha1.LabelTarget,
	}
}

// TestAcceptance is of what the charts of three releases make, of which the oldest cannot be brought next to another
// network.
func TestAcceptance(t *testing.T) {
	for _, version := range []string{"v1.12.19", "v1.16.5", "v1.19.0"} {
		t.Run(version, func(t *testing.T) {
			c := cnitest.Case{Driver: cilium.Driver{}, Present: cnitest.Snapshot(t, cnitest.Cilium(t, version)),
				Other: cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))}
			if version == "v1.12.19" {
				cnitest.Detects(t, c)
				return
			}
			c.Request, c.Golden, c.Update = request(t), "testdata/install-"+version+".txt", *update
			c.Request.Manifest = cnitest.Documents(t, []byte(chart(t, version)))
			cnitest.Run(t, c)
		})
	}
}

// TestWholeChart: everything that a chart makes is a part of the network that is found there, or is in a namespace that
// is one.
func TestWholeChart(t *testing.T) {
	for _, version := range []string{"v1.12.19", "v1.16.5", "v1.19.0"} {
		parts := map[step.Ref]bool{}
		for _, ref := range (cilium.Driver{}).Detect(cnitest.Snapshot(t, cnitest.Cilium(t, version))).Parts {
			parts[ref] = true
		}
		for _, object := range cnitest.Documents(t, []byte(chart(t, version))) {
			ref := step.RefOf(&object)
			if !parts[ref] && !parts[step.Ref{APIVersion: "v1", Kind: "Namespace", Name: ref.Namespace}] {
				t.Errorf("%s: %s is no part", version, ref)
			}
		}
	}
}

func config(s *cluster.Snapshot) map[string]string {
	return s.ConfigMap("kube-system", "cilium-config").Data
}

func TestDetect(t *testing.T) {
	for version, conf := range map[string]string{"v1.12.19": "05-cilium.conf", "v1.16.5": "05-cilium.conflist",
		"v1.19.0": "05-cilium.conflist"} {
		found := cilium.Driver{}.Detect(cnitest.Snapshot(t, cnitest.Cilium(t, version)))
		caps := found.Capabilities
		if found.Version != version || !slices.Equal(found.PodCIDRs, []string{"10.0.0.0/16"}) || found.Untried == "" {
			t.Errorf("found %+v", found)
		}
		if caps.Encapsulation != "vxlan" || caps.Port != 8472 || !caps.WholePort ||
			caps.ReplacesKubeProxy || caps.SwitchedPerNode ||
			!slices.Equal(caps.RouteTables, []int{2004, 2005}) || !slices.Contains(caps.HostLinks, "cilium_vxlan") ||
			caps.ConfName != conf {
			t.Errorf("%s: capabilities: %+v", version, caps)
		}
	}
}

// TestScript: a release before 1.14 says to its script alone whether it renames the configurations of others.
func TestScript(t *testing.T) {
	objects := cnitest.Documents(t,
		[]byte(strings.ReplaceAll(chart(t, "v1.12.19"), "--cni-exclusive=true", "--cni-exclusive=false")))
	objects = slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool {
		return o.GetKind() != "DaemonSet" && o.GetKind() != "ConfigMap"
	})
	if found := (cilium.Driver{}).Detect(cnitest.Snapshot(t, objects)); !found.Capabilities.SwitchedPerNode {
		t.Errorf("%+v", found.Capabilities)
	}
}

func nodeConfig(labels, defaults string) string {
	return "apiVersion: cilium.io/v2\nkind: CiliumNodeConfig\n" +
		"metadata: {name: cilium-default, namespace: kube-system}\n" +
		"spec: {nodeSelector: {matchLabels: {" + labels + "}}, defaults: {" + defaults + "}}\n"
}

func TestDetectOddities(t *testing.T) {
	set := func(pairs ...string) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) {
			for i := 0; i < len(pairs); i += 2 {
				config(s)[pairs[i]] = pairs[i+1]
			}
		}
	}
	with := func(text string) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) { s.Other = append(s.Other, cnitest.Documents(t, []byte(text))...) }
	}
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string // part of one; empty when there must be none
		check   func(*cni.Installation) bool
	}{
		{"no tunnels", set("routing-mode", "native"), "", func(i *cni.Installation) bool {
			return i.Capabilities.Encapsulation == "none" && i.Capabilities.Port == 0
		}},
		{"no tunnels, of old", set("tunnel", "disabled"), "", func(i *cni.Installation) bool {
			return i.Capabilities.Encapsulation == "none"
		}},
		{"Geneve", set("tunnel-protocol", "geneve"), "", func(i *cni.Installation) bool {
			return i.Capabilities.Encapsulation == "geneve" && i.Capabilities.Port == 6081 && !i.Capabilities.WholePort
		}},
		{"another port", set("tunnel-port", "8473"), "", func(i *cni.Installation) bool {
			return i.Capabilities.Port == 8473
		}},
		{"a port that is none", set("tunnel-port", "x"), "", func(i *cni.Installation) bool {
			return i.Capabilities.Port == 8472
		}},
		{"replaces kube-proxy", set("kube-proxy-replacement", "true"), "",
			func(i *cni.Installation) bool { return i.Capabilities.ReplacesKubeProxy }},
		{"replaces it in part", set("kube-proxy-replacement", "partial"), "",
			func(i *cni.Installation) bool { return i.Capabilities.ReplacesKubeProxy }},
		{"leaves others alone", set("cni-exclusive", "false"), "",
			func(i *cni.Installation) bool { return i.Capabilities.SwitchedPerNode }},
		{"no policy", set("enable-policy", "never"), "", func(i *cni.Installation) bool {
			return i.Capabilities.Policy == cni.PolicyNone
		}},
		{"IPsec", set("enable-ipsec", "true"), "", func(i *cni.Installation) bool {
			return slices.Contains(i.Capabilities.RouteTables, 200)
		}},
		{"ranges of nodes", set("ipam", "kubernetes"), "", func(i *cni.Installation) bool {
			return slices.Equal(i.PodCIDRs, []string{"10.244.0.0/23"}) && i.Capabilities.CIDRSource == "node"
		}},
		{"several ranges", set("cluster-pool-ipv4-cidr", "10.0.0.0/16 10.1.0.0/16,10.2.0.0/16"), "",
			func(i *cni.Installation) bool { return len(i.PodCIDRs) == 3 }},
		{"dual stack", set("enable-ipv6", "true", "cluster-pool-ipv6-cidr", "fd00::/104"), "",
			func(i *cni.Installation) bool { return len(i.PodCIDRs) == 2 }},
		{"MTU", set("mtu", "9000"), "", func(i *cni.Installation) bool { return i.Capabilities.MTU == 8950 }},
		{"a cloud's addresses", set("ipam", "eni"), "from AWS here (ipam eni)", nil},
		{"Azure's addresses", set("ipam", "azure"), "from Azure here (ipam azure)", nil},
		{"Alibaba's addresses", set("ipam", "alibabacloud"), "from Alibaba Cloud here (ipam alibabacloud)", nil},
		{"other addresses", set("ipam", "multi-pool"), "ipam multi-pool", nil},
		{"an operator of another version", func(s *cluster.Snapshot) {
			for i := range s.Deployments {
				if s.Deployments[i].Name == "cilium-operator" {
					s.Deployments[i].Spec.Template.Spec.Containers[0].Image = "quay.io/cilium/operator-generic:v1.17.0"
				}
			}
		}, "the agents are of v1.16.5 and the operator of v1.17.0: an upgrade failed or was interrupted", nil},
		{"no range", set("cluster-pool-ipv4-cidr", "10.0.0.0"), "names no range", nil},
		{"chained", set("cni-chaining-mode", "aws-cni"), "chained behind another network", nil},
		{"secondary", set("custom-cni-conf", "true"), "serves no new pod", nil},
		{"no settings", func(s *cluster.Snapshot) { s.ConfigMaps = nil },
			"does not exist, so Theseus does not know Cilium's settings", nil},
		{"no operator", func(s *cluster.Snapshot) { s.Deployments = nil }, "the Deployment cilium-operator", nil},
		{"no agent", func(s *cluster.Snapshot) { s.DaemonSets, s.ConfigMaps = nil, nil },
			"CiliumNode node-1 exists, but no DaemonSet", nil},
		{"half-way by nodes", func(s *cluster.Snapshot) {
			s.Nodes[1].Labels["io.cilium.migration/cilium-default"] = "true"
			with(nodeConfig(`io.cilium.migration/cilium-default: "true"`, `custom-cni-conf: "true", debug: "true"`))(s)
		}, "gives 1 of 2 nodes custom-cni-conf=true: a migration was begun", nil},
		{"for no node", with(nodeConfig("a: b", `custom-cni-conf: "true"`)), "", nil},
		{"of no weight", with(nodeConfig("kubernetes.io/os: linux", `debug: "true"`)), "", nil},
		{"a selector that is none",
			with("apiVersion: cilium.io/v2\nkind: CiliumNodeConfig\nmetadata: {name: x, namespace: kube-system}\n" +
				"spec: {nodeSelector: {matchExpressions: [{key: a, operator: Odd}]}}\n"),
			"nodeSelector that cannot be read", nil},
		{"staged", func(s *cluster.Snapshot) {
			config(s)["write-cni-conf-when-ready"] += ".theseus"
		}, "begun here and is not finished", func(i *cni.Installation) bool {
			return i.Capabilities.ConfName == "05-cilium.conflist"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.Understood(t, cilium.Driver{}, snapshot, test.problem, test.check)
		})
	}
}

// apart are settings with which Cilium was never run next to another network, and what the refusal names.
var apart = map[string]string{
	"routing-mode: native":                 "without tunnels",
	"tunnel-protocol: geneve":              "Geneve",
	`enable-ipv6: "true"`:                  "IPv6",
	`enable-ipsec: "true"`:                 "IPsec",
	`enable-wireguard: "true"`:             "WireGuard",
	`enable-ztunnel: "true"`:               "ztunnel",
	`cluster-id: "3"`:                      "cluster mesh",
	`enable-host-firewall: "true"`:         "on the nodes themselves",
	`enable-gateway-api: "true"`:           "serves Gateways",
	`enable-ingress-controller: "true"`:    "serves Ingresses",
	`enable-bpf-masquerade: "true"`:        "masquerades in BPF",
	`enable-endpoint-routes: "true"`:       "routes to each pod",
	"datapath-mode: netkit-l2":             "netkit",
	"identity-allocation-mode: kvstore":    "etcd",
	"enable-policy: never":                 "enforces no policy",
	"enable-policy: always":                "denies pods without policies",
	`policy-audit-mode: "true"`:            "only logs",
	`enable-k8s-networkpolicy: "false"`:    "ignores NetworkPolicies",
	`enable-ipv4-masquerade: "false"`:      "masquerades nothing",
	`enable-cilium-endpoint-slice: "true"`: "CiliumEndpointSlices",
	"labels: k8s:app":                      "labels of the user's choice",
	"cluster-name: east":                   "a name of its own",
}

// TestUnfitSettings: each is refused in a manifest, by its name and with the chart's value to change, and named in a
// live Cilium.
func TestUnfitSettings(t *testing.T) {
	if live := (cilium.Driver{}).Detect(present(t)).Untried; strings.Contains(live, "This one") {
		t.Errorf("a Cilium of the chart's own values has: %s", live)
	}
	asked, snapshot := request(t), present(t)
	for setting, want := range apart {
		t.Run(setting, func(t *testing.T) {
			key, text, _ := strings.Cut(setting, ": ")
			value := strings.Trim(text, `"`)
			r := asked
			r.Manifest = slices.Clone(asked.Manifest)
			for i := range r.Manifest {
				if r.Manifest[i].GetName() == "cilium-config" && r.Manifest[i].GetKind() == "ConfigMap" {
					r.Manifest[i] = *r.Manifest[i].DeepCopy()
					if err := unstructured.SetNestedField(r.Manifest[i].Object, value, "data", key); err != nil {
						t.Fatal(err)
					}
				}
			}
			_, err := cilium.Driver{}.Install(r)
			var refused *cni.Refusal
			if !errors.As(err, &refused) || !strings.Contains(refused.Message, want) ||
				!strings.Contains(refused.Message, key) || !strings.Contains(refused.Hint, "--set ") {
				t.Errorf("the answer is %v, not a refusal with %q", err, want)
			}
			former, had := config(snapshot)[key]
			config(snapshot)[key] = value
			defer func() {
				if config(snapshot)[key] = former; !had {
					delete(config(snapshot), key)
				}
			}()
			if live := (cilium.Driver{}).Detect(snapshot).Untried; !strings.Contains(live, want) {
				t.Errorf("of the live Cilium it is said: %s", live)
			}
		})
	}
}

// TestJoint: next to flannel, Cilium's agent keeps its chains behind those of the source's policy agent, and its links
// have the MTU of the nodes' links.
func TestJoint(t *testing.T) {
	r := request(t)
	r.Source.Capabilities.MTU, r.Source.Capabilities.Overhead = 1450, 50
	target, err := cilium.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range target.Objects {
		if target.Objects[i].GetName() == "cilium-config" && target.Objects[i].GetKind() == "ConfigMap" {
			data, _, _ := unstructured.NestedStringMap(target.Objects[i].Object, "data")
			for key, want := range map[string]string{"mtu": "1500", "prepend-iptables-chains": "false",
				"set-cilium-node-taints":               "false",
				"enable-stale-cilium-endpoint-cleanup": "false", "tunnel-port": "8473"} {
				if data[key] != want {
					t.Errorf("%s is %q, not %q", key, data[key], want)
				}
			}
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	edit := func(old, text string) func(*cni.Request) {
		return func(r *cni.Request) {
			before := chart(t, "v1.16.5")
			if !strings.Contains(before, old) {
				t.Fatalf("the chart makes no %q", old)
			}
			r.Manifest = cnitest.Documents(t, []byte(strings.Replace(before, old, text, 1)))
		}
	}
	for _, test := range []struct {
		name   string
		change func(*cni.Request)
		want   string
	}{
		{"no range", func(r *cni.Request) { r.PodCIDR = "10.0.0.0" }, "is not an IPv4 CIDR"},
		{"an IPv6 range", func(r *cni.Request) { r.PodCIDR = "fd00::/104" }, "is not an IPv4 CIDR"},
		{"adoption", func(r *cni.Request) { r.Takeover = &cni.Takeover{NodeBits: 24} },
			"cannot take over running pods"},
		{"definitions of a former Cilium", func(r *cni.Request) {
			r.Defined = []string{"nodes.example.org", "ciliumnodes.cilium.io"}
		}, "already has 1 CRD of Cilium (ciliumnodes.cilium.io)"},
		{"no settings", func(r *cni.Request) {
			r.Manifest = slices.DeleteFunc(r.Manifest, func(o unstructured.Unstructured) bool {
				return o.GetName() == "cilium-config"
			})
		}, "no ConfigMap cilium-config"},
		{"nothing", func(r *cni.Request) { r.Manifest = nil }, "no DaemonSet with a container cilium-agent"},
		{"would not use a range of its own", edit(`ipam: "cluster-pool"`, "ipam: kubernetes"), "ipam kubernetes"},
		{"kube-proxy", edit(`kube-proxy-replacement: "false"`, `kube-proxy-replacement: "true"`),
			"would replace kube-proxy"},
		{"chained", edit(`ipam: "cluster-pool"`, "ipam: cluster-pool\n  cni-chaining-mode: generic-veth"),
			"chained behind another network"},
		{"a DaemonSet of its chart for every node", func(r *cni.Request) {
			r.Manifest = append(r.Manifest, cnitest.Documents(t, []byte("apiVersion: apps/v1\nkind: DaemonSet\n"+
				"metadata: {name: cilium-node-init, namespace: kube-system}\n"))...)
		}, "cilium-node-init changes the container runtime"},
		{"another DaemonSet", func(r *cni.Request) {
			r.Manifest = append(r.Manifest, cnitest.Documents(t,
				[]byte("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: router, namespace: net}\n"))...)
		}, "DaemonSet net/router"},
		{"a script that takes the node", func(r *cni.Request) {
			r.Manifest = cnitest.Documents(t, []byte(chart(t, "v1.12.19")))
		}, "before 1.14 takes over a node as soon as"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t)
			test.change(&r)
			_, err := cilium.Driver{}.Install(r)
			var refused *cni.Refusal
			if !errors.As(err, &refused) || !strings.Contains(refused.Message, test.want) || refused.Hint == "" {
				t.Errorf("the answer is %v, not a refusal with %q and a hint", err, test.want)
			}
		})
	}
}

// TestIdentify: the labels of a pod's identity are those that Cilium's agent (v1.20.2) would give it.
func TestIdentify(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Spec.ServiceAccountName = "shop", "robot"
	pod.Labels = map[string]string{"app": "web", "app.kubernetes.io/name": "web", "pod-template-hash": "x",
		"controller-uid": "x", "kubernetes.io/os": "x", "batch.kubernetes.io/controller-uid": "x",
		"apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": "x", "my.beta.kubernetes.io/x": "x",
		"topology.kubernetes.io/zone": "a", "io.cilium.k8s.policy.cluster": "other",
		"io.cilium.k8s.namespace.labels.team": "forged", "k8s.io/x": "x", "batch.kubernetes.io/job-name": "report"}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090,
		Protocol: corev1.ProtocolTCP}, {ContainerPort: 1}}},
		{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "dns", ContainerPort: 53,
			Protocol: corev1.ProtocolUDP}, {Name: "fifteen-letters", ContainerPort: 65000}}}}
	want := map[string]string{"gen:io.cilium.k8s.named-ports": "dns.UDP.53_fifteen-letters.TCP.65000_http.TCP.8080",
		"gen:io.cilium.k8s.named-ports-1": "metrics.TCP.9090", "k8s:app": "web", "k8s:app.kubernetes.io/name": "web",
		"k8s:batch.kubernetes.io/job-name": "report", "k8s:io.cilium.k8s.namespace.labels.team": "red",
		"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name": "shop",
		"k8s:io.cilium.k8s.policy.cluster":                               "default",
		"k8s:io.cilium.k8s.policy.serviceaccount":                        "robot",
		"k8s:io.kubernetes.pod.namespace":                                "shop"}
	got := cilium.Driver{}.Identify(pod, map[string]string{"team": "red", "kubernetes.io/metadata.name": "shop"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the labels of the identity:\n%s", diff)
	}
}

// TestFinal: the final form is the user's manifest, but for the range and the port of the tunnels, and the operator
// restarts with it.
func TestFinal(t *testing.T) {
	r := request(t)
	target, err := cilium.Driver{}.Install(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"tunnelPort: 8473", "ipam.operator.clusterPoolIPv4PodCIDRList: [" + r.PodCIDR +
		"]"}; !slices.Equal(target.Kept, want) {
		t.Errorf("it keeps %q, not %q", target.Kept, want)
	}
	waits := slices.IndexFunc(target.Final, func(a step.Action) bool {
		return a.Op() == step.OpWait && a.Do.(step.Wait).Condition.Ref().Name == "cilium-operator"
	})
	if waits != len(target.Final)-1 {
		t.Errorf("the operator is waited for by action %d of %d", waits+1, len(target.Final))
	}
	names := []string{}
	for _, a := range target.Final[:waits] {
		names = append(names, a.Object().GetKind()+" "+a.Object().GetName())
		switch a.Object().GetKind() {
		case "ConfigMap":
			own := map[string]string{}
			for i := range r.Manifest {
				if r.Manifest[i].GetName() == "cilium-config" && r.Manifest[i].GetKind() == "ConfigMap" {
					own, _, _ = unstructured.NestedStringMap(r.Manifest[i].Object, "data")
				}
			}
			own["cluster-pool-ipv4-cidr"], own["tunnel-port"] = "10.96.0.0/16", "8473"
			data, _, _ := unstructured.NestedStringMap(a.Object().Object, "data")
			if diff := cmp.Diff(own, data); diff != "" {
				t.Errorf("the settings at the end:\n%s", diff)
			}
		case "Deployment":
			if notes, _, _ := unstructured.NestedStringMap(a.Object().Object, "spec", "template", "metadata",
				"annotations"); notes["theseus.dev/form"] != "" {
				t.Errorf("the operator's pods keep the mark of the joint form: %v", notes)
			}
		}
	}
	if want := []string{"ConfigMap cilium-config", "DaemonSet cilium", "DaemonSet cilium-envoy",
		"Deployment cilium-operator"}; !slices.Equal(names, want) {
		t.Errorf("the last form applies %s", names)
	}
	for i := range target.Objects {
		if target.Objects[i].GetKind() == "Deployment" {
			if notes, _, _ := unstructured.NestedStringMap(target.Objects[i].Object, "spec", "template", "metadata",
				"annotations"); notes["theseus.dev/form"] != "joint" {
				t.Errorf("nothing marks the operator's pods in the joint form: %v", notes)
			}
		}
	}
}

// TestSources: a source with VXLAN and a policy agent of known marks was run, and no other.
func TestSources(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cni.Installation)
		run    bool
	}{
		{"flannel with kube-router", func(i *cni.Installation) {
			i.Capabilities.Policy, i.Capabilities.PolicyMarks = cni.PolicyKubernetes, 0x30000
		}, true},
		{"without a policy agent",
			func(i *cni.Installation) { i.Capabilities.Policy, i.Capabilities.PolicyMarks = cni.PolicyNone, 0 }, false},
		{"a policy agent of unknown marks", func(i *cni.Installation) {
			i.Capabilities.Policy,
				i.Capabilities.PolicyMarks = cni.PolicyKubernetes, 0
		}, false},
		{"Calico", func(i *cni.Installation) { i.Capabilities.Policy = cni.PolicyCalico }, true},
		{"Calico with marks of its user's", func(i *cni.Installation) {
			i.Capabilities.Policy, i.Capabilities.PolicyMarks = cni.PolicyCalico, 0xff0000
		}, true},
		{"Calico with Cilium's marks", func(i *cni.Installation) {
			i.Capabilities.Policy, i.Capabilities.PolicyMarks = cni.PolicyCalico, 0xffff00
		}, false},
		{"Calico without tunnels", func(i *cni.Installation) {
			i.Capabilities.Policy, i.Capabilities.Encapsulation = cni.PolicyCalico, "none"
		}, false},
		{"Calico by its operator", func(i *cni.Installation) {
			i.Capabilities.Policy, i.Maker = cni.PolicyCalico, &cni.Maker{}
		}, false},
		{"Cilium", func(i *cni.Installation) { i.Capabilities.Policy = cni.PolicyCilium }, false},
		{"without tunnels", func(i *cni.Installation) {
			i.Capabilities.Policy, i.Capabilities.PolicyMarks, i.Capabilities.Encapsulation = cni.PolicyKubernetes,
				0x30000, "none"
		}, false},
	} {
		r := request(t)
		test.change(r.Source)
		target, err := cilium.Driver{}.Install(r)
		if err != nil {
			t.Fatal(err)
		}
		if untried := target.Installation.Untried; (untried == "") != test.run {
			t.Errorf("%s: %q", test.name, untried)
		}
		marks := target.Installation.Capabilities.Marks
		clears := slices.ContainsFunc(marks, func(m step.Mark) bool { return m.Hook == step.Forwarded })
		sends := slices.ContainsFunc(marks, func(m step.Mark) bool { return m.Hook == step.Sent })
		if policy := r.Source.Capabilities.Policy; test.run &&
			(!sends || clears != (policy == cni.PolicyKubernetes)) {
			t.Errorf("%s: the marks are %+v", test.name, marks)
		}
	}
}
