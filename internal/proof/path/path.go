package path

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// The networks of a path's ends.
const (
	Old  = "old"
	New  = "new"
	Host = "host"
)

// The classes that paths are grouped in.
const (
	ClassPodPod      = "pod-pod"
	ClassSameNode    = "same-node"
	ClassFullSize    = "full-size"
	ClassHostPod     = "host-pod"
	ClassPodHost     = "pod-host"
	ClassPodService  = "pod-service"
	ClassHostService = "host-service"
	ClassDNS         = "dns"
	ClassNodePort    = "node-port"
	ClassDenied      = "denied"
	ClassOutside     = "outside"
	// Guards alone measure these.
	ClassLocalService = "local-service"
	ClassLocalPort    = "local-node-port"
	ClassHostPort     = "host-port"
	ClassLocalDNS     = "local-dns"
)

// Classes are all of them.
func Classes() []string {
	return []string{ClassPodPod, ClassSameNode, ClassFullSize, ClassHostPod, ClassPodHost, ClassPodService,
		ClassHostService, ClassDNS, ClassNodePort, ClassDenied, ClassOutside, ClassLocalService, ClassLocalPort,
		ClassHostPort, ClassLocalDNS}
}

// Denies reports, from a path's id alone, whether policy denies it: the id then ends in the class.
func Denies(id string) bool { return strings.HasSuffix(id, "/"+ClassDenied) }

// Origin is where a path starts, by its id alone: the node, and the network of the source there. Both are empty if the
// id is not one that Build makes.
func Origin(id string) (node, network string) {
	source, _, is := strings.Cut(id, ">")
	node, network, whole := strings.Cut(source, "/")
	if !is || !whole {
		return "", ""
	}
	return node, network
}

// defaultSize is the payload of probes that are not full-size, in bytes.
const defaultSize = 64

// Node is a node: its name and the address that its host network answers on.
type Node struct {
	Name    string
	Address string
}

// Ports are where the servers of probe pods listen; hosts listen HostOffset above, and second responders SecondOffset
// above either. A SecondOffset of 0 means that there are none.
type Ports struct {
	UDP, TCP, Denied, HostOffset, SecondOffset int
}

// Intervals are the times between two sends; zero values mean 10, 50, 100 and 500 ms.
type Intervals struct {
	Fast, Medium, Slow time.Duration
	// Outside is the interval of paths that leave the cluster. Fast does not scale it, as others' servers answer there.
	Outside time.Duration
}

// Topology lists everything that can be measured.
type Topology struct {
	// Nodes are the nodes whose agent runs.
	Nodes []Node
	// Old and New are the addresses of the probe pods by node; a node may be in one, both or none.
	Old, New map[string]string
	// Services are the cluster addresses of the Services in front of the probe pods, by network.
	Services map[string]string
	// NodePorts are their TCP node ports, by network, and SecondNodePorts those that lead to second responders.
	NodePorts, SecondNodePorts map[string]int
	// DNS is the cluster's name server as host:port, Query the name that is looked up there.
	DNS   string
	Query string
	// FullSize is the payload in bytes that fills the MTU of the pods (MTU-28 for IPv4); 0 measures none.
	FullSize int
	// Leaving are the networks some of whose probe pods are about to be removed: no path leads through their Service or
	// node port, which may lead to any of them.
	Leaving map[string]bool
	// Denied are the networks on which policy blocks the denied port of the probe pods.
	Denied map[string]bool
	// Outside are the responders outside of the cluster.
	Outside []Responder
	// NodesOutside are the networks for which another node's address is outside: traffic of their pods to it
	// is masqueraded if the network masquerades.
	NodesOutside map[string]bool
	// Local is what guards measure in addition.
	Local Local
	Ports Ports
	// Intervals may be left out.
	Intervals Intervals
}

// Build makes the paths of a topology, sorted by ring and class. Equal topologies make equal paths,
// in whatever order the nodes are given.
func Build(topology Topology) []v1alpha1.Path {
	b := builder{Topology: topology}
	b.Intervals = b.Intervals.withDefaults()
	for _, e := range rings(topology.Nodes) {
		b.mesh(e)
		if e.ring == 0 {
			b.neighbour(e)
		}
	}
	for _, node := range sorted(topology.Nodes) {
		b.local(node)
		b.services(node)
		b.outside(node)
		b.localServices(node)
	}
	return b.paths
}

