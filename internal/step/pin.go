package step

// The verbs that carry the packets between nodes while a network changes how it does that itself.
const (
	// VerbPin takes PinArgs: packets to other nodes within the ranges go straight to the node that the network's own
	// routes lead to now, whatever becomes of those. What leads through a tunnel is found by the tunnel's neighbours.
	VerbPin = "pin"
	// VerbRouted takes PinArgs: it waits until all that is pinned, and all else within the ranges, has a route of the
	// network's own by Way, and fails when that does not come. It changes nothing.
	VerbRouted = "routed"
	// VerbFollow takes PinArgs: as VerbRouted, and then what is pinned goes by the network's own routes, but from the
	// node's own address where it goes into a tunnel: no new connection gets that of the tunnel. VerbPin takes it back.
	VerbFollow = "follow"
	// VerbUnpin takes PinArgs and takes VerbPin back, when the network's own routes are there, as with VerbRouted.
	VerbUnpin = "unpin"
)

var pinning = []Verb{
	takes(PinArgs.allowed, Verb{Name: VerbPin}),
	takes(PinArgs.allowed, Verb{Name: VerbRouted, Quiet: true}),
	takes(PinArgs.allowed, Verb{Name: VerbFollow}),
	takes(PinArgs.allowed, Verb{Name: VerbUnpin}),
}

// Way is how a network carries packets between nodes.
type Way string

// The ways.
const (
	// WayBGP: BIRD has made the routes, and they lead to other nodes without a tunnel.
	WayBGP Way = "bgp"
	// WayTunnel: they lead through the tunnel, which knows the other end.
	WayTunnel Way = "tunnel"
	// WayCross: they lead to nodes of the same subnet without a tunnel and to others through it, and BIRD has made
	// none.
	WayCross Way = "cross-subnet"
)

// Far is what becomes of packets to nodes that are not on a link of the node's own.
type Far string

// What can become of them.
const (
	// FarRefuse: nothing may be pinned where there is such a node.
	FarRefuse Far = "refuse"
	// FarLeave: they are left to the network's own routes, which stay as they are.
	FarLeave Far = "leave"
	// FarRoute: they are sent by the routers between the nodes, which know the way to pods.
	FarRoute Far = "route"
)

// PinArgs say what is pinned.
type PinArgs struct {
	// Within are the ranges of pods, as IPv4 CIDRs.
	Within []string `json:"within"`
	// Tunnel are the interfaces of the network's tunnel; a trailing * is a prefix.
	Tunnel []string `json:"tunnel"`
	Far    Far      `json:"far"`
	// Way is what VerbRouted, VerbFollow and VerbUnpin ask for.
	Way Way `json:"way,omitempty"`
	// Linger lets VerbPin keep the addresses of the tunnel's interfaces that connections have, which are about to go.
	Linger bool `json:"linger,omitempty"`
}

func (a PinArgs) allowed() error { return ranges(a.Within) }
