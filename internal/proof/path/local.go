package path

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// Local is where a network answers for pods of the same node alone, and at ports of nodes that lead only to such pods.
// Guards alone measure it. Zero values are not measured.
type Local struct {
	// Service is the cluster address of a Service with internalTrafficPolicy Local in front of the probe pods.
	Service string
	// NodePort is the TCP node port of a Service with externalTrafficPolicy Local, and SecondNodePort the one that
	// leads to second responders.
	NodePort, SecondNodePort int
	// HostPort is the TCP port of nodes that leads to the probe pod of the node; second responders are SecondOffset
	// above.
	HostPort int
	// DNS is a name server on every pod's own node, as host:port.
	DNS string
}

// Optional reports whether a class need not answer before a change: some networks do not have such paths at all. What
// does not answer then is not measured.
func Optional(class string) bool {
	switch class {
	case ClassLocalService, ClassLocalPort, ClassHostPort, ClassLocalDNS:
		return true
	}
	return false
}

// Elsewhere reports whether the paths of a class lead to an address that is not that of their target, though a pod is
// their target: a Service's, or a node's.
func Elsewhere(class string) bool {
	return class == ClassNodePort || class == ClassLocalService || class == ClassLocalPort || class == ClassHostPort
}

// localServices makes the paths from a node and its probe pod to what answers on the node itself.
func (b *builder) localServices(node Node) {
	if b.pod(node.Name, Old) == "" {
		return
	}
	pod := v1alpha1.Endpoint{Node: node.Name, Network: Old}
	if b.Local.Service != "" {
		target := pod
		target.Address = b.Local.Service
		for _, source := range []v1alpha1.Endpoint{pod, {Node: node.Name, Network: Host}} {
			b.add(ClassLocalService, v1alpha1.TCPNew, source, at(target, b.Ports.TCP), b.Intervals.Slow)
		}
	}
	if b.Local.DNS != "" {
		b.add(ClassLocalDNS, v1alpha1.DNS, pod, v1alpha1.Endpoint{Address: b.Local.DNS}, b.Intervals.Slow)
	}
}

// localPorts makes the paths from a node to the ports of another that lead to the probe pod there.
func (b *builder) localPorts(from, to Node) {
	if b.pod(to.Name, Old) == "" {
		return
	}
	host := v1alpha1.Endpoint{Node: from.Name, Network: Host}
	target := v1alpha1.Endpoint{Node: to.Name, Network: Old, Address: to.Address}
	if b.Local.NodePort > 0 {
		b.add(ClassLocalPort, v1alpha1.TCPNew, host, at(target, b.Local.NodePort), b.Intervals.Slow)
	}
	if b.Local.HostPort > 0 {
		b.add(ClassHostPort, v1alpha1.TCPNew, host, at(target, b.Local.HostPort), b.Intervals.Slow)
	}
}

// AtNode reports whether a path leads to a port of a node's own address: the firewall of the node may shut it.
func AtNode(one v1alpha1.Path) bool {
	switch one.Class {
	case ClassPodHost, ClassNodePort, ClassLocalPort, ClassHostPort:
		return true
	case ClassOutside: // those to responders outside have no node
		return one.Target.Node != ""
	}
	return false
}

// Silence are the paths of one class that did not answer before a change, or since a node joined, and so are not
// measured.
type Silence struct {
	Class string `json:"class"`
	// Paths is how many of the class are not measured, of Of.
	Paths int `json:"paths"`
	Of    int `json:"of"`
	// Example is the id of one.
	Example string `json:"example"`
	// Shut names the ports of nodes that the paths lead to, such as "UDP port 7101 of a, b"; empty if they lead
	// elsewhere.
	Shut string `json:"shut,omitempty"`
	// Joined is true if these are the paths of a node that joined during the change. Shared is how many of Paths end at
	// another node that joined, and that the Silence of that node has, too.
	Joined bool `json:"joined,omitempty"`
	Shared int  `json:"shared,omitempty"`
}

