package policy

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Port is one port of a listening pod.
type Port struct {
	Protocol corev1.Protocol
	Number   int // 1 to 65535
}

// String formats the port: "TCP 80".
func (p Port) String() string { return fmt.Sprintf("%s %d", p.Protocol, p.Number) }

func (p Port) code() uint32 { return uint32(protocolAt(p.Protocol))<<16 | uint32(p.Number) }

func portOf(code uint32) Port { return Port{protocols[code>>16], int(code & 0xffff)} }

// protocols are the protocols with ports, in the order of their numbers in a set of ports.
var protocols = [...]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// protocolAt returns the number of a protocol; -1 for one without ports.
func protocolAt(protocol corev1.Protocol) int {
	for i, p := range protocols {
		if p == protocol {
			return i
		}
	}
	return -1
}

const (
	firstPort = 1
	lastPort  = 65535
)

// protocolPorts returns a range of ports of one protocol.
func protocolPorts(protocol, first, last int) spans {
	first, last = max(first, firstPort), min(last, lastPort)
	if protocol < 0 || first > last {
		return nil
	}
	return spans{{uint32(protocol)<<16 | uint32(first), uint32(protocol)<<16 | uint32(last)}}
}

// allPorts is every port of every protocol.
var allPorts = func() spans {
	var all spans
	for i := range protocols {
		all = append(all, protocolPorts(i, firstPort, lastPort)...)
	}
	return all
}()

// Ports is a set of ports.
type Ports struct{ set spans }

// Has reports whether a port is in the set.
func (p Ports) Has(port Port) bool { return p.set.contains(port.code()) }

// String lists the ports by protocol: "TCP 80, 443-500; all UDP". It truncates long lists.
func (p Ports) String() string {
	const most = 6
	var parts []string
	for i, protocol := range protocols {
		mine := p.set.intersect(protocolPorts(i, firstPort, lastPort))
		if len(mine) == 0 {
			continue
		}
		if len(mine) == 1 && mine[0].last-mine[0].first == lastPort-firstPort {
			parts = append(parts, "all "+string(protocol))
			continue
		}
		var ranges []string
		for _, r := range mine {
			if len(ranges) == most {
				ranges = append(ranges, fmt.Sprintf("and %d more", len(mine)-most))
				break
			}
			ranges = append(ranges, rangeText(r))
		}
		parts = append(parts, string(protocol)+" "+strings.Join(ranges, ", "))
	}
	switch {
	case len(parts) == 0:
		return "no port"
	case len(p.set) == len(allPorts) && len(p.set.subtract(allPorts)) == 0 && len(allPorts.subtract(p.set)) == 0:
		return "every port"
	}
	return strings.Join(parts, "; ")
}

func rangeText(r span) string {
	if r.first == r.last {
		return fmt.Sprint(r.first & 0xffff)
	}
	return fmt.Sprintf("%d-%d", r.first&0xffff, r.last&0xffff)
}
