package path

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// guarded is what a guard of n nodes measures.
func guarded(n int) Topology {
	topology := whole(n)
	topology.New, topology.Services = nil, map[string]string{Old: "198.18.96.1"}
	topology.NodePorts = map[string]int{Old: 30001}
	topology.Local = Local{Service: "198.18.96.2", NodePort: 30003, HostPort: 7202, DNS: "169.254.20.10:53"}
	return topology
}

// TestLocal: every node asks what answers on it alone, and the ports of another node; every pod is asked at the ports
// of its node. Each has the second responder of its target next to it.
func TestLocal(t *testing.T) {
	topology := guarded(3)
	topology.Ports.SecondOffset, topology.Local.SecondNodePort = 2, 30013
	want := map[string]string{ // source, target and second responder
		"node-0/old>node-0/local-service/old/tcp-new":    "198.18.96.2:7002 198.18.96.2:7004",
		"node-0/host>node-0/local-service/old/tcp-new":   "198.18.96.2:7002 198.18.96.2:7004",
		"node-0/old>local-dns":                           "169.254.20.10:53 ",
		"node-0/host>node-1/local-node-port/old/tcp-new": "198.18.0.2:30003 198.18.0.2:30013",
		"node-0/host>node-1/host-port/old/tcp-new":       "198.18.0.2:7202 198.18.0.2:7204",
	}
	found := map[string]string{}
	asked := map[string]int{}
	for _, one := range Build(topology) {
		if !Optional(one.Class) {
			continue
		}
		asked[one.Class+" "+one.Target.Node]++
		if one.Source.Node == "node-0" {
			found[one.ID] = one.Target.Address + " " + one.Second
		}
		if one.Class == ClassLocalDNS && one.Query != topology.Query || one.IntervalMillis != 100 || one.Denied {
			t.Errorf("%+v", one)
		}
	}
	for id, ends := range want {
		if found[id] != ends {
			t.Errorf("%s leads to %q, want %q", id, found[id], ends)
		}
	}
	if len(found) != len(want) {
		t.Errorf("node-0 has %v", found)
	}
	for _, node := range topology.Nodes {
		for class, n := range map[string]int{ClassLocalService: 2, ClassLocalPort: 1, ClassHostPort: 1} {
			if asked[class+" "+node.Name] != n {
				t.Errorf("%s is asked on %d paths of %s", node.Name, asked[class+" "+node.Name], class)
			}
		}
	}
	topology.Old = map[string]string{"node-0": "198.19.0.1"} // the others have no probe pod that could answer
	for _, one := range Build(topology) {
		if Optional(one.Class) && (one.Target.Node != "" && one.Target.Node != "node-0" ||
			one.Target.Node == "" && one.Source.Node != "node-0") {
			t.Errorf("%s: no probe pod is there", one.ID)
		}
	}
}

// TestSilent: only optional paths may be left out, and each class says how many.
func TestSilent(t *testing.T) {
	paths := Build(guarded(3))
	answers := func(id string) bool {
		return strings.Contains(id, "/local-service/") || id == "node-1/host>node-2/host-port/old/tcp-new" ||
			!strings.Contains(id, "local-") && !strings.Contains(id, "host-port")
	}
	left, silent := Silent(paths, answers)
	want := []Silence{silence(ClassLocalPort, 3, 3, "node-0/host>node-1/local-node-port/old/tcp-new",
		"TCP port 30003 of node-1, node-2, node-0"),
		silence(ClassHostPort, 2, 3, "node-0/host>node-1/host-port/old/tcp-new", "TCP port 7202 of node-1, node-0"),
		silence(ClassLocalDNS, 3, 3, "node-0/old>local-dns", "")}
	if !slices.Equal(silent, want) {
		t.Errorf("silent %+v", silent)
	}
	if len(left) != len(paths)-8 || slices.ContainsFunc(left, func(one v1alpha1.Path) bool {
		return Optional(one.Class) && !answers(one.ID)
	}) {
		t.Errorf("%d of %d paths are left", len(left), len(paths))
	}
	if says := silent[1].String(); says != "2 of 3 paths of the class host-port, which had no answer before the "+
		"change, such as node-0/host>node-1/host-port/old/tcp-new; probably the node's firewall drops TCP port 7202 "+
		"of node-1, node-0: allow it from nodes and pods, or these paths are not measured" {
		t.Error(says)
	}
}

func silence(class string, paths, of int, example, shut string) Silence {
	return Silence{Class: class, Paths: paths, Of: of, Example: example, Shut: shut}
}

// TestSilentFirewall: the paths to a port of a node may be left out if nothing answers there from other nodes. One that
// answers on a path is not shut, so another path to it is broken; and so is a path that leads to a pod.
func TestSilentFirewall(t *testing.T) {
	topology := guarded(3)
	topology.NodesOutside = map[string]bool{Old: true}
	paths := Build(topology)
	classes := map[string]int{}
	for _, one := range paths {
		classes[one.Class]++
	}
	for name, test := range map[string]struct {
		silent []string // paths that have this in their ids
		left   string   // one that must go on to be waited for; "" if none
		want   []Silence
	}{
		"nothing": {nil, "", nil},
		"one node's port, from everywhere": {[]string{"/old>node-1/host/udp", "/old>outside/node-1/udp"}, "",
			[]Silence{silence(ClassPodHost, 2, classes[ClassPodHost], "node-0/old>node-1/host/udp",
				"UDP port 7101 of node-1"), silence(ClassOutside, 1, classes[ClassOutside],
				"node-0/old>outside/node-1/udp-new", "UDP port 7101 of node-1")}},
		"one node's port, from other nodes": {[]string{"node-0/old>node-1/host/udp", "/old>outside/node-1/udp"}, "",
			[]Silence{silence(ClassPodHost, 1, classes[ClassPodHost], "node-0/old>node-1/host/udp",
				"UDP port 7101 of node-1"), silence(ClassOutside, 1, classes[ClassOutside],
				"node-0/old>outside/node-1/udp-new", "UDP port 7101 of node-1")}},
		"a port that answers to its own pods' node alone": {[]string{"node-1/old>node-1/host/udp"},
			"node-1/old>node-1/host/udp", nil},
		"a port that answers as the outside": {[]string{"node-0/old>node-1/host/udp"},
			"node-0/old>node-1/host/udp", nil},
		"every node port": {[]string{"/node-port/"}, "", []Silence{silence(ClassNodePort, 3, 3,
			"node-0/host>node-1/node-port/old/tcp-new", "TCP port 30001 of node-1, node-2, node-0")}},
		"a pod":     {[]string{"node-0/old>node-1/old/udp"}, "node-0/old>node-1/old/udp", nil},
		"a Service": {[]string{">service/"}, "node-0/old>service/old/udp", nil},
		"the node":  {[]string{"node-0/host>node-1/old/udp"}, "node-0/host>node-1/old/udp", nil},
	} {
		t.Run(name, func(t *testing.T) {
			lost := 0
			for _, one := range test.want {
				lost += one.Paths
			}
			left, silent := Silent(paths, func(id string) bool {
				return !slices.ContainsFunc(test.silent, func(part string) bool { return strings.Contains(id, part) })
			})
			if !slices.Equal(silent, test.want) || len(left) != len(paths)-lost {
				t.Errorf("%d of %d left, %+v", len(left), len(paths), silent)
			}
			waited := func(one v1alpha1.Path) bool { return one.ID == test.left }
			if test.left != "" && !slices.ContainsFunc(left, waited) {
				t.Errorf("%s is not waited for", test.left)
			}
			for _, one := range silent {
				if one.Uncovered() != (name == "every node port") {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}
