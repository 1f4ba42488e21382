// Package recreate is the strategy that re-creates pods node by node while both networks are joined. The
// target comes up beside the source on no node, then on all of them; only then is one node after another
// switched, which decides for new pods alone, and its old pods are moved by eviction, within their budgets.
// An old pod and a new pod reach each other all the while. Only when no pod is left on the source is it
// taken away.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package recreate

import (
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how users name the strategy.
const Name = "recreate"

// Input is everything that the steps follow from.
type Input struct {
	Snapshot *cluster.Snapshot
	Source   *cni.Installation
	Target   *cni.Target
	Change   v1alpha1.ChangeSpec
	Waves    []Wave
	// SourceResidue and TargetResidue are what either network leaves on a node.
	SourceResidue step.Residue
	TargetResidue step.Residue
	// OldPods counts the pods on the source network per node, for the estimates.
	OldPods map[string]int
}

// Defaults of the gates.
const (
	DefaultMaxGap = time.Second
	DefaultBake   = 5 * time.Second
)

// Steps makes the whole procedure.
func Steps(in Input) []step.Step {
	b := &builder{Input: in, join: JoinArgs(*in.Source, in.Target.Installation)}
	for _, wave := range in.Waves {
		b.all = append(b.all, wave.Nodes...)
	}
	b.prepare()
	b.joint()
	b.switchNodes()
	b.removeSource()
	b.finish()
	return b.steps
}

// builder collects the steps in order.
type builder struct {
	Input
	join  step.JoinArgs
	all   []string
	steps []step.Step
}

func (b *builder) add(s step.Step) {
	number(s.ID, "", s.Actions)
	number(s.ID, "undo-", s.Undo)
	b.steps = append(b.steps, s)
}

// nodes are all nodes in the order of the waves.
func (b *builder) nodes() []string { return b.all }

// gate demands that no path had a gap; baked gates watch for as long as the change says.
func (b *builder) gate(title string, baked bool) *step.Gate {
	gate := &step.Gate{Title: title, MaxGap: step.Duration(DefaultMaxGap), MaxLost: b.Change.MaxLost}
	if b.Change.MaxGapMillis > 0 {
		gate.MaxGap = step.Duration(time.Duration(b.Change.MaxGapMillis) * time.Millisecond)
	}
	if baked {
		gate.Bake = step.Duration(b.bake())
	}
	return gate
}

func (b *builder) bake() time.Duration {
	if b.Change.BakeSeconds > 0 {
		return time.Duration(b.Change.BakeSeconds) * time.Second
	}
	return DefaultBake
}