func (i Intervals) withDefaults() Intervals {
	orElse := func(d *time.Duration, other time.Duration) {
		if *d <= 0 {
			*d = other
		}
	}
	orElse(&i.Fast, 10*time.Millisecond)
	orElse(&i.Medium, 5*i.Fast)
	orElse(&i.Slow, 10*i.Fast)
	orElse(&i.Outside, time.Second/DefaultOutsideRate)
	return i
}

// attempt is the time between two attempts to connect that a policy denies. Each stays open until its timeout, so there
// are few. But a gate waits for one of each path since it began: with a small budget, nothing else would take so long.
func (i Intervals) attempt() time.Duration { return min(10*i.Slow, max(time.Second, i.Slow)) }

// builder gathers paths.
type builder struct {
	Topology
	paths []v1alpha1.Path
}

// pod is the address of the probe pod of a node on a network; empty if there is none.
func (b *builder) pod(node, network string) string {
	if network == Old {
		return b.Old[node]
	}
	return b.New[node]
}

// pairs calls f for each pair of networks on which both nodes have a probe pod.
func (b *builder) pairs(from, to Node, f func(source, target v1alpha1.Endpoint)) {
	for _, source := range []string{Old, New} {
		for _, target := range []string{Old, New} {
			address := b.pod(to.Name, target)
			if b.pod(from.Name, source) == "" || address == "" {
				continue
			}
			f(v1alpha1.Endpoint{Node: from.Name, Network: source},
				v1alpha1.Endpoint{Node: to.Name, Network: target, Address: address})
		}
	}
}

// mesh makes the paths from pods of one node to pods of another.
func (b *builder) mesh(e edge) {
	interval := b.Intervals.Medium
	if e.ring == 0 {
		interval = b.Intervals.Fast
	}
	b.pairs(e.from, e.to, func(source, target v1alpha1.Endpoint) {
		b.add(ClassPodPod, v1alpha1.UDP, source, at(target, b.Ports.UDP), interval)
	})
}

// neighbour makes the other paths of the first ring.
func (b *builder) neighbour(e edge) {
	b.pairs(e.from, e.to, func(source, target v1alpha1.Endpoint) {
		b.add(ClassPodPod, v1alpha1.TCP, source, at(target, b.Ports.TCP), b.Intervals.Medium)
		if b.FullSize > 0 {
			b.add(ClassFullSize, v1alpha1.UDP, source, at(target, b.Ports.UDP), b.Intervals.Slow)
		}
		if b.Denied[target.Network] {
			b.add(ClassDenied, v1alpha1.UDP, source, at(target, b.Ports.Denied), b.Intervals.Slow)
			b.add(ClassDenied, v1alpha1.TCPNew, source, at(target, b.Ports.Denied), b.Intervals.attempt())
		}
	})
	b.hosts(e.from, e.to)
	b.nodeOutside(e.from, e.to)
	b.localPorts(e.from, e.to)
	for _, network := range []string{Old, New} {
		if port := b.NodePorts[network]; port > 0 && !b.Leaving[network] {
			target := v1alpha1.Endpoint{Node: e.to.Name, Network: network, Address: e.to.Address}
			b.add(ClassNodePort, v1alpha1.TCPNew, v1alpha1.Endpoint{Node: e.from.Name, Network: Host},
				at(target, port), b.Intervals.Slow)
		}
	}
}

// local makes the paths within one node.
func (b *builder) local(node Node) {
	b.pairs(node, node, func(source, target v1alpha1.Endpoint) {
		if source.Network != target.Network {
			b.add(ClassSameNode, v1alpha1.UDP, source, at(target, b.Ports.UDP), b.Intervals.Medium)
		}
	})
	b.hosts(node, node)
}

// hosts makes the paths from the host of one node to the pods of another, and from its pods to the other's host.
func (b *builder) hosts(from, to Node) {
	for _, network := range []string{Old, New} {
		if address := b.pod(to.Name, network); address != "" {
			target := v1alpha1.Endpoint{Node: to.Name, Network: network, Address: address}
			b.add(ClassHostPod, v1alpha1.UDP, v1alpha1.Endpoint{Node: from.Name, Network: Host},
				at(target, b.Ports.UDP), b.Intervals.Medium)
		}
		if b.pod(from.Name, network) != "" {
			target := v1alpha1.Endpoint{Node: to.Name, Network: Host, Address: to.Address}
			b.add(ClassPodHost, v1alpha1.UDP, v1alpha1.Endpoint{Node: from.Name, Network: network},
				at(target, b.Ports.UDP+b.Ports.HostOffset), b.Intervals.Medium)
		}
	}
}

