package replace

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Model is what is known of a cluster after a prefix of a plan.
type Model struct {
	// After is the ID of the last step that was done; empty before the first.
	After string `json:"after"`
	// Nodes are in the order of the waves.
	Nodes []NodeModel `json:"nodes"`
	// Present are the objects that the plan makes or deletes and that exist now, as step.Ref prints them.
	Present map[string]bool `json:"present"`
}

// Side is one of the two networks.
type Side string

// The two networks.
const (
	Source Side = "source"
	Target Side = "target"
)

// NodeModel is what is known of one node.
type NodeModel struct {
	Name string `json:"name"`
	// Active is the network whose CNI configuration the runtime reads: always exactly one.
	Active Side `json:"active"`
	// SourceAgent and TargetAgent run here, so that traffic to their networks is carried.
	SourceAgent bool `json:"sourceAgent"`
	TargetAgent bool `json:"targetAgent"`
	// PodsOld and PodsNew: there may be pods of users on the source, on the target. Moved: those on the source are
	// ending.
	PodsOld bool `json:"podsOld"`
	PodsNew bool `json:"podsNew"`
	Moved   bool `json:"moved,omitempty"`
	// Joined: the rules that join both networks are in force.
	Joined bool `json:"joined"`
	// Labelled and Pending: the target's label, the soft taint.
	Labelled bool `json:"labelled"`
	Pending  bool `json:"pending"`
	// ProbeOld and ProbeNew: a probe pod is there; ReadyOld and ReadyNew: it is known to be ready;
	// MeasuredOld and MeasuredNew: its paths are measured.
	ProbeOld    bool `json:"probeOld"`
	ProbeNew    bool `json:"probeNew"`
	ReadyOld    bool `json:"readyOld"`
	ReadyNew    bool `json:"readyNew"`
	MeasuredOld bool `json:"measuredOld"`
	MeasuredNew bool `json:"measuredNew"`
	// SourceResidue and TargetResidue: what a network leaves is (or may be) on the node; Staged: a
	// configuration under its staged name may be there.
	SourceResidue bool `json:"sourceResidue"`
	TargetResidue bool `json:"targetResidue"`
	Staged        bool `json:"staged"`
	// Emptied: it was observed that no pod is left on the source here.
	Emptied bool `json:"emptied"`
	// OwnForm: the target's agent was restarted in its own form.
	OwnForm bool `json:"ownForm"`
	// Guarded: what the target's agent denies stays denied while it restarts.
	Guarded bool `json:"guarded"`
	// Of the strategy adopt. Canary: the source's probe pod is on the target; Proven: and a gate has seen its
	// traffic; Adopted: so are all others; Swept: and the
	// source can make no new one; Verified: it was seen once more that none is left; Selected: the target may give new
	// pods addresses here; Held: the source's routes between nodes have a higher metric; Pinned: they serve all the
	// same; Carried: the target has its own; Yielded: which serve; Settled: the source has let go of every address.
	Canary   bool `json:"canary,omitempty"`
	Proven   bool `json:"proven,omitempty"`
	Adopted  bool `json:"adopted,omitempty"`
	Swept    bool `json:"swept,omitempty"`
	Verified bool `json:"verified,omitempty"`
	Selected bool `json:"selected,omitempty"`
	Held     bool `json:"held,omitempty"`
	Pinned   bool `json:"pinned,omitempty"`
	Carried  bool `json:"carried,omitempty"`
	Yielded  bool `json:"yielded,omitempty"`
	Settled  bool `json:"settled,omitempty"`
	// Of the strategy surge. Added: it comes in the course of the change; Away: it is not in the cluster, or not any
	// more; Out: it does not count among those that both networks must be whole on, as no pod of the user's may be
	// there; Shut: no pod comes to it; Slot: it has the label by which the plan knows it; Hands: Theseus' agent is
	// ready there.
	Added  bool `json:"added,omitempty"`
	Away   bool `json:"away,omitempty"`
	Out    bool `json:"out,omitempty"`
	Repels bool `json:"shut,omitempty"`
	Slot   bool `json:"slot,omitempty"`
	Hands  bool `json:"hands,omitempty"`
	// Ceded: the source's agent has left a part of its work on the node to the target's.
	Ceded bool `json:"ceded,omitempty"`
	// Counted: stock was taken of the source's residue; Recounted: again after it was cleaned.
	Counted   bool `json:"counted"`
	Recounted bool `json:"recounted"`
	wave      int
}

