// Package joint holds what the strategies that run two networks side by side have in common: Theseus itself is
// installed and measuring proven, the target comes up beside the source on no node and then on all of them, and
// at the end the source is cleaned away, the target gets its own form and Theseus leaves.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package joint

import (
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

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
	// Outlook says what happens to pods: their number per node is for the estimates.
	Outlook Outlook
}

// Defaults of the gates.
const (
	DefaultMaxGap = time.Second
	DefaultBake   = 5 * time.Second
)

// Builder collects the steps in order.
type Builder struct {
	Input
	// Join names the two networks.
	Join  step.JoinArgs
	Steps []step.Step
	// BeforeClean is what a node needs before it is cleaned of the source; it may be nil.
	BeforeClean func(node string) step.Action
	// Slots are the nodes that came in the course of the change.
	Slots []string
	// spared: nodes keep connections off a port, until the end.
	spared bool
	all    []string
}

// New makes a builder without steps.
func New(in Input) *Builder {
	b := &Builder{Input: in, Join: JoinArgs(*in.Source, in.Target.Installation)}
	for _, name := range []string{in.Target.Conf.Staged, in.Target.Conf.Active} { // which may be renamed, to sort first
		if name != "" && !slices.Contains(b.TargetResidue.ConfFiles, name) {
			b.TargetResidue.ConfFiles = append(slices.Clip(b.TargetResidue.ConfFiles), name)
		}
	}
	if folder := b.stagedIn(); folder != "" {
		b.TargetResidue.Paths = append(slices.Clip(b.TargetResidue.Paths), folder)
	}
	b.Stand(in.Waves)
	return b
}

// stagedIn is the folder of nodes in which alone the target's configuration is staged; empty where it is beside those that serve.
func (b *Builder) stagedIn() string {
	folder, _, deeper := strings.Cut(b.Target.Conf.Staged, "/")
	if !deeper {
		return ""
	}
	return "/etc/cni/net.d/" + folder
}

// Add appends a step and gives it and its actions IDs.
func (b *Builder) Add(s step.Step) {
	s.Identify()
	number(s.ID, "", s.Actions)
	number(s.ID, "undo-", s.Undo)
	b.Steps = append(b.Steps, s)
}

// Stand sets the waves of the nodes that the cluster has from here on.
func (b *Builder) Stand(waves []Wave) {
	b.Waves, b.all = waves, nil
	for _, wave := range waves {
		b.all = append(b.all, wave.Nodes...)
	}
}

// Nodes are all nodes in the order of the waves.
func (b *Builder) Nodes() []string { return b.all }

// Gate demands that no path had a gap; baked gates watch for as long as the change says.
func (b *Builder) Gate(title string, baked bool) *step.Gate {
	gate := &step.Gate{Title: title, MaxGap: step.Duration(DefaultMaxGap), MaxLost: b.Change.MaxLost}
	if b.Change.MaxGapMillis > 0 {
		gate.MaxGap = step.Duration(time.Duration(b.Change.MaxGapMillis) * time.Millisecond)
	}
	if baked {
		gate.Bake = step.Duration(b.Bake())
	}
	return gate
}

// Bake is how long baked gates watch.
func (b *Builder) Bake() time.Duration {
	if b.Change.BakeSeconds > 0 {
		return time.Duration(b.Change.BakeSeconds) * time.Second
	}
	return DefaultBake
}
