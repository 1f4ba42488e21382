package probe

import "github.com/theseus-cni/theseus/internal/cluster/manifest"

// Ports are where the echo servers listen. A port of 0 is not served.
type Ports struct {
	UDP int
	TCP int
	// Denied is served for UDP and TCP. Policy must block it, so an answer is a leak.
	Denied int
}

// PodPorts are the ports of probe pods.
func PodPorts() Ports {
	return Ports{UDP: manifest.PortUDP, TCP: manifest.PortTCP, Denied: manifest.PortDenied}
}

// HostPorts are the ports of probers of hosts on the address of their node. Policy does not reach hosts, so they
// have no denied port.
func HostPorts() Ports {
	return Ports{UDP: manifest.PortUDP + manifest.HostOffset, TCP: manifest.PortTCP + manifest.HostOffset}
}

// Second are the ports of the second responder in the same pod. Policy blocks none of them.
func (p Ports) Second() Ports {
	return Ports{UDP: p.UDP + manifest.SecondOffset, TCP: p.TCP + manifest.SecondOffset}
}