func (s Silence) String() string {
	since := "which had no answer before the change"
	if s.Joined {
		since = "which have had no answer since the node joined"
	}
	text := fmt.Sprintf("%d of %s of the class %s, %s, such as %s", s.Paths, cluster.Count(s.Of, "path"), s.Class,
		since, s.Example)
	if s.Shut != "" {
		text += "; probably the node's firewall drops " + s.Shut + ": allow it from nodes and pods, or these paths " +
			"are not measured"
	}
	return text
}

// Uncovered reports whether no path is left of a class that every run measures.
func (s Silence) Uncovered() bool { return s.Paths == s.Of && !Optional(s.Class) }

// Silent sorts out the paths that do not answer, and that a cluster may lack: left are the others. These are the
// optional ones, and those to a port of a node on which nothing answers: the node's firewall shuts it. What every class
// lost is in the order of the classes.
func Silent(paths []v1alpha1.Path, answers func(id string) bool) (left []v1alpha1.Path, silent []Silence) {
	return Answering(paths, answers).Silent(paths, answers)
}

// Silent is Silent of some of the paths whose nodes' ports are known.
func (p OpenPorts) Silent(paths []v1alpha1.Path, answers func(id string) bool) (left []v1alpha1.Path,
	silent []Silence) {
	of, shut := map[string]*Silence{}, map[string]*shutPorts{}
	for _, one := range paths {
		if of[one.Class] == nil {
			of[one.Class], shut[one.Class] = &Silence{Class: one.Class}, &shutPorts{}
		}
		count := of[one.Class]
		count.Of++
		if !Optional(one.Class) && !p.mayLack(one) || answers(one.ID) {
			left = append(left, one)
			continue
		}
		if count.Paths++; count.Paths == 1 {
			count.Example = one.ID
		}
		if AtNode(one) {
			shut[one.Class].add(one)
		}
	}
	for _, class := range Classes() {
		if count := of[class]; count != nil && count.Paths > 0 {
			count.Shut = shut[class].String()
			silent = append(silent, *count)
		}
	}
	return left, silent
}

// port is a port of a node, as other nodes reach it, or the node itself and its pods do.
type port struct {
	address string
	udp     bool
	own     bool
}

func portOf(one v1alpha1.Path) port {
	udp := one.Protocol == v1alpha1.UDP || one.Protocol == v1alpha1.UDPNew || one.Protocol == v1alpha1.DNS
	return port{one.Target.Address, udp, one.Source.Node == one.Target.Node}
}

// OpenPorts are the ports of nodes that have answered.
type OpenPorts map[port]bool

// Answering are the ports that have answered on any of the paths. A port that is open on one path is open on all, so
// these must be all paths that are measured.
func Answering(paths []v1alpha1.Path, answers func(id string) bool) OpenPorts {
	open := OpenPorts{}
	for _, one := range paths {
		if AtNode(one) && answers(one.ID) {
			open[portOf(one)] = true
		}
	}
	return open
}

// mayLack reports whether a path leads to a port that is shut. A port that answers on one path is not: then another
// path to it is broken. A firewall that lets nodes in lets the node's own pods in, but not the other way round.
func (p OpenPorts) mayLack(one v1alpha1.Path) bool {
	at := portOf(one)
	others := at
	others.own = false
	return AtNode(one) && !p[at] && !p[others]
}

// shutPorts are the ports of nodes that do not answer on the paths of one class.
type shutPorts struct{ ports, nodes []string }

func (s *shutPorts) add(one v1alpha1.Path) {
	protocol, at := "TCP", portOf(one)
	if at.udp {
		protocol = "UDP"
	}
	number := at.address[strings.LastIndexByte(at.address, ':')+1:]
	if text := protocol + " port " + number; !slices.Contains(s.ports, text) {
		s.ports = append(s.ports, text)
	}
	if !slices.Contains(s.nodes, one.Target.Node) {
		s.nodes = append(s.nodes, one.Target.Node)
	}
}

// mostShut bounds the nodes that are named.
const mostShut = 10

func (s *shutPorts) String() string {
	if len(s.nodes) == 0 {
		return ""
	}
	text := strings.Join(s.ports, " and ") + " of " + strings.Join(s.nodes[:min(len(s.nodes), mostShut)], ", ")
	if n := len(s.nodes) - mostShut; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
