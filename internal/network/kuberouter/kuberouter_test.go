package kuberouter_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/kuberouter"
)

func present(t *testing.T) *cluster.Snapshot { return cnitest.Shape(t, "kube-router-nodes") }

func TestAcceptance(t *testing.T) {
	for _, other := range []string{"flannel", "calico", "weave", "bridge"} {
		t.Run(other, func(t *testing.T) {
			cnitest.Run(t, cnitest.Case{Driver: kuberouter.Driver{}, Present: present(t),
				Other: cnitest.Golden(t, other)})
		})
	}
}

func TestDetect(t *testing.T) {
	for name, mtu := range map[string]int{"kube-router-nodes": 1500, "kube-router": 0} { // inspected, and not
		found := kuberouter.Driver{}.Detect(cnitest.Shape(t, name))
		caps := found.Capabilities
		if !slices.Equal(found.PodCIDRs, []string{"10.244.1.0/24", "10.244.2.0/24"}) || found.Version != "v1.5.1" ||
			found.Selector != "k8s-app=kube-router,tier=node" || caps.MTU != mtu ||
			caps.Policy != cni.PolicyKubernetes ||
			caps.PolicyMarks == 0 || caps.KeepsSources || caps.ReplacesKubeProxy || caps.Encapsulation != "none" ||
			caps.Attachment != nil || len(found.Problems) > 0 || found.Untried != "" ||
			caps.ConfName != "10-kuberouter.conflist" {
			t.Errorf("%s: found %+v", name, found)
		}
		if except := caps.Masquerade.Except; !slices.Contains(except, "198.18.0.11/32") ||
			!slices.Contains(except, "10.244.2.0/24") {
			t.Errorf("%s: all but %q is masqueraded", name, except)
		}
		var order []string
		for _, part := range found.Parts {
			order = append(order, part.String())
		}
		want := []string{"DaemonSet/kube-system/kube-router", "ConfigMap/kube-system/kube-router-cfg",
			"ClusterRoleBinding/kube-router", "ClusterRole/kube-router", "ServiceAccount/kube-system/kube-router"}
		if !slices.Equal(order, want) {
			t.Errorf("%s: parts are %q, not %q", name, order, want)
		}
		residue := kuberouter.Driver{}.Residue(found)
		if !slices.Contains(residue.Links, "kube-bridge") || !slices.Contains(residue.Rules, "77 10.244.2.0/24") ||
			!slices.Contains(residue.IPSets, "kube-router-*") || !slices.Contains(residue.Chains, "KUBE-POD-FW-*") ||
			!slices.Contains(residue.Paths, "/var/lib/cni/networks/mynet") ||
			!slices.Contains(residue.RuleLinks, "kube-bridge") ||
			!slices.Contains(residue.RuleSets, "kube-router-pod-subnets") || len(residue.RuleComments) != 1 ||
			!slices.Equal(residue.Routes, found.PodCIDRs) {
			t.Errorf("%s: residue %+v", name, residue)
		}
	}
}

// TestFirewall: a kube-router that only enforces policy is another network's.
func TestFirewall(t *testing.T) {
	snapshot := cnitest.Shape(t, "kube-router") // with its ConfigMap, as in upstream's own manifest
	snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Args = []string{"--run-router=false",
		"--run-service-proxy=false"}
	if found := (kuberouter.Driver{}).Detect(snapshot); found != nil {
		t.Errorf("found %+v", found)
	}
}

// TestUnfit: what kube-router does besides is named, with a way.
func TestUnfit(t *testing.T) {
	args := func(more ...string) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) {
			container := &s.DaemonSets[0].Spec.Template.Spec.Containers[0]
			container.Args = append([]string{"--run-router=true", "--run-service-proxy=false"}, more...)
		}
	}
	for _, test := range []struct {
		name         string
		change       func(*cluster.Snapshot)
		why, instead string
	}{
		{"as it should be", args(), "", ""},
		{"the proxy by default", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Spec.Template.Spec.Containers[0].Args = []string{"--run-router"}
		}, "serves Services in the place of kube-proxy",
			"--run-service-proxy=false in DaemonSet kube-system/kube-router"},
		{"the proxy", args("--run-service-proxy=true"), "serves Services", "install kube-proxy"},
		{"the proxy, said last", args("--run-service-proxy", "true"), "serves Services", "install kube-proxy"},
		{"no CNI", args("--enable-cni=false"), "another network gives pods their addresses", "mirror.md"},
		{"k0s", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Labels["k0s.k0sproject.io/stack"] = "kuberouter"
		}, "k0s manages kube-router (label k0s.k0sproject.io/stack of DaemonSet kube-system/kube-router)", "mirror.md"},
		{"peers", args("--peer-router-ips=198.18.0.1"), "--peer-router-ips=198.18.0.1", "remove the peers"},
		{"peers of a node", func(s *cluster.Snapshot) {
			s.Nodes[1].Annotations = map[string]string{"kube-router.io/peer.ips": "198.18.0.1"}
		}, "the annotation kube-router.io/peer.ips of node node-2", "remove the peers"},
		{"a range of its own", func(s *cluster.Snapshot) {
			s.Nodes[1].Annotations = map[string]string{"kube-router.io/pod-cidr": "10.9.0.0/24"}
		}, "node node-2 uses the range 10.9.0.0/24 from the annotation kube-router.io/pod-cidr, but spec.podCIDRs " +
			"has 10.244.2.0/24", "mirror.md"},
		{"the same range", func(s *cluster.Snapshot) {
			s.Nodes[1].Annotations = map[string]string{"kube-router.io/pod-cidr": "10.244.2.0/24"}
		}, "", ""},
		{"long names", func(s *cluster.Snapshot) {
			args("--overlay-type=full")(s)
			s.Nodes[0].Status.Addresses[0].Address = "192.168.100.100"
		}, "its tunnel to node node-1 is named tun192168100100, without a hyphen", "upgrade kube-router to v2"},
		{"long names, no overlay", func(s *cluster.Snapshot) {
			args("--overlay-type=full", "--enable-overlay=false")(s)
			s.Nodes[0].Status.Addresses[0].Address = "192.168.100.100"
		}, "", ""},
		{"long addresses, v2", func(s *cluster.Snapshot) {
			args("--overlay-type=full")(s)
			s.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "docker.io/cloudnativelabs/kube-router:v2.5.0"
			s.Nodes[0].Status.Addresses[0].Address = "192.168.100.100"
		}, "", ""},
		{"long names across subnets", func(s *cluster.Snapshot) {
			s.Facts[1].Links = append(s.Facts[1].Links, cluster.Link{Name: "tun192168100100", Type: "ipip"})
		}, "its tunnel on node node-2 is named tun192168100100", "upgrade kube-router to v2"},
		{"a VPN's", func(s *cluster.Snapshot) {
			s.Facts[1].Links = append(s.Facts[1].Links, cluster.Link{Name: "tun192168100100", Type: "tuntap"})
		}, "", ""},
		{"the proxy, two words", args("--run-service-proxy", "false"), "serves Services", "install kube-proxy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			found := kuberouter.Driver{}.Detect(snapshot)
			if !strings.Contains(found.Untried, test.why) || !strings.Contains(found.Instead, test.instead) ||
				(found.Untried == "") != (test.why == "") || (found.Instead == "") != (test.instead == "") {
				t.Errorf("%q, instead %q", found.Untried, found.Instead)
			}
		})
	}
}

