package step

import "slices"

// The verbs of the joint phase.
const (
	// VerbJoin takes JoinArgs: no masquerade between the two networks, loose rp_filter; kept true until VerbPart.
	// Where both are the same range, rp_filter alone; where there is none, nothing but what Untracked says.
	VerbJoin = "join"
	// VerbPart takes JoinArgs and takes VerbJoin back.
	VerbPart = "part"
)

var joining = []Verb{
	takes(JoinArgs.allowed, Verb{Name: VerbJoin, Back: VerbPart}),
	takes(JoinArgs.allowed, Verb{Name: VerbPart, Back: VerbJoin}),
}

// JoinArgs names the two networks of a joint phase.
type JoinArgs struct {
	Old []string `json:"old"` // pod CIDRs of the source
	New []string `json:"new"` // pod CIDRs of the target
	// Keep are interfaces of the source, as patterns. If a program removes their routes within Old, the agent puts them back.
	Keep []string `json:"keep,omitempty"`
	// Untracked is the port of tunnels that no connection may be masqueraded with; nil for none.
	Untracked *Untracked `json:"untracked,omitempty"`
}

// Untracked is a UDP port of a network's tunnels, whose interface is Link, that its agent exempts from connection tracking.
type Untracked struct {
	Port int    `json:"port"`
	Link string `json:"link"`
	// From are ranges of pods that the agent masquerades when they send to anything but Except. Both are empty where it does not,
	// or does it in another way than to the address of the interface.
	From   []string `json:"from,omitempty"`
	Except []string `json:"except,omitempty"`
}

func (a JoinArgs) allowed() error { return ranges(slices.Concat(a.Old, a.New)) }