// tally counts the nodes of which something holds, so that rules need not look at each; those that are Out are none.
type tally struct {
	nodes                                                                   int
	sourceAgents, targetAgents, podsOld, podsNew, joined, labelled, pending int
	probes, measured, onTarget, emptied, sourceResidue, staged, recounted   int
	ownForm, guarded, selected, pinned, carried, yielded, verified, swept   int
	adopted, ceded                                                          int
	// half counts by wave the nodes that are switched, and on which pods on the source may go on; moving those of which
	// pods are adopted, but not all.
	half, moving perWave
}

func (m *machine) count(n *NodeModel, by int) {
	if n.Out {
		return
	}
	t := &m.tally
	t.nodes += by
	add := func(in *int, holds bool) {
		if holds {
			*in += by
		}
	}
	add(&t.sourceAgents, n.SourceAgent)
	add(&t.targetAgents, n.TargetAgent)
	add(&t.podsOld, n.PodsOld)
	add(&t.podsNew, n.PodsNew)
	add(&t.joined, n.Joined)
	add(&t.labelled, n.Labelled)
	add(&t.pending, n.Pending)
	add(&t.probes, n.ProbeOld || n.ProbeNew)
	add(&t.measured, n.MeasuredOld || n.MeasuredNew)
	add(&t.onTarget, n.Active == Target)
	t.half.add(n.wave, by, n.Active == Target && n.PodsOld && !n.Moved)
	t.moving.add(n.wave, by, n.Canary && (m.flat() && !n.Adopted || !m.flat() && (!n.Selected || n.PodsOld)))
	add(&t.swept, n.Swept)
	add(&t.adopted, n.Adopted)
	add(&t.ceded, n.Ceded)
	add(&t.emptied, n.Emptied)
	add(&t.sourceResidue, n.SourceResidue)
	add(&t.staged, n.Staged)
	add(&t.recounted, n.Recounted)
	add(&t.ownForm, n.OwnForm)
	add(&t.guarded, n.Guarded)
	add(&t.selected, n.Selected)
	add(&t.pinned, n.Pinned)
	add(&t.yielded, n.Yielded)
	add(&t.carried, n.Carried)
	add(&t.verified, n.Verified)
}

// perWave counts nodes by their wave, and knows no wave without one.
type perWave map[int]int

func (p perWave) add(wave, by int, holds bool) {
	if !holds {
		return
	}
	if p[wave] += by; p[wave] == 0 {
		delete(p, wave)
	}
}

// elsewhere says whether there are such nodes in other waves than this.
func (p perWave) elsewhere(wave int) bool { return len(p) > 1 || len(p) == 1 && p[wave] == 0 }

// machine carries a model through actions, and keeps a log by which it can be taken back.
type machine struct {
	plan  *kind.Plan
	nodes []NodeModel
	index map[string]int
	tally tally
	facts map[string]bool
	log   []change
	// kinds maps "group/Kind" to the definition that the plan makes for it.
	kinds map[string]step.Ref
	// extras are objects that the plan makes for the time of both networks only.
	extras []step.Ref
	// ranges are the target's objects that stand for the source's ranges, as far as one was changed.
	ranges []step.Ref
	// introducing are the objects that introduce the source's pods to the target's agents.
	introducing map[step.Ref]*unstructured.Unstructured
	// source parts by reference.
	parts map[step.Ref]bool
	// guards is true when the plan guards what the target denies while its agents restart.
	guards bool
	// What actions carry, as far as it was read.
	adoptArgs step.Reader[step.AdoptArgs]
	holdArgs  step.Reader[step.HoldArgs]
	joinArgs  step.Reader[step.JoinArgs]
	residues  step.Reader[step.Residue]
	labels    step.Reader[labelPatch]
	// undoing is true while a step is taken back, gone once the point of no return is passed.
	undoing, noReturn bool
	order             map[string][]string
}

// labelPatch are the labels that a patch sets, or removes.
type labelPatch struct {
	Metadata struct{ Labels map[string]*string }
}

// change is one entry of the log: a node or a fact as it was.
type change struct {
	node   int // -1 for a fact
	before NodeModel
	fact   string
	held   bool
}

