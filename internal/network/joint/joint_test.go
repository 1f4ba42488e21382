package joint_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

func nodes(workers, control int) *cluster.Snapshot {
	s := &cluster.Snapshot{}
	add := func(name string, labels map[string]string) {
		var n corev1.Node
		n.Name, n.Labels = name, labels
		s.Nodes = append(s.Nodes, n)
	}
	for i := range control {
		add(fmt.Sprintf("c%d", i+1), map[string]string{"node-role.kubernetes.io/control-plane": ""})
	}
	for i := range workers {
		add(fmt.Sprintf("n%d", workers-i), nil)
	}
	return s
}

func TestWaves(t *testing.T) {
	for _, test := range []struct {
		workers, control int
		counts           []int
		want             string
	}{
		{3, 0, nil, "n1 | n2 n3"},
		{1, 0, nil, "n1"},
		{0, 1, nil, "c1"},
		{12, 0, nil, "n1 | n2 n3 | n4 n5 n6 n7 | n8 n9 n10 n11 n12"},
		{3, 3, nil, "n1 | n2 n3 | c1 c2 c3"},
		{2, 1, []int{1, 0}, "n1 | n2 c1"},
		{4, 0, []int{2, 2}, "n1 n2 | n3 n4"},
		{2, 0, []int{5, 5}, "n1 n2"},
		{3, 0, []int{1, 1}, "error: the waves leave out 1 node, such as n3"},
		{3, 0, []int{-1}, "error: a wave cannot have -1 nodes"},
	} {
		t.Run(fmt.Sprint(test.workers, test.control, test.counts), func(t *testing.T) {
			waves, err := joint.Waves(nodes(test.workers, test.control), test.counts, "")
			var got []string
			for i, wave := range waves {
				got = append(got, strings.Join(wave.Nodes, " "))
				if want := fmt.Sprintf("wave-%d", i+1); wave.Name != want {
					t.Errorf("wave %d is called %s", i+1, wave.Name)
				}
			}
			text := strings.Join(got, " | ")
			if err != nil {
				text = "error: " + err.Error()
			}
			if text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

func network(change func(*cni.Installation)) cni.Installation {
	n := cni.Installation{CNI: "a", PodCIDRs: []string{"10.1.0.0/16"}, Capabilities: cni.Capabilities{
		Encapsulation: "vxlan", VNI: 1, Port: 8472, HostLinks: []string{"a.1", "abr0"},
		ConfName: "20-a.conf", SwitchedPerNode: true}}
	change(&n)
	return n
}

func TestClashes(t *testing.T) {
	other := func(change func(*cni.Installation)) cni.Installation {
		return network(func(n *cni.Installation) {
			n.CNI, n.PodCIDRs = "b", []string{"10.2.0.0/16"}
			n.Capabilities.VNI, n.Capabilities.HostLinks, n.Capabilities.ConfName = 2, []string{"b*"}, "10-b.conf"
			change(n)
		})
	}
	same := func(*cni.Installation) {}
	for _, test := range []struct {
		name           string
		source, target cni.Installation
		want           string
	}{
		{"fits", network(same), other(same), ""},
		{"same range", network(same), other(func(n *cni.Installation) { n.PodCIDRs = []string{"10.1.128.0/17"} }),
			"overlap"},
		{"same tunnel", network(same), other(func(n *cni.Installation) { n.Capabilities.VNI = 1 }), "vxlan"},
		{"same port, other VNI", network(same), other(func(n *cni.Installation) { n.Capabilities.VNI = 3 }), ""},
		{"same VNI without VXLAN", network(func(n *cni.Installation) { n.Capabilities.Encapsulation = "none" }),
			other(func(n *cni.Installation) { n.Capabilities.VNI = 1 }), ""},
		{"same link", network(same), other(func(n *cni.Installation) { n.Capabilities.HostLinks = []string{"abr0"} }),
			"links"},
		{"link in a pattern", network(same),
			other(func(n *cni.Installation) { n.Capabilities.HostLinks = []string{"a*"} }), "links"},
		{"no name of the configuration", network(same),
			other(func(n *cni.Installation) { n.Capabilities.ConfName = "" }), "conf"},
		{"not switched per node", network(func(n *cni.Installation) { n.Capabilities.SwitchedPerNode = false }),
			other(same), "not-switched"},
		{"a port of one's own", network(func(n *cni.Installation) { n.Capabilities.WholePort = true }),
			other(same), "vxlan"},
		{"a port that one wants alone", network(same),
			other(func(n *cni.Installation) { n.Capabilities.WholePort = true }), "vxlan"},
		{"same routing table", network(func(n *cni.Installation) { n.Capabilities.RouteTables = []int{200, 2004} }),
			other(func(n *cni.Installation) { n.Capabilities.RouteTables = []int{2004} }), "tables"},
		{"Services go with the source", network(func(n *cni.Installation) { n.Capabilities.ReplacesKubeProxy = true }),
			other(same), "kube-proxy"},
		{"Services come with the target", network(same),
			other(func(n *cni.Installation) { n.Capabilities.ReplacesKubeProxy = true }), "kube-proxy"},
		{"untried", network(func(n *cni.Installation) { n.Untried = "nobody ran it" }), other(same), "untried"},
		{"IPv6", network(func(n *cni.Installation) { n.PodCIDRs = append(n.PodCIDRs, "fd00::/48") }),
			other(same), "family"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, clash := range joint.Clashes(test.source, test.target) {
				got = append(got, clash.ID)
				if clash.Message == "" || clash.Hint == "" {
					t.Errorf("%s says nothing: %+v", clash.ID, clash)
				}
				if !slices.ContainsFunc(preflight.All(), func(c check.Check) bool { return c.ID == clash.Check }) {
					t.Errorf("%s: there is no check %q that tells of it", clash.ID, clash.Check)
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestSurvey(t *testing.T) {
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	waves, err := joint.Waves(snapshot, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	outlook := joint.Survey(snapshot, []string{"10.244.0.0/16"}, waves, nil)
	if len(outlook.Strangers) > 0 {
		t.Errorf("strangers: %q", outlook.Strangers)
	}
	if n := outlook.PerNode; len(n["node-1"]) != 2 || len(n["node-2"]) != 2 || len(n["control-1"]) != 1 {
		t.Errorf("pods to move: %v", n)
	}
	var got []string
	for _, w := range outlook.Workloads {
		got = append(got, fmt.Sprintf("%s %s/%s %s %s", w.Kind, w.Namespace, w.Name, w.Treatment, w.Budget))
	}
	want := []string{
		"DaemonSet kube-flannel/kube-flannel-ds stay ", "DaemonSet shop/log move ", "Deployment shop/web move web",
		"Job shop/report move ", "StatefulSet shop/db move ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestResidueOfRenamed: a configuration that was renamed so that it sorts before the source's goes with the target.
func TestResidueOfRenamed(t *testing.T) {
	target := &cni.Target{Conf: step.ConfArgs{Staged: "00-calico.conflist.theseus", Active: "00-calico.conflist"}}
	own := step.Residue{ConfFiles: []string{"10-calico.conflist"}}
	b := joint.New(joint.Input{Snapshot: &cluster.Snapshot{}, Source: &cni.Installation{},
		Target: target, TargetResidue: own})
	if got := strings.Join(b.TargetResidue.ConfFiles,
		" "); got != "10-calico.conflist 00-calico.conflist.theseus 00-calico.conflist" || len(own.ConfFiles) != 1 {
		t.Errorf("it leaves %s", got)
	}
}

// TestUnused: the port is said with what pods of every network that masquerades in the plain way send to neither
// network.
func TestUnused(t *testing.T) {
	flat := func(ranges []string, port *step.Untracked, masquerades bool) cni.Installation {
		in := cni.Installation{PodCIDRs: ranges, Capabilities: cni.Capabilities{Untracked: port}}
		if masquerades {
			in.Capabilities.Masquerade = &cni.Masquerade{From: ranges,
				Except: append(slices.Clone(ranges), cni.Multicast)}
		}
		return in
	}
	old, fresh, wide := []string{"198.19.0.0/20"}, []string{"198.19.32.0/20"}, []string{"198.19.0.0/16", "fd00::/64"}
	port := &step.Untracked{Port: 4789, Link: "vxlan.calico"}
	for _, test := range []struct {
		name     string
		networks []cni.Installation
		want     *step.Untracked
	}{
		{"no port", []cni.Installation{flat(old, nil, true), flat(fresh, nil, true)}, nil},
		{"nobody masquerades", []cni.Installation{flat(old, nil, false), flat(fresh, port, false)}, port},
		{"the old one alone does", []cni.Installation{flat(old, nil, true), flat(fresh, port, false)},
			&step.Untracked{Port: 4789, Link: "vxlan.calico", From: old,
				Except: []string{old[0], fresh[0], cni.Multicast}}},
		{"both", []cni.Installation{flat(old, nil, true), flat(fresh, port, true)},
			&step.Untracked{Port: 4789, Link: "vxlan.calico", From: []string{old[0], fresh[0]},
				Except: []string{old[0], fresh[0], cni.Multicast}}},
		{"one range within another, and IPv6", []cni.Installation{flat(old, nil, true), flat(wide, port, true)},
			&step.Untracked{Port: 4789, Link: "vxlan.calico", From: wide[:1],
				Except: []string{wide[0], cni.Multicast}}},
	} {
		if got := joint.Unused(test.networks...); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
