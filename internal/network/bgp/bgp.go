// Package bgp models the BGP graph of a cluster with Calico: which nodes have sessions, which node learns
// which routes, and which of them are lost when reflectors or labels are removed.
//
// The rules are those of Calico v3.31 (confd/pkg/backends/calico/client.go, updatePeersV1, and confd's
// template bird.cfg):
//
//   - The full mesh is enabled by default, and contains the nodes without a cluster ID: a node that gets one
//     leaves the mesh immediately, on its own side and on all other nodes.
//   - BGPPeers without node and nodeSelector are global. They come first; a peering with an address and port
//     that a node already has is not made again. Reverse peerings come last, unless reversePeering is Manual.
//   - A selector that matches no node makes no peering, without an event or a status. So does an invalid one.
//   - A session is established if both sides peer and expect each other's AS number. The side with the lower
//     address, as text, connects; the other side of a mesh session is passive.
//   - The peer is a client if both are in one AS, this node has a cluster ID, and the peer's ID is different.
//     confd does not know the ID of a peer that is configured by address; such an ID counts as different.
//
// and those of Calico's BIRD, a fork of 1.6, with "add paths on", so that it passes on every path and not only
// the best (proto/bgp/attrs.c): a route learned by iBGP is passed to iBGP peers only from or to a client
// (RFC 4456); a node does not accept its own route; a route whose cluster list contains a node's cluster ID is
// neither accepted from a client nor passed to one. RFC 4456 requires the last check on every session; BIRD
// 1.6 does not make it between reflectors of one cluster.
package bgp

import (
	"net/netip"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// DefaultAS is the default AS number of nodes.
const DefaultAS = 64512

// Input has the data from which a graph is built.
type Input struct {
	Nodes []Node
	Peers []Peer
	// Mesh is whether the full mesh between nodes without a cluster ID is enabled.
	Mesh bool
	// AS is the AS number of nodes without their own.
	AS uint32
	// Port is the port on which nodes listen, 0 for BGP's 179; NodePorts has other ports by node name.
	Port      uint16
	NodePorts map[string]uint16
	// Backend is CALICO_NETWORKING_BACKEND of calico-node: with "vxlan" and "none" there is no BIRD.
	// Unknown says why Backend is not known, if it is not.
	Backend, Unknown string
	// Pools are the IPPools, which determine the consequences of lost routes.
	Pools []Pool
	// Blocks are the ranges of nodes whose routes BIRD distributes; none if filters select them.
	Blocks []Block
	// Workloads are the pods that a BGPPeer with localWorkloadSelector may select; none if there is no such BGPPeer.
	Workloads []Workload
	// Guessed is true if no node has an address for BGP, so that the nodes' internal addresses are used.
	Guessed bool
}

// Started reports whether BIRD runs at all.
func (i *Input) Started() bool { return i.Backend != "vxlan" && i.Backend != "none" }

// Reflecting returns the names of the route reflectors, sorted.
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

// spare reports whether a family has pools and Felix programs the routes of all of them. Disabled pools count too,
// because pods may still have addresses from them.
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
	return slices.ContainsFunc(i.Nodes, func(n Node) bool {
		return six && n.IPv6.IsValid() || !six && n.IPv4.IsValid()
	})
}

// Node is a node's part in BGP.
type Node struct {
	Name   string
	Labels map[string]string
	// IPv4 and IPv6 are the addresses for BGP; the zero value if there is none.
	IPv4, IPv6 netip.Addr
	// AS is the node's own AS number, 0 for the cluster's.
	AS uint32
	// ClusterID makes the node a route reflector. BadClusterID is an invalid one, which Calico ignores.
	ClusterID, BadClusterID string
}

// Peer is a BGPPeer.
type Peer struct {
	Name string
	// Node, or NodeSelector, is this side of the peering; all nodes if both are empty.
	Node string
	// Selectors are nil if not set. A selector that cannot be parsed matches no node; Bad has its text and the
	// reason, by field.
	NodeSelector, PeerSelector, LocalWorkload *selector.Selector
	Bad                                       map[string]error
	// IP is the peer's address if there is no PeerSelector; invalid if it cannot be parsed.
	IP   netip.Addr
	Port uint16 // 0: the default
	// AS is the peer's AS number (0: the cluster's), LocalAS this side's (0: the node's).
	AS, LocalAS uint32
	// ManualReverse is true if the other side is configured by another BGPPeer.
	ManualReverse bool
	// AllowOwnAS accepts routes that have this side's AS in their path.
	AllowOwnAS bool
}

// Global reports whether the BGPPeer applies to all nodes; global ones come first.
func (p *Peer) Global() bool {
	return p.Node == "" && p.NodeSelector == nil && p.Bad["nodeSelector"] == nil
}

// Pool has the parts of an IPPool that matter for routes.
type Pool struct {
	Name string
	// Encapsulation is "VXLAN", "IPIP" or "none".
	Encapsulation string
	// Felix is true if Felix, not BIRD, programs the routes.
	Felix    bool
	Disabled bool
	CIDR     netip.Prefix
	// Hidden is true if the blocks of nodes are not announced.
	Hidden bool
}

// Block is a range of addresses that a node has and announces.
type Block struct {
	Node string
	CIDR netip.Prefix
}

// Workload is a pod that may speak BGP with its node.
type Workload struct {
	Name, Node string
	Labels     map[string]string
}
