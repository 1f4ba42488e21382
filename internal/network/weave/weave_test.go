package weave_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/weave"
)

func present(t *testing.T) *cluster.Snapshot {
	return cnitest.Snapshot(t, cnitest.Fixture(t, "weave.yaml"))
}

func TestAcceptance(t *testing.T) {
	for _, other := range []string{"flannel.yaml", "calico.yaml"} {
		t.Run(other, func(t *testing.T) {
			cnitest.Run(t, cnitest.Case{
				Driver:  weave.Driver{},
				Present: present(t),
				Other:   cnitest.Snapshot(t, cnitest.Fixture(t, other)),
			})
		})
	}
}

func TestDetect(t *testing.T) {
	found := weave.Driver{}.Detect(present(t))
	if got, want := found.PodCIDRs, []string{"10.32.0.0/16"}; !slices.Equal(got, want) {
		t.Errorf("pod CIDRs are %q, not %q", got, want)
	}
	if found.Version != "2.6.5" || found.Selector != "name=weave-net" {
		t.Errorf("version %q, selector %q", found.Version, found.Selector)
	}
	caps := found.Capabilities
	if caps.Encapsulation != "fastdp" || caps.Port != 6784 || caps.MTU != 1376 || caps.Policy != cni.PolicyKubernetes {
		t.Errorf("capabilities: %+v", caps)
	}
	how := caps.Attachment
	if how == nil || !caps.Flat || how.Bridge != "weave" || !how.Asks ||
		how.Claim != "http://127.0.0.1:6784/ip/{id}/{address}/16" {
		t.Errorf("pods hang by %+v", how)
	}
	var order []string
	for _, part := range found.Parts {
		order = append(order, part.String())
	}
	want := []string{
		"DaemonSet/kube-system/weave-net", "ConfigMap/kube-system/weave-net",
		"RoleBinding/kube-system/weave-net", "Role/kube-system/weave-net",
		"ClusterRoleBinding/weave-net", "ClusterRole/weave-net", "ServiceAccount/kube-system/weave-net",
	}
	if !slices.Equal(order, want) {
		t.Errorf("parts are\n%s\nnot\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
}

// facts are what nodes with links of an MTU and a bridge of another show.
func facts(s *cluster.Snapshot, link, bridge int) {
	for i, address := range []string{"198.18.0.11/24", "198.18.0.12/24"} {
		s.Facts = append(s.Facts, cluster.NodeFacts{Node: s.Nodes[i].Name, Links: []cluster.Link{
			{Name: "eth0", MTU: link - 100*i, Addresses: []string{address}}, {Name: "weave", MTU: bridge},
		}})
	}
}

func TestDetectOddities(t *testing.T) {
	env := func(s *cluster.Snapshot, name, value string) {
		router := &s.DaemonSets[0].Spec.Template.Spec.Containers[0]
		router.Env = slices.DeleteFunc(router.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if value != "" {
			router.Env = append(router.Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
	secret := func(s *cluster.Snapshot, name string) {
		env(s, name, "")
		router := &s.DaemonSets[0].Spec.Template.Spec.Containers[0]
		router.Env = append(router.Env, corev1.EnvVar{Name: name,
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}})
	}
	mtu := func(want int) func(*cni.Installation) bool {
		return func(i *cni.Installation) bool { return i.Capabilities.MTU == want }
	}
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string // part of one; empty when there must be none
		check   func(*cni.Installation) bool
	}{
		{"default range", func(s *cluster.Snapshot) { env(s, "IPALLOC_RANGE", "") }, "",
			func(i *cni.Installation) bool { return slices.Equal(i.PodCIDRs, []string{"10.32.0.0/12"}) }},
		{"range with host bits", func(s *cluster.Snapshot) { env(s, "IPALLOC_RANGE", "10.32.1.1/16") }, "",
			func(i *cni.Installation) bool { return slices.Equal(i.PodCIDRs, []string{"10.32.0.0/16"}) }},
		{"broken range", func(s *cluster.Snapshot) { env(s, "IPALLOC_RANGE", "10.32.0.0") }, "no CIDR",
			func(i *cni.Installation) bool { return len(i.PodCIDRs) == 0 }},
		{"range from elsewhere", func(s *cluster.Snapshot) { secret(s, "IPALLOC_RANGE") },
			"IPALLOC_RANGE comes from another object", nil},
		{"sleeve", func(s *cluster.Snapshot) { env(s, "WEAVE_NO_FASTDP", "1") }, "", func(i *cni.Installation) bool {
			return i.Capabilities.Encapsulation == "sleeve" && i.Capabilities.Port == 6783 && i.Capabilities.MTU == 0
		}},
		{"sleeve as measured", func(s *cluster.Snapshot) { env(s, "WEAVE_NO_FASTDP", "1"); facts(s, 1500, 65535) }, "",
			func(i *cni.Installation) bool {
				return i.Capabilities.MTU == 1400-62 && i.Capabilities.LinkMTU == 65535
			}},
		{"sleeve with an MTU", func(s *cluster.Snapshot) {
			env(s, "WEAVE_NO_FASTDP", "1")
			env(s, "WEAVE_MTU", "1300")
			facts(s, 1500, 1300)
		}, "", func(i *cni.Installation) bool { return i.Capabilities.MTU == 1300 && i.Capabilities.LinkMTU == 0 }},
		{"own MTU", func(s *cluster.Snapshot) { env(s, "WEAVE_MTU", "8912") }, "", mtu(8912)},
		{"MTU as measured", func(s *cluster.Snapshot) { env(s, "WEAVE_MTU", "8912"); facts(s, 9001, 1376) },
			"", mtu(1376)},
		{"broken MTU", func(s *cluster.Snapshot) { env(s, "WEAVE_MTU", "large") }, "WEAVE_MTU is not a " +
			"number", mtu(1376)},
		{"password", func(s *cluster.Snapshot) { secret(s, "WEAVE_PASSWORD") }, "encrypts", nil},
		{"AWS VPC", func(s *cluster.Snapshot) { env(s, "EXTRA_ARGS", "--log-level=debug --awsvpc") }, "VPC", nil},
		{"no policy", func(s *cluster.Snapshot) {
			spec := &s.DaemonSets[0].Spec.Template.Spec
			spec.Containers = spec.Containers[:1]
		}, "", func(i *cni.Installation) bool { return i.Capabilities.Policy == cni.PolicyNone }},
		{"policy not expected", func(s *cluster.Snapshot) { env(s, "EXPECT_NPC", "0") }, "",
			func(i *cni.Installation) bool { return i.Capabilities.Policy == cni.PolicyNone }},
		{"a fork's image", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "example.test/fork/weave-kube:2.9.0@sha256:00"
		}, "", func(i *cni.Installation) bool { return i.Version == "2.9.0" }},
		{"not ready", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Status.NumberReady = 1
			s.Pods[0].Status.Conditions = nil
		}, "ready on 1 of 2 nodes (not on node-1)", nil},
		{"removed", func(s *cluster.Snapshot) { s.DaemonSets = nil }, "no DaemonSet runs Weave Net", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.Understood(t, weave.Driver{}, snapshot, test.problem, test.check)
		})
	}
}

// TestNamesOnly: Weave's own names on something else are no network.
func TestNamesOnly(t *testing.T) {
	snapshot := present(t)
	snapshot.DaemonSets[0].Spec.Template.Spec.Containers = []corev1.Container{{Name: "weave",
		Image: "example.test/weave/scope:1.13"}}
	snapshot.ConfigMaps = nil
	if found := (weave.Driver{}).Detect(snapshot); found != nil {
		t.Errorf("found: %v", found.Problems)
	}
}

// TestAttachment: where weave-npc drops what is not bridged, no pod can leave the bridge.
func TestAttachment(t *testing.T) {
	for name, test := range map[string]struct {
		spec networkingv1.NetworkPolicySpec
		npc  string
		want bool
	}{
		"ingress": {
			networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}, "1", true},
		"egress, of nothing": {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}},
			"1", false},
		"egress, as of old": {networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{}}},
			"1", false},
		"egress that nobody asks of": {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress"}},
			"0", true},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := present(t)
			snapshot.NetworkPolicies = []networkingv1.NetworkPolicy{{Spec: test.spec}}
			router := &snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
			router.Env = append(router.Env, corev1.EnvVar{Name: "EXPECT_NPC", Value: test.npc})
			caps := weave.Driver{}.Detect(snapshot).Capabilities
			if (caps.Attachment != nil) != test.want || (caps.Unattached == "") != test.want ||
				!test.want && !strings.Contains(caps.Unattached, "weave-npc drops") {
				t.Errorf("%+v, %q", caps.Attachment, caps.Unattached)
			}
		})
	}
}

