package path

import (
	"fmt"

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

// Silence are the paths of one class that did not answer before a change, and so are not measured.
type Silence struct {
	Class string `json:"class"`
	// Paths is how many of the class are not measured, of Of.
	Paths int `json:"paths"`
	Of    int `json:"of"`
	// Example is the id of one.
	Example string `json:"example"`
}

func (s Silence) String() string {
	return fmt.Sprintf("%d of %s of the class %s, which had no answer before the change, such as %s", s.Paths,
		cluster.Count(s.Of, "path"), s.Class, s.Example)
}

// Silent sorts out the optional paths that do not answer: left are the others. What every class lost is in the order of
// the classes.
func Silent(paths []v1alpha1.Path, answers func(id string) bool) (left []v1alpha1.Path, silent []Silence) {
	of := map[string]*Silence{}
	for _, one := range paths {
		if !Optional(one.Class) {
			left = append(left, one)
			continue
		}
		if of[one.Class] == nil {
			of[one.Class] = &Silence{Class: one.Class}
		}
		count := of[one.Class]
		count.Of++
		if answers(one.ID) {
			left = append(left, one)
			continue
		}
		if count.Paths++; count.Paths == 1 {
			count.Example = one.ID
		}
	}
	for _, class := range Classes() {
		if count := of[class]; count != nil && count.Paths > 0 {
			silent = append(silent, *count)
		}
	}
	return left, silent
}
