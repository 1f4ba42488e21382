package kind

import (
	"cmp"

	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Guard says which command of the user is measured, and how. The plan does not know what the command changes.
type Guard struct {
	// Command is the program and its arguments. No shell sees them.
	Command []string `json:"command"`
	// OnLoss is the command that runs at once when a loss is proven, at most once; none if it is empty.
	OnLoss []string `json:"onLoss,omitempty"`
	// Kill ends Command when a loss is proven.
	Kill bool `json:"kill,omitempty"`
	// Quiet is how long no probe may be lost before the watching after the command ends, and AtMost bounds the watching.
	Quiet  step.Duration `json:"quiet"`
	AtMost step.Duration `json:"atMost"`
	// LossyBefore accepts losses before the command.
	LossyBefore bool `json:"lossyBefore,omitempty"`
}

// String is the command as one would type it.
func (g *Guard) String() string { return shell.Words(g.Command...) }

// unknownNetwork is the word for a network that no driver detects.
const unknownNetwork = "unknown network"

// Words say the network and the command.
func (g *Guard) Words(network string) (from, to string) {
	return cmp.Or(network, unknownNetwork), g.String()
}

// Ends add the version of the network.
func (g *Guard) Ends(source, _ cni.Installation) (from, to string) {
	return g.Words(source.Versioned())
}

// Setting is empty.
func (g *Guard) Setting() string { return "" }

// InPlace is true: the plan itself moves no pod.
func (g *Guard) InPlace() bool { return true }

// Spares is false: no step changes how nodes translate addresses.
func (g *Guard) Spares() bool { return false }

// Foreign says whether the plan runs a command of which nobody knows what it changes. Then the versions of the cluster may change
// meanwhile.
func (p *Plan) Foreign() bool { return p.Guarded != nil }