// TestReadings: agents read the report of a router without the fast data path, and of no other, at the node's own
// address.
func TestReadings(t *testing.T) {
	const slow = "{name: WEAVE_NO_FASTDP, value: '1'}"
	for name, c := range map[string]struct{ env, want string }{
		"the fast data path": {"", ""},
		"in user space":      {slow, "http://127.0.0.1:6784/report"},
		"at every address": {slow + ", {name: WEAVE_HTTP_ADDR, value: '0.0.0.0:80'}",
			"http://127.0.0.1:80/report"},
		"at another address": {slow + ", {name: WEAVE_HTTP_ADDR, value: '192.0.2.1:80'}",
			"http://192.0.2.1:80/report"},
		"at what is no address": {slow + ", {name: WEAVE_HTTP_ADDR, value: '%'}", "http://%/report"},
	} {
		snapshot := present(t)
		for i := range snapshot.DaemonSets {
			containers := snapshot.DaemonSets[i].Spec.Template.Spec.Containers
			for j := range containers {
				if !strings.Contains(containers[j].Image, "weave-kube") {
					continue
				}
				containers[j].Env = slices.DeleteFunc(containers[j].Env, func(e corev1.EnvVar) bool {
					return e.Name == "WEAVE_NO_FASTDP" || e.Name == "WEAVE_HTTP_ADDR"
				})
				var more []corev1.EnvVar
				if err := yaml.Unmarshal([]byte("["+c.env+"]"), &more); err != nil {
					t.Fatal(err)
				}
				containers[j].Env = append(containers[j].Env, more...)
			}
		}
		got := ""
		for _, reading := range (weave.Driver{}).Detect(snapshot).Readings {
			got += reading.URL
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
