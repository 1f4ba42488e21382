// Package joint has the steps that all strategies with two networks side by side share: it installs Theseus' agent and
// verifies that measuring works, installs the target next to the source, first on no node and then on all nodes, and at
// the end removes the source, gives the target its own form and removes Theseus.
//
// The package is pure: it turns observations and a requested change into steps.
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

// Input is all data that the steps depend on.
type Input struct {
	Snapshot *cluster.Snapshot
	Source   *cni.Installation
	Target   *cni.Target
	Change   v1alpha1.ChangeSpec
	Waves    []Wave
	// SourceResidue and TargetResidue are what each network leaves on a node.
	SourceResidue step.Residue
	TargetResidue step.Residue
	// Outlook says what happens to pods; estimates use the number of pods per node.
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
	// Limits bound which nodes are changed at once.
	Limits
	// Join names the two networks.
	Join  step.JoinArgs
	Steps []step.Step
	// BeforeClean returns the actions before a node is cleaned of the source; it may be nil.
	BeforeClean func(node string) step.Action
	// Slots are the nodes that the change added.
	Slots []string
	// portReserved is true if nodes use a port for no masqueraded connection, until End.
	portReserved bool
	all          []string
}

// New makes a builder without steps.
func New(in Input) *Builder {
	b := &Builder{Input: in, Limits: LimitsOf(in.Snapshot, in.Change),
		Join: JoinArgs(*in.Source, in.Target.Installation)}
	if objects := Introducing(in.Source, &in.Target.Installation, in.Change.AgentImage,
		len(in.Snapshot.Nodes), in.Snapshot.APIServers); len(objects) > 0 {
		target := *in.Target
		target.Extras = append(slices.Clip(target.Extras), objects...)
		b.Target = &target
	}
	if cession := in.Source.Cession; cession != nil {
		b.SourceResidue = b.SourceResidue.Without(cession.Shared)
		b.TargetResidue = b.TargetResidue.Without(cession.Shared)
	}
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

// stagedIn is the separate folder in which the target's configuration is staged; empty if it is staged in the runtime's
// own folder.
func (b *Builder) stagedIn() string {
	folder, _, deeper := strings.Cut(b.Target.Conf.Staged, "/")
	if !deeper {
		return ""
	}
	return "/etc/cni/net.d/" + folder
}

// Add appends a step and gives it and its actions IDs.
func (b *Builder) Add(s step.Step) {
	s.Number()
	b.Steps = append(b.Steps, s)
}

// Stand sets the waves of the nodes that the cluster has from this step on.
func (b *Builder) Stand(waves []Wave) {
	b.Waves, b.all = waves, nil
	for _, wave := range waves {
		b.all = append(b.all, wave.Nodes...)
	}
}

// Nodes returns all nodes in the order of the waves.
func (b *Builder) Nodes() []string { return b.all }

// Gate is that of the change.
func (b *Builder) Gate(title string, baked bool) *step.Gate { return Gate(b.Change, title, baked) }

// Gate requires that no path had a gap; a baked gate watches the paths for the bake time of the change.
func Gate(change v1alpha1.ChangeSpec, title string, baked bool) *step.Gate {
	gate := &step.Gate{Title: title, MaxGap: step.Duration(DefaultMaxGap), MaxLost: change.MaxLost}
	if change.MaxGapMillis > 0 {
		gate.MaxGap = step.Duration(time.Duration(change.MaxGapMillis) * time.Millisecond)
	}
	if baked {
		gate.Bake = step.Duration(bake(change))
	}
	return gate
}

func bake(change v1alpha1.ChangeSpec) time.Duration {
	if change.BakeSeconds > 0 {
		return time.Duration(change.BakeSeconds) * time.Second
	}
	return DefaultBake
}
