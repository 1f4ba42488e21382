package kube

import (
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// topology has everything that does not depend on the endpoints in the cluster.
func (m Measured) topology() path.Topology {
	local := path.Local{DNS: m.LocalDNS}
	if m.HostPorts {
		local.HostPort = manifest.PortTCP + manifest.HostPortOffset
	}
	return path.Topology{Local: local,
		Old: map[string]string{}, New: map[string]string{}, Services: map[string]string{}, NodePorts: map[string]int{},
		SecondNodePorts: map[string]int{}, FullSize: m.FullSize, Denied: m.Denied, NodesOutside: m.NodesOutside,
		Intervals: path.Intervals{Fast: m.Interval, Outside: m.OutsideEvery},
		Ports: path.Ports{UDP: manifest.PortUDP, TCP: manifest.PortTCP, Denied: manifest.PortDenied,
			HostOffset: manifest.HostOffset, SecondOffset: manifest.SecondOffset},
	}
}

// Foreseen returns the paths that a set will have on nodes, before anything is installed. Their addresses are made up.
// Whether the cluster has a name server, and lets this user read the API server's address, is not known then: both are
// taken to be there, so there may be fewer paths, and never more.
func (m Measured) Foreseen(nodes []string, set step.PathSet) []v1alpha1.Path {
	const address = "192.0.2.1" // for documentation (RFC 5737)
	t := m.topology()
	t.DNS, t.Outside = address+":53", slices.Clone(m.Outside)
	if len(t.Outside) == 0 {
		t.Outside = []path.Responder{kubernetesAPI(address)}
	}
	for i := range t.Outside {
		t.Outside[i].Address = address + ":1"
	}
	for _, name := range nodes {
		t.Nodes = append(t.Nodes, path.Node{Name: name, Address: address})
	}
	if m.Local {
		t.Local.Service, t.Local.NodePort = address, 1
	}
	oldNodes, newNodes := set.Resolve(nodes, nodes)
	for _, side := range []struct {
		network string
		nodes   []string
		into    map[string]string
	}{{path.Old, oldNodes, t.Old}, {path.New, newNodes, t.New}} {
		for _, node := range side.nodes {
			side.into[node] = address
			t.Services[side.network], t.NodePorts[side.network] = address, 1
		}
	}
	return path.Build(t)
}
