package kindnet_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/kindnet"
)

func present(t *testing.T) *cluster.Snapshot { return cnitest.Shape(t, "kindnet-nodes") }

func TestAcceptance(t *testing.T) {
	for _, other := range []string{"flannel", "calico", "weave", "bridge"} {
		t.Run(other, func(t *testing.T) {
			cnitest.Run(t, cnitest.Case{Driver: kindnet.Driver{}, Present: present(t), Other: cnitest.Golden(t, other)})
		})
	}
}

func TestDetect(t *testing.T) {
	for name, mtu := range map[string]int{"kindnet-nodes": 1500, "kindnet": 0} { // inspected, and not
		found := kindnet.Driver{}.Detect(cnitest.Shape(t, name))
		caps := found.Capabilities
		if !slices.Equal(found.PodCIDRs, []string{"10.244.0.0/16"}) || found.Version != "v20250512-df8de77b" ||
			found.Selector != "app=kindnet" || caps.MTU != mtu || caps.Policy != cni.PolicyKubernetes ||
			!caps.MasqueradesAll || caps.Attachment != nil || len(found.Problems) > 0 {
			t.Errorf("%s: found %+v", name, found)
		}
		var order []string
		for _, part := range found.Parts {
			order = append(order, part.String())
		}
		want := []string{"DaemonSet/kube-system/kindnet", "ClusterRoleBinding/kindnet", "ClusterRole/kindnet",
			"ServiceAccount/kube-system/kindnet"}
		if !slices.Equal(order, want) {
			t.Errorf("%s: parts are %q, not %q", name, order, want)
		}
		residue := kindnet.Driver{}.Residue(found)
		if !slices.Equal(residue.NFTables, []string{"inet kindnet-network-policies"}) ||
			!slices.Contains(residue.Paths, "/run/cni-ipam-state") ||
			!slices.Equal(residue.Routes, found.PodCIDRs) || len(residue.Links) > 0 {
			t.Errorf("%s: residue %+v", name, residue)
		}
	}
}

// TestPolicy: versions of kindnetd enforce NetworkPolicy, in tables of two names, or do not.
func TestPolicy(t *testing.T) {
	for tag, want := range map[string]string{
		"v20240513-cd2ac642": "", "v20240719-e7903573": "inet kube-network-policies",
		"v20241007-36f62932": "inet kube-network-policies", "v20241023-a345ebe4": "inet kindnet-network-policies",
		"v20251212-v0": "inet kindnet-network-policies", "dev": "inet kindnet-network-policies",
		"": "inet kindnet-network-policies",
	} {
		snapshot := present(t)
		image := &snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Image
		*image = strings.TrimSuffix("registry.example/kindest/kindnetd:"+tag, ":")
		found := kindnet.Driver{}.Detect(snapshot)
		if got := strings.Join(kindnet.Driver{}.Residue(found).NFTables, ""); got != want ||
			(found.Capabilities.Policy == cni.PolicyNone) != (want == "") {
			t.Errorf("%q: table %q, not %q, and policy %s", tag, got, want, found.Capabilities.Policy)
		}
	}
}

// TestDetectOddities: what a person must look at is a problem, and another network of the name is none of its business.
func TestDetectOddities(t *testing.T) {
	daemon := func(s *cluster.Snapshot) *corev1.Container { return &s.DaemonSets[0].Spec.Template.Spec.Containers[0] }
	conf := func(change func(*cluster.Conf)) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) { change(&s.Facts[1].Confs[0]) }
	}
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string // part of one; empty when nothing is to be found
	}{
		{"kOps' own, which needs no range", func(s *cluster.Snapshot) {
			daemon(s).Env, s.Facts = nil, nil
		}, ""},
		{"another plugin serves a node", conf(func(c *cluster.Conf) { c.Plugins[0] = "bridge" }),
			"10-kindnet.conflist serves new pods on node node-2, not kindnet's own"},
		{"a file of another name", conf(func(c *cluster.Conf) { c.File = "05-x.conflist" }), "05-x.conflist serves"},
		{"masquerades itself", conf(func(c *cluster.Conf) { c.IPMasq = true }), "(ipMasq)"},
		{"another range", conf(func(c *cluster.Conf) { c.Subnets = []string{"10.244.9.0/24"} }),
			"gives out 10.244.9.0/24, and the API says 10.244.2.0/24"},
		{"a node outside", func(s *cluster.Snapshot) { daemon(s).Env[0].Value = "10.244.1.0/24" },
			"node node-2 has the range 10.244.2.0/24, which is not in 10.244.1.0/24"},
		{"no list of ranges", func(s *cluster.Snapshot) { daemon(s).Env[0].Value = "10.244.0.0/16,x" },
			"is not a list of CIDRs"},
		{"a range from elsewhere", func(s *cluster.Snapshot) {
			daemon(s).Env[0] = corev1.EnvVar{Name: "POD_SUBNET", ValueFrom: &corev1.EnvVarSource{}}
		}, "valueFrom"},
		{"half removed", func(s *cluster.Snapshot) { s.DaemonSets = nil }, "but no DaemonSet runs kindnetd"},
		{"an unfinished change", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Spec.Template.Spec.NodeSelector = map[string]string{"theseus.dev/target": "true"}
		}, "one was begun here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.ProblemOrAbsent(t, kindnet.Driver{}, snapshot, test.problem)
		})
	}
}

// TestFiles: what only the nodes' files say.
func TestFiles(t *testing.T) {
	snapshot := present(t)
	first, second := &snapshot.Facts[0].Confs[0], &snapshot.Facts[1].Confs[0]
	first.MTU, first.DataDir, second.Plugins = 1400, "/var/lib/x", append(second.Plugins, "bandwidth")
	found := kindnet.Driver{}.Detect(snapshot)
	if caps := found.Capabilities; caps.MTU != 1400 || !slices.Equal(caps.Chained, []string{"bandwidth"}) ||
		!slices.Equal(found.Data, []string{"/run/cni-ipam-state/kindnet", "/var/lib/x/kindnet"}) {
		t.Errorf("found %+v", found)
	}
	paths := kindnet.Driver{}.Residue(found).Paths
	if !slices.Contains(paths, "/run/cni-ipam-state") || !slices.Contains(paths, "/var/lib/x/kindnet") {
		t.Errorf("its files are %q", paths)
	}
}
