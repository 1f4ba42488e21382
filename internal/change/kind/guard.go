package kind

import (
	"cmp"
	"time"

	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Guard says what is measured, and how: a command of the user, or changes that others make. The plan does not know what
// they change.
type Guard struct {
	// Command is the program and its arguments. No shell sees them. It is empty if Others is true.
	Command []string `json:"command,omitempty"`
	// Others is true if others make the changes, until the user says that they have ended.
	Others bool `json:"others,omitempty"`
	// OnLoss is the command that runs at once when a loss is proven, at most once; none if it is empty.
	OnLoss []string `json:"onLoss,omitempty"`
	// Kill ends Command when a loss is proven.
	Kill bool `json:"kill,omitempty"`
	// Quiet is how long no probe may be lost before the watching after the change ends, and AtMost bounds the watching.
	Quiet  step.Duration `json:"quiet"`
	AtMost step.Duration `json:"atMost"`
	// LossyBefore accepts losses before the change.
	LossyBefore bool `json:"lossyBefore,omitempty"`
	// NewPods is the time between two rounds of new pods while Command runs; no new pods are made if it is 0, as in
	// plans of earlier releases.
	NewPods step.Duration `json:"newPods,omitempty"`
	// SamplePolicies is how many pairs of pods the user allows to be connected; Pairs are those that were chosen.
	SamplePolicies int         `json:"samplePolicies,omitempty"`
	Pairs          []step.Pair `json:"pairs,omitempty"`
	// Unevaluated are the policies of the cluster that Theseus' model leaves out, each with what may follow: no pair
	// has a pod about which one of them may decide.
	Unevaluated []string `json:"unevaluated,omitempty"`
	// HostPorts says that the probe pods have ports of their nodes, and NoHostPorts why they have none.
	HostPorts   bool   `json:"hostPorts,omitempty"`
	NoHostPorts string `json:"noHostPorts,omitempty"`
	// LocalDNS is the address of the name server that every node has for its own pods; empty if none was found.
	LocalDNS string `json:"localDNS,omitempty"`
}

// others is the word for changes that no command of Theseus' user makes here.
const others = "changes by others"

// String is the command as one would type it, or says that others make the changes.
func (g *Guard) String() string {
	if g.Others {
		return others
	}
	return shell.Words(g.Command...)
}

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

// Exempts is false: no step changes how nodes translate addresses.
func (g *Guard) Exempts() bool { return false }

// Foreign says whether the plan measures changes that are not its own, and of which it does not know what they change.
// Then the versions of the cluster may change meanwhile.
func (p *Plan) Foreign() bool { return p.Guarded != nil }

// NewPods is the time between two rounds of new pods while the user's command runs; 0 if the plan makes no new pods.
// meanwhile is false if no process runs during the change, and new pods are made before and after it alone.
func (p *Plan) NewPods() (every time.Duration, meanwhile bool) {
	if p.Guarded == nil {
		return 0, false
	}
	return time.Duration(p.Guarded.NewPods), !p.Guarded.Others
}

// Pairs are the pairs of pods that the plan samples.
func (p *Plan) Pairs() []step.Pair {
	if p.Guarded == nil {
		return nil
	}
	return p.Guarded.Pairs
}

// Local says what a guard measures on a pod's own node alone: whether probe pods have ports of their nodes, and the
// address of the name server of every node, empty for none. measured is false for all other plans.
func (p *Plan) Local() (measured, hostPorts bool, dns string) {
	if p.Guarded == nil {
		return false, false, ""
	}
	return true, p.Guarded.HostPorts, p.Guarded.LocalDNS
}

// NoHostPorts is why the probe pods of a guard have no ports of their nodes; empty if nothing is known against it.
func (p *Plan) NoHostPorts() string {
	if p.Guarded == nil {
		return ""
	}
	return p.Guarded.NoHostPorts
}

// Unevaluated are the policies about which the plan samples nothing, since Theseus does not evaluate them.
func (p *Plan) Unevaluated() []string {
	if p.Guarded == nil {
		return nil
	}
	return p.Guarded.Unevaluated
}

// LossyBefore says whether a plan that measures foreign changes goes on although its baseline loses probes.
func (p *Plan) LossyBefore() bool { return p.Guarded != nil && p.Guarded.LossyBefore }
