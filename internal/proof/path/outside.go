package path

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// DefaultOutsideRate is how many probes a second each source sends to each responder outside. It is low, since others
// own those servers.
const DefaultOutsideRate = 2

// MaxOutsideRate bounds that rate.
const MaxOutsideRate = 100

// AnyName is the query to a name server outside. Any answer to it counts: it shows that the network works.
const AnyName = "."

// Responder is a server outside of the cluster that answers probes.
type Responder struct {
	// Name is how the user wrote it, such as "tcp:192.0.2.1:443"; it names the paths.
	Name     string
	Protocol v1alpha1.Protocol
	// Host and Port are where it listens; both are empty if the cluster's name server is asked for Query.
	Host, Port string
	Query      string
	// Address is host:port as dialled, once the host's address is known.
	Address string
}

// dnsName is a name in DNS: letters, digits and hyphens between dots.
var dnsName = regexp.MustCompile(
	`^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.?$`)

// ParseResponder reads tcp:HOST:PORT, udp:HOST:PORT or dns:NAME. Of TCP, a completed handshake counts as an answer. By
// UDP a name server answers on port 53, and an echo server on every other port.
func ParseResponder(text string) (Responder, error) {
	r := Responder{Name: text}
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "tcp":
		r.Protocol = v1alpha1.TCPConnect
	case "udp":
		r.Protocol = v1alpha1.UDPNew
	case "dns":
		r.Protocol, r.Query = v1alpha1.DNS, rest
		if !dnsName.MatchString(rest) || len(rest) > 253 {
			return r, fmt.Errorf("%q is not a DNS name", rest)
		}
		return r, nil
	default:
		return r, fmt.Errorf("%q begins with none of tcp:, udp: and dns:", text)
	}
	at := strings.LastIndexByte(rest, ':')
	if at < 1 {
		return r, fmt.Errorf("%q has no host and port", text)
	}
	r.Host, r.Port = rest[:at], rest[at+1:]
	if n, err := strconv.Atoi(r.Port); err != nil || n < 1 || n > 65535 {
		return r, fmt.Errorf("port %q is not a number between 1 and 65535", r.Port)
	}
	if inner, ok := strings.CutPrefix(r.Host, "["); ok {
		r.Host = strings.TrimSuffix(inner, "]")
		if address, err := netip.ParseAddr(r.Host); err != nil || !address.Is6() {
			return r, fmt.Errorf("%q is not an IPv6 address", r.Host)
		}
	} else if _, err := netip.ParseAddr(r.Host); err != nil && !hostName(r.Host) {
		return r, fmt.Errorf("%q is neither an IP address nor a host name", r.Host)
	} else if err == nil && strings.Contains(r.Host, ":") {
		return r, fmt.Errorf("write an IPv6 address in brackets, as in %s:[%s]:%s", kind, r.Host, r.Port)
	}
	if r.Protocol == v1alpha1.UDPNew && r.Port == "53" {
		r.Protocol, r.Query = v1alpha1.DNS, AnyName
	}
	return r, nil
}

// hostName distinguishes a name from a misspelt address, whose last label has only digits.
func hostName(text string) bool {
	last := text[strings.LastIndexByte(strings.TrimSuffix(text, "."), '.')+1:]
	return dnsName.MatchString(text) && len(text) <= 253 && strings.Trim(last, "0123456789.") != ""
}

// outside measures the responders from a node and from its probe pods.
func (b *builder) outside(node Node) {
	for _, responder := range b.Outside {
		target := v1alpha1.Endpoint{Address: responder.Address}
		if responder.Host == "" && responder.Protocol == v1alpha1.DNS {
			target.Address = b.DNS
		}
		if target.Address == "" {
			continue
		}
		for _, network := range []string{Old, New, Host} {
			if network != Host && b.pod(node.Name, network) == "" || network == Host && responder.Host == "" {
				continue // a node need not use the cluster's DNS
			}
			source := v1alpha1.Endpoint{Node: node.Name, Network: network}
			b.paths = append(b.paths, v1alpha1.Path{
				ID: source.Node + "/" + network + ">outside/" + responder.Name, Class: ClassOutside,
				Source: source, Target: target, Protocol: responder.Protocol, Size: defaultSize,
				IntervalMillis: int(b.Intervals.Outside.Milliseconds()), Query: responder.Query,
			})
		}
	}
}

// nodeOutside measures traffic that leaves the pod network towards another node, which is outside of it. Theseus' own
// agent answers there, so that new connections are as many as elsewhere: one data plane in place of another leaves a
// window of some 100 ms.
func (b *builder) nodeOutside(from, to Node) {
	for _, network := range []string{Old, New} {
		if !b.NodesOutside[network] || b.pod(from.Name, network) == "" {
			continue
		}
		source, target := v1alpha1.Endpoint{Node: from.Name, Network: network},
			v1alpha1.Endpoint{Node: to.Name, Network: Host, Address: to.Address}
		b.add(ClassOutside, v1alpha1.TCPNew, source, at(target, b.Ports.TCP+b.Ports.HostOffset), b.Intervals.Slow)
		b.add(ClassOutside, v1alpha1.TCP, source, at(target, b.Ports.TCP+b.Ports.HostOffset), b.Intervals.Outside)
		b.add(ClassOutside, v1alpha1.UDPNew, source, at(target, b.Ports.UDP+b.Ports.HostOffset), b.Intervals.Slow)
	}
}