// TestTunnels: nodes reach each other through tunnels if all do, or if there are some.
func TestTunnels(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		link   string
		kind   string
		want   string
		mtu    int
		egress bool
	}{
		{"none there", nil, "", "", "none", 1500, true},
		{"another's", nil, "tun-corp", "tuntap", "none", 1500, true},
		{"one there", nil, "tun-1234", "ipip", "ipip", 1480, true},
		{"one left, and off", []string{"--enable-overlay=false"}, "tun-1234", "ipip", "none", 1500, true},
		{"all", []string{"--overlay-type=full", "--enable-pod-egress=false"}, "", "", "ipip", 1480, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			container := &snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
			container.Args = append(container.Args, test.args...)
			link := cluster.Link{Name: test.link, Type: test.kind, MTU: 1480}
			snapshot.Facts[1].Links = append(snapshot.Facts[1].Links, link)
			caps := kuberouter.Driver{}.Detect(snapshot).Capabilities
			if caps.Encapsulation != test.want || caps.MTU != test.mtu || (caps.Masquerade != nil) != test.egress ||
				caps.KeepsSources == test.egress {
				t.Errorf("%+v", caps)
			}
		})
	}
}

// TestDetectOddities: what a person must look at is a problem.
func TestDetectOddities(t *testing.T) {
	conf := func(change func(*cluster.Conf)) func(*cluster.Snapshot) {
		return func(s *cluster.Snapshot) { change(&s.Facts[1].Confs[0]) }
	}
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string
	}{
		{"another plugin serves a node", conf(func(c *cluster.Conf) { c.Plugins[0] = "ptp" }),
			"10-kuberouter.conflist serves new pods on node node-2, not kube-router's own"},
		{"a file of another name", conf(func(c *cluster.Conf) { c.File = "05-x.conflist" }), "05-x.conflist serves"},
		{"masquerades itself", conf(func(c *cluster.Conf) { c.IPMasq = true }), "(ipMasq)"},
		{"another range", conf(func(c *cluster.Conf) { c.Subnets = []string{"10.244.9.0/24"} }),
			"gives out 10.244.9.0/24, and the API says 10.244.2.0/24"},
		{"no range", conf(func(c *cluster.Conf) { c.Subnets = nil }), "gives out nothing"},
		{"a node without", func(s *cluster.Snapshot) {
			s.Nodes[1].Spec = corev1.NodeSpec{}
		}, "node node-2 has no range of pods"},
		{"half removed", func(s *cluster.Snapshot) { s.DaemonSets, s.ConfigMaps = nil, nil },
			"10-kuberouter.conflist serves new pods on node node-2, but no DaemonSet"},
		{"half removed, not inspected", func(s *cluster.Snapshot) { s.DaemonSets, s.Facts = nil, nil },
			"ConfigMap kube-system/kube-router-cfg exists, but no DaemonSet"},
		{"an unfinished change", func(s *cluster.Snapshot) {
			s.DaemonSets[0].Spec.Template.Spec.NodeSelector = map[string]string{"theseus.dev/target": "true"}
		}, "one was begun here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			found := kuberouter.Driver{}.Detect(snapshot)
			if found == nil || !strings.Contains(strings.Join(found.Problems, "\n"), test.problem) {
				t.Errorf("found %+v, and no problem %q", found, test.problem)
			}
		})
	}
}

// TestFiles: what only the nodes' files say.
func TestFiles(t *testing.T) {
	snapshot := present(t)
	first, second := &snapshot.Facts[0].Confs[0], &snapshot.Facts[1].Confs[0]
	first.MTU, first.DataDir, second.Plugins = 1400, "/var/lib/x", append(second.Plugins, "bandwidth")
	found := kuberouter.Driver{}.Detect(snapshot)
	if caps := found.Capabilities; caps.MTU != 1400 || !slices.Equal(caps.Chained, []string{"bandwidth"}) ||
		!slices.Equal(found.Data, []string{"/var/lib/cni/networks/mynet", "/var/lib/x/mynet"}) {
		t.Errorf("found %+v", found)
	}
}
