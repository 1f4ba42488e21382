package flannel_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/step"
)

func present(t *testing.T) *cluster.Snapshot {
	return cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
}

var update = flag.Bool("update", false, "rewrite the golden files")

func TestAcceptance(t *testing.T) {
	cnitest.Run(t, cnitest.Case{
		Driver:  flannel.Driver{},
		Present: present(t),
		Other:   cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
		Request: request(t), Golden: "testdata/install.txt", Update: *update,
	})
}

// TestChart is of what flannel's chart makes, to come and in place.
func TestChart(t *testing.T) {
	chart := cnitest.Fixture(t, "charts/flannel-v0.28.4.yaml")
	r := request(t)
	r.Manifest = chart
	cnitest.Run(t, cnitest.Case{
		Driver:  flannel.Driver{},
		Present: cnitest.Snapshot(t, cnitest.Ready(cnitest.Fixture(t, "charts/flannel-v0.28.4.yaml"))),
		Other:   cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")), Request: r,
		Golden: "testdata/install-chart.txt", Update: *update,
	})
	parts := flannel.Driver{}.Detect(cnitest.Snapshot(t, chart)).Parts
	for i := range chart {
		if !slices.Contains(parts, step.RefOf(&chart[i])) {
			t.Errorf("%s is no part", step.RefOf(&chart[i]))
		}
	}
}