func newMachine(p *kind.Plan) *machine {
	m := &machine{plan: p, index: map[string]int{}, facts: map[string]bool{}, kinds: map[string]step.Ref{},
		introducing: map[step.Ref]*unstructured.Unstructured{}, parts: map[step.Ref]bool{},
		order: map[string][]string{}, tally: tally{half: perWave{}, moving: perWave{}},
		adoptArgs: step.Reader[step.AdoptArgs]{}, holdArgs: step.Reader[step.HoldArgs]{},
		joinArgs: step.Reader[step.JoinArgs]{}, residues: step.Reader[step.Residue]{},
		labels: step.Reader[labelPatch]{}}
	for w, wave := range p.Waves {
		for _, name := range wave.Nodes {
			m.know(NodeModel{Name: name, Active: Source, SourceAgent: p.Source.HasAgent(), PodsOld: true,
				SourceResidue: true, wave: w})
		}
	}
	m.expect(p.Surge)
	for _, part := range p.Source.Parts {
		m.parts[part] = true
		m.facts[exists(part)] = true
	}
	m.extras = extrasOf(p)
	objects := joint.Introducing(&p.Source, &p.Target, p.Change.AgentImage, len(p.Cluster.Nodes),
		p.Cluster.APIServers)
	for i := range objects {
		m.introducing[step.RefOf(&objects[i])] = &objects[i]
	}
	for i := range p.Steps {
		for j := range p.Steps[i].Actions {
			a := &p.Steps[i].Actions[j]
			m.guards = m.guards || a.Verb() == step.VerbGuard
			m.define(a)
		}
	}
	return m
}

func (m *machine) know(n NodeModel) {
	m.index[n.Name] = len(m.nodes)
	m.nodes = append(m.nodes, n)
	m.count(&n, 1)
}

// define remembers which kind a definition that the plan makes is of: objects of it come after it.
func (m *machine) define(a *step.Action) {
	if a.Op() != step.OpApply || a.Object().GetKind() != "CustomResourceDefinition" {
		return
	}
	group, _, _ := unstructured.NestedString(a.Object().Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(a.Object().Object, "spec", "names", "kind")
	m.kinds[group+"/"+kind] = step.RefOf(a.Object())
}

func exists(ref step.Ref) string { return "exists " + ref.String() }

// absent: before the target, an object was not there that the target creates itself. To take that back, the object is
// deleted.
func absent(ref step.Ref) string { return "absent " + ref.String() }

// left says that an object is Theseus' no more.
func left(ref step.Ref) string { return "left " + ref.String() }

func rolledOut(ref step.Ref) string { return "known rolled " + ref.String() }

func serves(ref step.Ref) string { return "known serving " + ref.String() }

// extrasOf finds the objects that a plan makes and that belong neither to the target nor to Theseus: they
// are there for the joint phase only.
func extrasOf(p *kind.Plan) []step.Ref {
	known := map[step.Ref]bool{}
	for _, part := range p.Target.Parts {
		known[part] = true
	}
	var found []step.Ref
	for i := range p.Steps {
		for j := range p.Steps[i].Actions {
			action := &p.Steps[i].Actions[j]
			if action.Op() != step.OpApply {
				continue
			}
			if ref := step.RefOf(action.Object()); !known[ref] && !verify.Ours(ref) {
				known[ref] = true
				found = append(found, ref)
			}
		}
	}
	return found
}

func (m *machine) edit(node int, apply func(*NodeModel)) {
	before := m.nodes[node]
	after := before
	apply(&after)
	if after == before {
		return
	}
	m.log = append(m.log, change{node: node, before: before})
	m.count(&before, -1)
	m.count(&after, 1)
	m.nodes[node] = after
}

func (m *machine) set(fact string, holds bool) {
	if m.facts[fact] == holds {
		return
	}
	m.log = append(m.log, change{node: -1, fact: fact, held: !holds})
	m.facts[fact] = holds
}

// rewind takes the log back to a length that it had.
func (m *machine) rewind(length int) {
	for i := len(m.log) - 1; i >= length; i-- {
		entry := m.log[i]
		if entry.node < 0 {
			m.facts[entry.fact] = entry.held
			continue
		}
		m.count(&m.nodes[entry.node], -1)
		m.count(&entry.before, 1)
		m.nodes[entry.node] = entry.before
	}
	m.log = m.log[:length]
}
