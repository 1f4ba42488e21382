package bridge_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bridge"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

func present(t *testing.T) *cluster.Snapshot { return cnitest.Golden(t, "bridge") }

func TestAcceptance(t *testing.T) {
	for _, other := range []string{"flannel", "calico", "weave"} {
		t.Run(other, func(t *testing.T) {
			cnitest.Run(t, cnitest.Case{Driver: bridge.Driver{}, Present: present(t), Other: cnitest.Golden(t, other)})
		})
	}
}

func TestDetect(t *testing.T) {
	found := bridge.Driver{}.Detect(present(t))
	if got, want := found.PodCIDRs, []string{"198.19.0.0/23", "198.19.2.0/24"}; !slices.Equal(got, want) {
		t.Errorf("pod CIDRs are %q, not %q", got, want)
	}
	caps := found.Capabilities
	if caps.ConfName != "10-bridge.conflist" || !slices.Equal(caps.HostLinks, []string{"cni0"}) || caps.MTU != 1500 ||
		caps.Policy != cni.PolicyKubernetes {
		t.Errorf("capabilities: %+v", caps)
	}
	if found.HasAgent() || found.PolicyAgent == nil ||
		!slices.Equal(found.Data, []string{"/var/lib/cni/networks/bridge"}) {
		t.Errorf("found %+v", found)
	}
}

// TestAttachment: pods can be taken from the bridge where its configuration did nothing for them that would be left
// behind.
func TestAttachment(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cluster.Conf)
		from   string // the folder of addresses; empty where no pod can be taken
		why    string
		keeps  bool
	}{
		{"as it is", func(*cluster.Conf) {}, "/var/lib/cni/networks/bridge", "", true},
		{"no port mappings", func(c *cluster.Conf) { c.Plugins = c.Plugins[:1] },
			"/var/lib/cni/networks/bridge", "", true},
		{"addresses elsewhere", func(c *cluster.Conf) { c.DataDir = "/run/ipam/" }, "/run/ipam/bridge", "", true},
		{"masquerade", func(c *cluster.Conf) { c.IPMasq = true }, "", "masquerades each pod", false},
		{"tuning", func(c *cluster.Conf) { c.Plugins = append(c.Plugins, "tuning") }, "",
			"chains the plugin tuning", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			for i := range snapshot.Facts {
				test.change(&snapshot.Facts[i].Confs[0])
			}
			found := bridge.Driver{}.Detect(snapshot)
			caps, data := found.Capabilities, ""
			if caps.Attachment != nil {
				data = caps.Attachment.Reservations
				if caps.Attachment.Bridge != "cni0" || !slices.Equal(caps.Attachment.Conf,
					[]string{"10-bridge.conflist"}) || !slices.Equal(found.Data, []string{data}) {
					t.Errorf("pods hang by %+v, and its files are %v", caps.Attachment, found.Data)
				}
			}
			if data != test.from || !strings.Contains(caps.Unattached, test.why) ||
				(caps.Unattached == "") != (data != "") || caps.KeepsSources != test.keeps || len(found.Problems) > 0 {
				t.Errorf("%+v of %+v", caps.Attachment, found)
			}
		})
	}
}

// TestDetectOddities: what a person must look at is a problem, and what another plugin serves is none of its business.
func TestDetectOddities(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string // part of one; empty when nothing is to be found
	}{
		{"nobody looked at nodes", func(s *cluster.Snapshot) { s.Facts = nil }, ""},
		{"an older agent looked", func(s *cluster.Snapshot) {
			for i := range s.Facts {
				s.Facts[i].Confs = nil
			}
		}, ""},
		{"kube-router's own bridge", func(s *cluster.Snapshot) {
			for i := range s.DaemonSets {
				if s.DaemonSets[i].Name == "kube-router" {
					pod := &s.DaemonSets[i].Spec.Template.Spec
					pod.Containers[0].Args = []string{"--run-router=true"}
					pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "conf", VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}})
				}
			}
		}, ""},
		{"another plugin serves", func(s *cluster.Snapshot) {
			for i := range s.Facts {
				s.Facts[i].Confs = append([]cluster.Conf{{File: "05-x.conflist", Plugins: []string{"x"}}},
					s.Facts[i].Confs...)
			}
		}, ""},
		{"a file before it that no runtime can read", func(s *cluster.Snapshot) {
			s.Facts[0].Confs = append([]cluster.Conf{{File: "05-x.conflist", Problem: "unexpected end of JSON input"}},
				s.Facts[0].Confs...)
			s.Facts[1].Confs[0].Network = "other"
		}, `with "other" on cni0`},
		{"another plugin serves one node", func(s *cluster.Snapshot) { s.Facts[1].Confs[0].Plugins[0] = "ptp" },
			"1 of 3 nodes are served by another network"},
		{"one node unseen", func(s *cluster.Snapshot) { s.Facts = s.Facts[:2] },
			"1 of 3 nodes are served by another network, or were not inspected: node-3"},
		{"podman's bridge", func(s *cluster.Snapshot) { s.Facts[0].Confs[0].Subnets = []string{"10.88.0.0/16"} },
			"gives out 10.88.0.0/16, and the API says 198.19.0.0/24"},
		{"addresses in two places", func(s *cluster.Snapshot) { s.Facts[0].Confs[0].DataDir = "/run/ipam" },
			"node node-2 has 10-bridge.conflist"},
		{"two bridges", func(s *cluster.Snapshot) { s.Facts[0].Confs[0].Bridge = "cbr0" }, "on cbr0"},
		{"a DaemonSet writes it", func(s *cluster.Snapshot) {
			s.DaemonSets = append(s.DaemonSets, cnitest.Snapshot(t, cnitest.Documents(t, []byte(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: acme-net, namespace: kube-system}
spec:
  selector: {}
  template:
    spec:
      containers: []
      volumes: [{name: conf, hostPath: {path: /etc/cni/net.d}}]
`))).DaemonSets...)
		}, "DaemonSet kube-system/acme-net writes to the folder"},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.ProblemOrAbsent(t, bridge.Driver{}, snapshot, test.problem)
		})
	}
}

// TestRanges: ranges that are halves of one become it, and nothing else is added.
func TestRanges(t *testing.T) {
	snapshot := present(t)
	ranges := []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.5.0/24",
		"10.0.6.0/24", "10.0.5.0/24"}
	node, facts := snapshot.Nodes[0], snapshot.Facts[0]
	snapshot.Nodes, snapshot.Facts = nil, nil
	for i, cidr := range ranges {
		node.Name = string(rune('a' + i))
		node.Spec.PodCIDRs = []string{cidr}
		facts.Node = node.Name
		snapshot.Nodes, snapshot.Facts = append(snapshot.Nodes, node), append(snapshot.Facts, facts)
	}
	found := bridge.Driver{}.Detect(snapshot)
	if got, want := found.PodCIDRs, []string{"10.0.0.0/22", "10.0.5.0/24", "10.0.6.0/24"}; !slices.Equal(got, want) {
		t.Errorf("%q became %q, not %q", ranges, got, want)
	}
}
