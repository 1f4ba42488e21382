package step

import (
	"fmt"
	"slices"
)

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
	// Within is set if the source also masquerades what the target's pods send each other.
	Within bool `json:"within,omitempty"`
	// Keep are interfaces of the source, as patterns. If a program removes their routes within Old, the agent puts them
	// back.
	Keep []string `json:"keep,omitempty"`
	// Untracked is the port of tunnels that no connection may be masqueraded with; nil for none.
	Untracked *Untracked `json:"untracked,omitempty"`
	// Marks are changes of packet marks, in the order in which they apply.
	Marks []Mark `json:"marks,omitempty"`
}

// Mark changes bits of the marks of some packets, before the filter rules of networks are asked.
type Mark struct {
	Hook Hooked `json:"hook"`
	// Is and IsNot choose packets by their marks: all of them must hold.
	Is    []Bits `json:"is,omitempty"`
	IsNot []Bits `json:"isNot,omitempty"`
	// Set replaces the bits of its mask by its value.
	Set Bits `json:"set"`
}

// Hooked are the packets of a node that a Mark is about.
type Hooked string

// The packets that a node forwards, and those that it sends itself.
const (
	Forwarded Hooked = "forward"
	Sent      Hooked = "output"
)

// Bits are some bits of a packet's mark: those of Mask, with a value.
type Bits struct {
	Value uint32 `json:"value"`
	Mask  uint32 `json:"mask"`
}

func (b Bits) allowed() bool { return b.Mask != 0 && b.Value&^b.Mask == 0 }

func (m Mark) allowed() error {
	if m.Hook != Forwarded && m.Hook != Sent {
		return fmt.Errorf("%q is not a kind of packets of a node", m.Hook)
	}
	for _, bits := range slices.Concat(m.Is, m.IsNot, []Bits{m.Set}) {
		if !bits.allowed() {
			return fmt.Errorf("%#x is not a value of the bits %#x of a mark", bits.Value, bits.Mask)
		}
	}
	return nil
}

// Untracked is a UDP port of a network's tunnels, whose interface is Link, that its agent exempts from connection
// tracking.
type Untracked struct {
	Port int    `json:"port"`
	Link string `json:"link"`
	// From are ranges of pods that the agent masquerades when they send to anything but Except. Both are empty where it
	// does not, or does it in another way than to the address of the interface.
	From   []string `json:"from,omitempty"`
	Except []string `json:"except,omitempty"`
}

func (a JoinArgs) allowed() error {
	errs := []error{ranges(slices.Concat(a.Old, a.New))}
	for _, mark := range a.Marks {
		errs = append(errs, mark.allowed())
	}
	return first(errs...)
}