// services makes the paths from one node to the Services and the name server.
func (b *builder) services(node Node) {
	for _, network := range []string{Old, New} {
		address := b.Services[network]
		if address == "" || b.Leaving[network] {
			continue
		}
		target := v1alpha1.Endpoint{Network: network, Address: address}
		for _, source := range []string{Old, New} {
			if b.pod(node.Name, source) == "" {
				continue
			}
			from := v1alpha1.Endpoint{Node: node.Name, Network: source}
			b.add(ClassPodService, v1alpha1.UDP, from, at(target, b.Ports.UDP), b.Intervals.Medium)
			b.add(ClassPodService, v1alpha1.TCPNew, from, at(target, b.Ports.TCP), b.Intervals.Slow)
		}
		host := v1alpha1.Endpoint{Node: node.Name, Network: Host}
		b.add(ClassHostService, v1alpha1.TCPNew, host, at(target, b.Ports.TCP), b.Intervals.Slow)
		b.add(ClassHostService, v1alpha1.TCP, host, at(target, b.Ports.TCP), b.Intervals.Medium)
	}
	for _, source := range []string{Old, New} {
		if b.DNS != "" && b.pod(node.Name, source) != "" {
			b.add(ClassDNS, v1alpha1.DNS, v1alpha1.Endpoint{Node: node.Name, Network: source},
				v1alpha1.Endpoint{Address: b.DNS}, b.Intervals.Slow)
		}
	}
}

func (b *builder) add(class string, protocol v1alpha1.Protocol, source, target v1alpha1.Endpoint,
	interval time.Duration) {
	path := v1alpha1.Path{
		ID: id(class, protocol, source, target), Class: class, Source: source, Target: target,
		Protocol: protocol, Size: defaultSize, IntervalMillis: int(interval.Milliseconds()),
	}
	switch class {
	case ClassFullSize:
		path.Size = b.FullSize
	case ClassDenied:
		path.Denied = true
	case ClassDNS, ClassLocalDNS:
		path.Query = b.Query
	}
	switch {
	case path.Denied || protocol == v1alpha1.DNS || b.Ports.SecondOffset == 0:
	case class == ClassLocalPort:
		if port := b.Local.SecondNodePort; port > 0 {
			path.Second = withPort(target.Address, func(int) int { return port })
		}
	case class == ClassNodePort:
		if port := b.SecondNodePorts[target.Network]; port > 0 {
			path.Second = withPort(target.Address, func(int) int { return port })
		}
	default:
		path.Second = withPort(target.Address, func(port int) int { return port + b.Ports.SecondOffset })
	}
	b.paths = append(b.paths, path)
}

// id names a path by its ends, not by their addresses: "a/old>b/new/udp", with the class where the ends
// alone would not tell.
func id(class string, protocol v1alpha1.Protocol, source, target v1alpha1.Endpoint) string {
	from := source.Node + "/" + source.Network
	switch class {
	case ClassPodService, ClassHostService:
		return from + ">service/" + target.Network + "/" + string(protocol)
	case ClassDNS, ClassLocalDNS:
		return from + ">" + class
	case ClassOutside: // to another node; those to responders are named by them
		return from + ">outside/" + target.Node + "/" + string(protocol)
	case ClassNodePort, ClassLocalService, ClassLocalPort, ClassHostPort:
		return from + ">" + target.Node + "/" + class + "/" + target.Network + "/" + string(protocol)
	case ClassFullSize, ClassDenied:
		return from + ">" + target.Node + "/" + target.Network + "/" + string(protocol) + "/" + class
	}
	return from + ">" + target.Node + "/" + target.Network + "/" + string(protocol)
}

// at is an endpoint with a port.
func at(target v1alpha1.Endpoint, port int) v1alpha1.Endpoint {
	if address, err := netip.ParseAddr(target.Address); err == nil && address.Is6() {
		target.Address = "[" + target.Address + "]"
	}
	target.Address += ":" + strconv.Itoa(port)
	return target
}

// withPort is a host:port with another port; empty if it is not a host:port.
func withPort(address string, port func(int) int) string {
	one, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	return netip.AddrPortFrom(one.Addr(), uint16(port(int(one.Port())))).String()
}
