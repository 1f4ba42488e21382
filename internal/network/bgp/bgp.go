// Package bgp is the BGP graph that Calico makes of a cluster: who has sessions with whom, who learns whose
// routes, and what is left when reflectors or labels go.
//
// The rules are those of Calico v3.31 (confd/pkg/backends/calico/client.go, updatePeersV1, and confd's
// template bird.cfg):
//
//   - The full mesh is on unless BIRD's configuration says otherwise, and holds the nodes without a cluster
//     id: a node that is given one leaves it at once, on its own side and on everybody else's.
//   - BGPPeers without node and nodeSelector are global. They come first; a peering with an address and port
//     that a node has already is not made again. Reverse peerings come last, unless reversePeering is Manual.
//   - A selector that matches nobody makes no peering, without an event or a status. So does a bad one.
//   - A session is there when both sides peer and expect each other's AS number. Whoever has the lower
//     address, as text, connects; the other side of a mesh session is passive.
//   - The peer is a client where both are in one AS, this node has a cluster id, and the peer's is another
//     one. The id of a peer named by address is not known to confd and counts as another one.
//
// and those of Calico's BIRD, a fork of 1.6, with "add paths on", so that every path is passed on and not
// only the best (proto/bgp/attrs.c): a route learned by iBGP goes to iBGP peers only from or to a client
// (RFC 4456); nobody takes its own route back; a route whose cluster list holds a node's cluster id is
// neither taken from a client nor given to one. RFC 4456 has the last check on every session; BIRD 1.6 does
// not make it between reflectors of one cluster.
package bgp

import (
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// DefaultAS is the AS number of nodes when nothing sets another one.
const DefaultAS = 64512

// Input is what a graph is built from.
type Input struct {
	Nodes []Node
	Peers []Peer
	// Mesh is the full mesh between nodes without a cluster id.
	Mesh bool
	// AS is the number of nodes that have none of their own.
	AS uint32
	// Port is where nodes listen, 0 for BGP's 179; NodePorts has those that listen elsewhere, by name.
	Port      uint16
	NodePorts map[string]uint16
	// Backend is CALICO_NETWORKING_BACKEND of calico-node: with "vxlan" and "none" there is no BIRD.
	// Unknown says why it is not known, where it is not.
	Backend, Unknown string
	// Pools are the IPPools, for what the loss of routes means.
	Pools []Pool
	// Blocks are the ranges of nodes whose routes BIRD carries; none where filters decide which it does.
	Blocks []Block
	// Workloads are the pods that a BGPPeer with localWorkloadSelector may pick; none where there is no such one.
	Workloads []Workload
	// Guessed is true when no node says its address for BGP, and the node's internal ones were taken.
	Guessed bool
}

// Started reports whether BIRD runs at all.
func (i *Input) Started() bool { return i.Backend != "vxlan" && i.Backend != "none" }

// Reflecting are the names of the nodes that reflect routes, sorted.
func (i *Input) Reflecting() []string {
	var names []string
	for _, n := range i.Nodes {
		if i.Started() && n.ClusterID != "" {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// spare reports whether Felix makes the routes of every pool of a family, of which there must be one. Disabled ones count too: pods may
// still have addresses of them.
func (i *Input) spare(six bool) bool {
	pools := 0
	for _, pool := range i.Pools {
		if !pool.CIDR.IsValid() || pool.CIDR.Addr().Is6() != six {
			continue
		}
		if pools++; !pool.Felix {
			return false
		}
	}
	return pools > 0
}

// Speaks reports whether any node has an address of a family.
func (i *Input) Speaks(six bool) bool {
	return slices.ContainsFunc(i.Nodes, func(n Node) bool { return six && n.IPv6.IsValid() || !six && n.IPv4.IsValid() })
}

// Node is a node as BGP sees it.
type Node struct {
	Name   string
	Labels map[string]string
	// IPv4 and IPv6 are the addresses for BGP; the zero value where there is none.
	IPv4, IPv6 netip.Addr
	// AS is the node's own number, 0 for the cluster's.
	AS uint32
	// ClusterID makes the node a route reflector. BadClusterID is one that Calico ignores.
	ClusterID, BadClusterID string
}

// Peer is a BGPPeer.
type Peer struct {
	Name string
	// Node, or NodeSelector, is this side of the peering; all nodes when both are empty.
	Node string
	// Selectors are nil where none is set. A selector that cannot be parsed has its text and the reason in
	// Bad, by field, and matches nobody.
	NodeSelector, PeerSelector, LocalWorkload *selector.Selector
	Bad                                       map[string]error
	// IP is the peer's address where there is no PeerSelector; invalid when it cannot be read.
	IP   netip.Addr
	Port uint16 // 0: the default
	// AS is the peer's number (0: the cluster's), LocalAS this side's (0: the node's).
	AS, LocalAS uint32
	// ManualReverse leaves the other side to another BGPPeer.
	ManualReverse bool
	// AllowOwnAS takes routes in whose path this side's AS is.
	AllowOwnAS bool
}

// Global reports whether the BGPPeer is for all nodes, which makes it come first.
func (p *Peer) Global() bool {
	return p.Node == "" && p.NodeSelector == nil && p.Bad["nodeSelector"] == nil
}

// Pool is an IPPool as far as routes matter.
type Pool struct {
	Name string
	// Encapsulation is "VXLAN", "IPIP" or "none".
	Encapsulation string
	// Felix is true where Felix programs the routes and BIRD does not.
	Felix    bool
	Disabled bool
	CIDR     netip.Prefix
	// Hidden keeps the blocks of nodes from being announced.
	Hidden bool
}

// Block is a range of addresses that a node holds and announces.
type Block struct {
	Node string
	CIDR netip.Prefix
}

// Workload is a pod that may speak BGP with its node.
type Workload struct {
	Name, Node string
	Labels     map[string]string
}