func TestDetect(t *testing.T) {
	found := flannel.Driver{}.Detect(present(t))
	if got, want := found.PodCIDRs, []string{"10.244.0.0/16"}; !slices.Equal(got, want) {
		t.Errorf("pod CIDRs are %q, not %q", got, want)
	}
	if found.Version != "v0.28.4" || found.Selector != "app=flannel" {
		t.Errorf("version %q, selector %q", found.Version, found.Selector)
	}
	caps := found.Capabilities
	if caps.VNI != 1 || caps.Port != 8472 || caps.Policy != cni.PolicyKubernetes ||
		caps.ConfName != "10-flannel.conflist" {
		t.Errorf("capabilities: %+v", caps)
	}
	if found.PolicyAgent == nil || found.PolicyAgent.Name != "kube-router" {
		t.Errorf("the policy agent is %v", found.PolicyAgent)
	}
	var order []string
	for _, part := range found.Parts {
		order = append(order, part.String())
	}
	want := []string{
		"DaemonSet/kube-system/kube-router", "DaemonSet/kube-flannel/kube-flannel-ds",
		"ConfigMap/kube-flannel/kube-flannel-cfg", "ClusterRoleBinding/flannel", "ClusterRole/flannel",
		"ServiceAccount/kube-flannel/flannel", "ClusterRoleBinding/kube-router", "ClusterRole/kube-router",
		"ServiceAccount/kube-system/kube-router", "Namespace/kube-flannel",
	}
	if !slices.Equal(order, want) {
		t.Errorf("parts are\n%s\nnot\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
}

func TestDetectOddities(t *testing.T) {
	config := func(s *cluster.Snapshot, json string) { s.ConfigMaps[0].Data["net-conf.json"] = json }
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string // part of one; empty when there must be none
		check   func(*cni.Installation) bool
	}{
		{"own VNI, port and MTU", func(s *cluster.Snapshot) {
			config(s, `{"Network":"10.1.0.0/16","Backend":{"Type":"vxlan","VNI":7,"Port":4790,"MTU":1400}}`)
		}, "", func(i *cni.Installation) bool {
			c := i.Capabilities
			return c.VNI == 7 && c.Port == 4790 && c.MTU == 1350 && slices.Contains(c.HostLinks, "flannel.7")
		}},
		{"host-gw", func(s *cluster.Snapshot) { config(s, `{"Network":"10.1.0.0/16","Backend":{"Type":"host-gw"}}`) },
			"",
			func(i *cni.Installation) bool { return i.Capabilities.Encapsulation == "none" }},
		{"mtu as measured", func(s *cluster.Snapshot) {
			s.Facts = []cluster.NodeFacts{{Node: "node-1", Links: []cluster.Link{{Name: "cni0", MTU: 1450}}},
				{Node: "node-2", Links: []cluster.Link{{Name: "cni0", MTU: 1400}}}}
		}, "", func(i *cni.Installation) bool { return i.Capabilities.MTU == 1400 }},
		{"dual stack", func(s *cluster.Snapshot) {
			config(s,
				`{"Network":"10.1.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan"}}`)
		}, "", func(i *cni.Installation) bool { return len(i.PodCIDRs) == 2 }},
		{"own bridge and name", func(s *cluster.Snapshot) {
			s.ConfigMaps[0].Data["cni-conf.json"] =
				`{"name":"pods","plugins":[{"type":"flannel","delegate":{"bridge":"br-pods"}},{"type":"portmap"}]}`
			s.Facts = []cluster.NodeFacts{{Node: "node-1",
				Links: []cluster.Link{{Name: "br-pods", MTU: 1400}, {Name: "cni0", MTU: 1500}}}}
		}, "", func(i *cni.Installation) bool {
			left := flannel.Driver{}.Residue(i)
			return i.Capabilities.MTU == 1400 &&
				slices.Equal(i.Capabilities.HostLinks, []string{"flannel.1", "br-pods"}) &&
				i.Capabilities.Attachment.Bridge == "br-pods" &&
				slices.Equal(left.Links, []string{"br-pods", "flannel.1"}) &&
				slices.Contains(left.Paths, "/var/lib/cni/networks/pods") &&
				!slices.Contains(left.Paths, "/var/lib/cni/networks/cbr0")
		}},
		{"a bridge that would mean every link", func(s *cluster.Snapshot) {
			s.ConfigMaps[0].Data["cni-conf.json"] =
				`{"name":"cbr0","plugins":[{"type":"flannel","delegate":{"bridge":"*"}}]}`
		}, `the bridge "*"`, func(i *cni.Installation) bool { return !slices.Contains(i.Capabilities.HostLinks, "*") }},
		{"a name that is another folder", func(s *cluster.Snapshot) {
			s.ConfigMaps[0].Data["cni-conf.json"] = `{"name":"../..","plugins":[{"type":"flannel"}]}`
		}, `the name "../.."`, func(i *cni.Installation) bool {
			return slices.Contains(flannel.Driver{}.Residue(i).Paths, "/var/lib/cni/networks/cbr0")
		}},
		{"broken CNI configuration", func(s *cluster.Snapshot) { s.ConfigMaps[0].Data["cni-conf.json"] = "{" },
			"cni-conf.json of ConfigMap kube-flannel/kube-flannel-cfg cannot be read", nil},
		{"backend that is not understood", func(s *cluster.Snapshot) {
			config(s, `{"Network":"10.1.0.0/16","Backend":{"Type":"udp"}}`)
		}, `backend "udp"`, func(i *cni.Installation) bool {
			return strings.Contains(i.Instead, "kubectl -n kube-flannel rollout restart "+
				"ds/kube-flannel-ds && ") && !strings.Contains(i.Instead, "encrypt")
		}},
		{"backend that encrypts", func(s *cluster.Snapshot) {
			config(s, `{"Network":"10.1.0.0/16","Backend":{"Type":"wireguard"}}`)
		}, `backend "wireguard"`, func(i *cni.Installation) bool {
			return strings.Contains(i.Instead, "VXLAN does not encrypt")
		}},
		{"chained plugins", func(s *cluster.Snapshot) {
			s.ConfigMaps[0].Data["cni-conf.json"] =
				`{"plugins":[{"type":"flannel"},{"type":"bandwidth"},{"type":"portmap"},{"type":"tuning"}]}`
		}, "", func(i *cni.Installation) bool {
			return slices.Equal(i.Capabilities.Chained, []string{"bandwidth", "tuning"}) &&
				strings.Contains(i.Capabilities.Unattached, "bandwidth and tuning")
		}},
		{"broken configuration", func(s *cluster.Snapshot) { config(s, `{`) }, "cannot be read", nil},
		{"no network", func(s *cluster.Snapshot) { config(s, `{}`) }, "names no network", nil},
		{"no configuration", func(s *cluster.Snapshot) { s.ConfigMaps = nil }, "does not exist", nil},
		{"not ready", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Status.NumberReady = 2
			s.Pods[0].Status.Conditions = nil
		}, "ready on 2 of 3 nodes (not on node-1)", nil},
		{"agent removed", func(s *cluster.Snapshot) { s.DaemonSets = nil }, "no DaemonSet runs flannel", nil},
		{"policies in the same pod", func(s *cluster.Snapshot) {
			spec := &s.DaemonSets[0].Spec.Template.Spec
			spec.Containers = append(spec.Containers, spec.Containers[0])
			spec.Containers[1].Image = "registry.k8s.io/networking/kube-network-policies:v1.0.0"
		}, "kube-network-policies and flannel", nil},
		{"k3s", func(s *cluster.Snapshot) {
			s.DaemonSets, s.ConfigMaps = nil, nil
			s.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.34.1+k3s1"
		}, "k3s", nil},
		{"kube-router that routes is no policy agent", func(s *cluster.Snapshot) {
			s.DaemonSets[1].Spec.Template.Spec.Containers[0].Args = []string{"--run-firewall=true"}
		}, "", func(i *cni.Installation) bool {
			return i.PolicyAgent == nil && i.Capabilities.Policy == cni.PolicyNone
		}},
		{"namespace shared with others", func(s *cluster.Snapshot) {
			s.Deployments = append(s.Deployments, appsv1.Deployment{})
			s.Deployments[0].Name, s.Deployments[0].Namespace = "mine", "kube-flannel"
		}, "", func(i *cni.Installation) bool {
			return !slices.ContainsFunc(i.Parts, func(r step.Ref) bool { return r.Kind == "Namespace" })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.Understood(t, flannel.Driver{}, snapshot, test.problem, test.check)
		})
	}
}

