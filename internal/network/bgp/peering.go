package bgp

import (
	"cmp"
	"net/netip"
	"slices"
)

// peering is one neighbour in a node's configuration.
type peering struct {
	// node is the index of the neighbour; -1 if it is outside of the cluster.
	node int32
	ip   netip.Addr
	port uint16
	// remote is the expected AS number, local the announced one.
	remote, local uint32
	// byAddress is true if a BGPPeer gives the neighbour's address: its cluster ID is then ignored.
	byAddress bool
	// client is true if the neighbour is a client of this node.
	client bool
	allow  bool
	peer   int32 // index of the BGPPeer
}

// MaxPeerings is the maximum number of peerings, counting both directions; each needs 100 bytes.
const MaxPeerings = 4 << 20

// peerings makes every node's configuration, like confd; nil if there would be too many.
func (b *builder) peerings() [][]peering {
	all := make([][]peering, len(b.nodes))
	order := b.inOrder()
	total := 0
	for _, pass := range []func(int, *Peer) (locals []int32, remotes []peering){b.global, b.own, b.reverse} {
		for _, i := range order {
			locals, remotes := pass(i, &b.in.Peers[i])
			if total += len(locals) * len(remotes); total > MaxPeerings {
				return nil
			}
			for _, local := range locals {
				for _, remote := range remotes {
					all[local] = append(all[local], b.complete(local, remote))
				}
			}
		}
	}
	for i := range all {
		all[i] = firstWins(all[i], b.address(int32(i)))
	}
	return all
}

// inOrder returns the BGPPeers in the order in which they apply. Calico's own order within one pass is random; by name
// is one of the possible orders.
func (b *builder) inOrder() []int {
	order := make([]int, len(b.in.Peers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(b.in.Peers[x].Name, b.in.Peers[y].Name) })
	return order
}

func (b *builder) global(i int, p *Peer) ([]int32, []peering) {
	if !p.Global() {
		return nil, nil
	}
	return b.all(), b.remotes(i, p)
}

func (b *builder) own(i int, p *Peer) ([]int32, []peering) {
	if p.Global() {
		return nil, nil
	}
	return b.locals(p), b.remotes(i, p)
}

// reverse makes the other side's peerings.
func (b *builder) reverse(i int, p *Peer) ([]int32, []peering) {
	if p.ManualReverse || p.LocalWorkload != nil || p.Bad["localWorkloadSelector"] != nil {
		return nil, nil
	}
	var back []peering
	for _, local := range b.locals(p) {
		back = append(back, b.toNode(i, local))
	}
	return b.remoteNodes(p), back
}

// locals returns the nodes on this side of a BGPPeer.
func (b *builder) locals(p *Peer) []int32 {
	switch {
	case p.NodeSelector != nil:
		return b.matching(p.NodeSelector)
	case p.Bad["nodeSelector"] != nil:
		return nil
	case p.Node != "":
		if i, ok := b.byName[p.Node]; ok && b.address(i).IsValid() {
			return []int32{i}
		}
		return nil
	}
	return b.all()
}

// remotes returns the neighbours that a BGPPeer gives to this side.
func (b *builder) remotes(i int, p *Peer) []peering {
	if p.LocalWorkload != nil || p.Bad["localWorkloadSelector"] != nil || p.Bad["peerSelector"] != nil {
		return nil
	}
	if p.PeerSelector != nil {
		var found []peering
		for _, node := range b.matching(p.PeerSelector) {
			found = append(found, b.toNode(i, node))
		}
		return found
	}
	if !p.IP.IsValid() || p.IP.Is4() == b.six {
		return nil
	}
	one := peering{node: -1, ip: p.IP, port: p.Port, remote: cmp.Or(p.AS, b.in.AS), local: p.LocalAS,
		byAddress: true, allow: p.AllowOwnAS, peer: int32(i)}
	if node, ok := b.byIP[p.IP]; ok {
		one.node = node
		if one.port == 0 && b.as(node) == one.remote {
			one.port = b.port(node)
		}
	}
	return []peering{one}
}

// remoteNodes returns the nodes on the other side of a BGPPeer.
func (b *builder) remoteNodes(p *Peer) []int32 {
	if p.PeerSelector != nil {
		return b.matching(p.PeerSelector)
	}
	node, ok := b.byIP[p.IP]
	if !ok || p.Bad["peerSelector"] != nil || b.as(node) != cmp.Or(p.AS, b.in.AS) {
		return nil
	}
	// Calico compares a port with the node's own port and then also with the cluster's.
	if own := b.in.NodePorts[b.nodes[node].Name]; p.Port != 0 &&
		(own != 0 && own != p.Port || b.in.Port != 0 && b.in.Port != p.Port) {
		return nil
	}
	return []int32{node}
}

// toNode makes a peering with a node of the cluster, selected by a selector; complete sets client.
func (b *builder) toNode(peer int, node int32) peering {
	return peering{node: node, ip: b.address(node), port: b.port(node), remote: b.as(node), peer: int32(peer)}
}

// complete sets the fields that depend on the configured node.
func (b *builder) complete(local int32, p peering) peering {
	if p.local == 0 {
		p.local = b.as(local)
	}
	own, theirs := b.nodes[local].ClusterID, ""
	if !p.byAddress {
		theirs = b.nodes[p.node].ClusterID
	}
	p.client = own != "" && p.remote == p.local && own != theirs
	return p
}

// firstWins keeps the first peering of each address and port, and none with the node itself.
func firstWins(all []peering, own netip.Addr) []peering {
	slices.SortStableFunc(all, func(x, y peering) int {
		return cmp.Or(x.ip.Compare(y.ip), cmp.Compare(x.port, y.port))
	})
	all = slices.CompactFunc(all, func(x, y peering) bool { return x.ip == y.ip && x.port == y.port })
	return slices.DeleteFunc(all, func(p peering) bool { return p.ip == own })
}
