// Package pool is the strategy that gives pods of the network in place addresses of another range: Theseus creates a
// new IPPool that selects no node. Probe pods that request its addresses prove it on every node. Then the new pool is
// opened, the old one is closed, and pods are recreated within their PodDisruptionBudgets.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package pool

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how plans name the strategy.
const Name = "pool"

// Pools are the two.
type Pools struct {
	// Old is left. New comes, as it is made first: with a selector that picks no node.
	Old step.Ref
	New unstructured.Unstructured
	// Open lets New give addresses, and Close ends that of Old for pods; Shut and Reopen take them back. All are merge
	// patches.
	Open, Deselect, Close, Reopen json.RawMessage
	// Ask are annotations of pods that get an address of New before it is open.
	Ask map[string]string
	// Stays is true where nodes still have addresses of Old for their tunnels, so that it cannot go.
	Stays bool
}

// Steps makes the whole procedure. The ranges are those of the source and the target of in.
func Steps(in joint.Input, pools Pools) []step.Step {
	b := &builder{joint.New(in), pools}
	b.Prepare()
	b.SparePort()
	b.create()
	b.open()
	for i, wave := range b.Waves {
		groups := b.Groups(wave.Nodes)
		for j, nodes := range groups {
			b.Move(wave, nodes, b.old(), b.new(), j == len(groups)-1, i == len(b.Waves)-1)
		}
	}
	last, services := len(b.Steps), []string{"old", "new"}
	if !pools.Stays {
		b.remove()
		services = []string{"new"}
	}
	b.End(services, services)
	b.Steps[last].NoReturn = true
	return b.Steps
}

type builder struct {
	*joint.Builder
	Pools
}

func (b *builder) old() string { return "IPPool " + b.Old.Name }
func (b *builder) new() string { return "IPPool " + b.New.GetName() }

// both measures the probe pods of both ranges.
func both(title string) step.Action {
	return joint.Probe(title, step.PathSet{Old: joint.Every(), New: joint.Every()})
}

// create proves the new range everywhere before any pod of users is in it.
func (b *builder) create() {
	probe := manifest.ProbePods(b.Change.AgentImage, "new")
	undo := []step.Action{joint.Probe("measure only the paths over "+b.old(), step.PathSet{Old: joint.Every()})}
	undo = append(undo, joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.Remove(joint.ProbePod(node, "new"))
	})...)
	b.Add(step.Step{
		Group: "pool", Does: "create", Title: "Create " + b.new() + " for probe pods only",
		Why: "A probe pod on every node requests an address from it. So probes can show that both ranges reach each " +
			"other without masquerading, before any other pod gets an address from the new range.",
		Actions: slices.Concat(
			[]step.Action{joint.Apply(b.New)},
			joint.OnEach(b.Nodes(), func(node string) step.Action {
				pod := probe(node)
				pod.SetAnnotations(b.Ask)
				return joint.Apply(*pod)
			}),
			joint.OnEach(b.Nodes(), func(node string) step.Action {
				return joint.Wait("wait until the new probe pod of "+node+" is ready",
					joint.ProbePodReady(node, "new"), b.Fleet(3*time.Minute))
			}),
			[]step.Action{both("measure the paths between both ranges")}),
		Undo: append(undo, joint.Remove(step.RefOf(&b.New))),
		Gate: b.Gate("pods of both ranges reach each other on every node", true),
	})
}

func (b *builder) patch(ref step.Ref, patch json.RawMessage, title string) step.Action {
	return step.Action{Do: step.Patch{Ref: ref, Merge: patch}, Title: title}
}

// open is where new pods begin to get addresses of the new range.
func (b *builder) open() {
	undo := []step.Action{
		b.patch(b.Old, b.Reopen, "let "+b.old()+" assign addresses to pods again"),
		b.patch(step.RefOf(&b.New), b.Deselect, "stop "+b.new()+" from assigning addresses"),
	}
	undo = append(undo, joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.Evict(node, b.new(), b.Join.New, len(b.Outlook.PerNode[node]))
	})...)
	b.Add(step.Step{
		Group: "pool", Does: "open", Title: "Assign new pods addresses from " + b.new() + " instead of " + b.old(),
		Why: "From here on, every pod that starts is in the new range. Running pods keep their " +
			"addresses and connections.",
		Actions: []step.Action{
			b.patch(step.RefOf(&b.New), b.Open, "let "+b.new()+" assign addresses to pods"),
			b.patch(b.Old, b.Close, "stop "+b.old()+" from assigning addresses to pods"),
		},
		Undo: undo,
		Gate: b.Gate("traffic is unaffected by the change of pools", true),
	})
}

// remove is the point of no return.
func (b *builder) remove() {
	actions := []step.Action{joint.Probe("measure only the new range", step.PathSet{New: joint.Every()})}
	removals := joint.OnEach(b.Nodes(), func(node string) step.Action {
		return joint.Remove(joint.ProbePod(node, "old"))
	})
	actions = append(actions, joint.Together(append(removals, joint.RemoveProbeServices("old")...))...)
	b.Add(step.Step{
		Group: "pool", Does: "remove", Title: "Remove " + b.old(),
		Why:     "No pod has an address from it any more.",
		Before:  []step.Condition{{Is: step.NoPods{CIDRs: b.Join.Old}}},
		Actions: append(actions, joint.Remove(b.Old)),
		After:   []step.Condition{joint.Gone(b.Old)},
		Gate:    b.Gate("traffic is unaffected without "+b.old(), true),
	})
}
