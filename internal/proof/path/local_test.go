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
		return strings.Contains(id, "/local-service/") || id == "node-1/host>node-2/host-port/old/tcp-new"
	}
	left, silent := Silent(paths, answers)
	want := []Silence{{ClassLocalPort, 3, 3, "node-0/host>node-1/local-node-port/old/tcp-new"},
		{ClassHostPort, 2, 3, "node-0/host>node-1/host-port/old/tcp-new"},
		{ClassLocalDNS, 3, 3, "node-0/old>local-dns"}}
	if !slices.Equal(silent, want) {
		t.Errorf("silent %+v", silent)
	}
	if len(left) != len(paths)-8 || slices.ContainsFunc(left, func(one v1alpha1.Path) bool {
		return Optional(one.Class) && !answers(one.ID)
	}) {
		t.Errorf("%d of %d paths are left", len(left), len(paths))
	}
	if says := silent[1].String(); says != "2 of 3 paths of the class host-port, which had no answer before the "+
		"change, such as node-0/host>node-1/host-port/old/tcp-new" {
		t.Error(says)
	}
}