// TestStaleAnnotations: annotations outlive flannel, and alone are no network.
func TestStaleAnnotations(t *testing.T) {
	snapshot := present(t)
	snapshot.DaemonSets, snapshot.ConfigMaps = nil, nil
	if found := (flannel.Driver{}).Detect(snapshot); found != nil {
		t.Errorf("found: %v", found.Problems)
	}
	for i := range snapshot.Nodes {
		snapshot.Nodes[i].Status.NodeInfo.KubeletVersion = "v1.34.1+k3s1"
	}
	if found := (flannel.Driver{}).Detect(snapshot); found == nil || found.Title() != "flannel inside k3s" {
		t.Errorf("%+v", found)
	}
	for _, args := range []string{`["server","--flannel-backend=none"]`, `["server","--flannel-backend","none"]`} {
		snapshot.Nodes[1].Annotations["k3s.io/node-args"] = args
		if found := (flannel.Driver{}).Detect(snapshot); found != nil {
			t.Errorf("%s, and found: %s", args, found.Untried)
		}
	}
	delete(snapshot.Nodes[1].Annotations, "k3s.io/node-args")
	for _, node := range snapshot.Nodes {
		snapshot.Facts = append(snapshot.Facts, cluster.NodeFacts{Node: node.Name,
			Confs: []cluster.Conf{{File: "10-calico.conflist", Plugins: []string{"calico"}}}})
	}
	if found := (flannel.Driver{}).Detect(snapshot); found != nil {
		t.Errorf("another network's file serves all nodes, and found: %s", found.Untried)
	}
}

// FuzzDetect holds that no net-conf.json, however broken, makes the driver panic or pass over it in silence.
func FuzzDetect(f *testing.F) {
	f.Add(`{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":4096,"Port":4789}}`)
	f.Add(`{"Network":"10.244.0.0/99","EnableIPv6":true,"IPv6Network":"fd00::/64","Backend":{"Type":"host-gw"}}`)
	f.Add(`{"Network":`)
	f.Fuzz(func(t *testing.T, text string) {
		snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
		for i := range snapshot.ConfigMaps {
			if snapshot.ConfigMaps[i].Data["net-conf.json"] != "" {
				snapshot.ConfigMaps[i].Data["net-conf.json"] = text
			}
		}
		found := flannel.Driver{}.Detect(snapshot)
		if found == nil || len(found.PodCIDRs) == 0 && len(found.Problems) == 0 {
			t.Errorf("%q: no network, and nothing said about it: %+v", text, found)
		}
	})
}
