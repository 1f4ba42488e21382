package step

// The verbs that hand the routes between nodes over, when every pod of a range is on the target.
const (
	// VerbHold takes HoldArgs: packets to other nodes are pinned to the source's routes within the range, whatever
	// other routes come, and those of the main table get HeldMetric, so that the target's can be made next to them.
	VerbHold = "hold"
	// VerbCarried takes HoldArgs: it waits until the target has a route for each one held that leads to another
	// node, and fails when that does not come. It changes nothing.
	VerbCarried = "carried"
	// VerbYield takes HoldArgs: the pin goes, and with it packets take the target's routes, all at once. It fails
	// where the target lacks one. VerbHold takes it back.
	VerbYield = "yield"
	// VerbUnhold takes HoldArgs and takes VerbHold back, when the target's routes have gone.
	VerbUnhold = "unhold"
)

var holding = []Verb{
	takes(HoldArgs.allowed, Verb{Name: VerbHold}),
	takes(HoldArgs.allowed, Verb{Name: VerbCarried, Quiet: true}),
	takes(HoldArgs.allowed, Verb{Name: VerbYield}),
	takes(HoldArgs.allowed, Verb{Name: VerbUnhold}),
}

// HeldMetric is the metric of routes that are held.
const HeldMetric = 100

// HoldArgs names a range and the interfaces by which two networks reach it.
type HoldArgs struct {
	// Within are the ranges, as CIDRs.
	Within []string `json:"within"`
	// Source and Target are interfaces; a trailing * is a prefix. What is one of Target's is none of Source's.
	Source []string `json:"source"`
	Target []string `json:"target"`
	// Bits, where it is not 0, is the length of the prefix of each node's range, of which Within are exactly made up:
	// then what goes to any but the node's own is pinned, such as to a router that alone knows the way.
	Bits int `json:"bits,omitempty"`
	// Others, where it is not 0, says that all nodes' pods are neighbours by the source's own interfaces, and how many
	// other nodes there are: then the route to the whole range is pinned, and the target has what it needs when it
	// reaches so many.
	Others int `json:"others,omitempty"`
}

func (a HoldArgs) allowed() error { return ranges(a.Within) }
