package step

import (
	"encoding/json"
	"fmt"
	"sync"
)

// Condition is something observable through the API that must hold.
type Condition struct {
	// Is is what must hold. Its value is never changed, as copies of a condition share it.
	Is Fact
}

// Fact is what must hold: one of the types below.
type Fact interface {
	kind() ConditionKind
	// write puts the fields of the fact into the document of its condition.
	write(into *conditionDocument)
}

// ConditionKind names a kind of condition.
type ConditionKind string

// The kinds of conditions.
const (
	KindEstablished ConditionKind = "established"
	KindRolled      ConditionKind = "rolled"
	KindPodReady    ConditionKind = "pod-ready"
	KindNodeReady   ConditionKind = "node-ready"
	KindNoPods      ConditionKind = "no-pods"
	KindPodGone     ConditionKind = "pod-gone"
	KindGone        ConditionKind = "gone"
	KindNodesAmong  ConditionKind = "nodes-among"
	KindRenders     ConditionKind = "renders"
	KindReports     ConditionKind = "reports"
	KindHas         ConditionKind = "has"
	KindHeld        ConditionKind = "held"
	KindAgentSays   ConditionKind = "agent-says"
)

// A Selector picks pods by labels, as in k=v,k=v.
type (
	// Established: the CustomResourceDefinition Ref serves.
	Established struct{ Ref Ref }
	// Rolled: the workload Ref has all its pods updated and ready.
	Rolled struct{ Ref Ref }
	// PodReady: exactly the pods of Selector in Namespace on Node are Ready, and there is at least one; where CIDRs are
	// given, each has its address in one of them.
	PodReady struct {
		Node, Selector, Namespace string
		CIDRs                     []string
	}
	// NodeReady: Node is Ready.
	NodeReady struct{ Node string }
	// NoPods: no pod of Node (or of any node, when empty) has an address in CIDRs. As with PodSet, pods of
	// the host network, mirror pods and Theseus' own do not count.
	NoPods struct {
		Node  string
		CIDRs []string
		// LeaveEnding does not count pods that are ending, LeaveDaemons those of DaemonSets.
		LeaveEnding, LeaveDaemons bool
	}
	// PodGone: no pod of Selector in Namespace is on Node (or on any node, when empty).
	PodGone struct{ Node, Selector, Namespace string }
	// Gone: Ref does not exist.
	Gone struct{ Ref Ref }
	// NodesAmong: the cluster has no node but those of Nodes.
	NodesAmong struct{ Nodes []string }
	// Renders: new pods of the workload Ref are made from an image whose tag is Version.
	Renders struct {
		Ref     Ref
		Version string
	}
	// Reports: Ref is there, and its status has the conditions Status, by their types: True, False or Unknown.
	Reports struct {
		Ref    Ref
		Status map[string]string
	}
	// Has: Ref exists and has Fields, which are part of an object: of a list in them each item is part of one in the
	// object's, and null is a field that it has not.
	Has struct {
		Ref    Ref
		Fields json.RawMessage
	}
	// Held: the ValidatingAdmissionPolicy Ref denies the deletion of pods of Selector in Namespace, as a trial (a dry
	// run) shows.
	Held struct {
		Ref                 Ref
		Selector, Namespace string
	}
	// AgentSays: the pod of Selector in Namespace on Node said last, in its log, that it runs with Says.
	AgentSays struct {
		Node, Selector, Namespace string
		Says                      Saying
	}
)

// Saying is what the agent of Calico or Cilium says of one of its parameters when it starts, in the log of Container.
type Saying struct {
	Container string `json:"container"`
	// Parameter is its name as the agent has it, such as Felix' NFTablesMode or Cilium's bpf-lb-acceleration, and Value
	// as the agent writes it: Cilium's puts it between apostrophes.
	Parameter string `json:"parameter"`
	Value     string `json:"value"`
}

func (Established) kind() ConditionKind { return KindEstablished }
func (Rolled) kind() ConditionKind      { return KindRolled }
func (PodReady) kind() ConditionKind    { return KindPodReady }
func (NodeReady) kind() ConditionKind   { return KindNodeReady }
func (NoPods) kind() ConditionKind      { return KindNoPods }
func (PodGone) kind() ConditionKind     { return KindPodGone }
func (Gone) kind() ConditionKind        { return KindGone }
func (NodesAmong) kind() ConditionKind  { return KindNodesAmong }
func (Renders) kind() ConditionKind     { return KindRenders }
func (Reports) kind() ConditionKind     { return KindReports }
func (Has) kind() ConditionKind         { return KindHas }
func (Held) kind() ConditionKind        { return KindHeld }
func (AgentSays) kind() ConditionKind   { return KindAgentSays }

// Kind is the kind of the condition; empty for one that demands nothing.
func (c Condition) Kind() ConditionKind {
	if c.Is == nil {
		return ""
	}
	return c.Is.kind()
}

// Ref names the one object that the condition is about; empty if there is none.
func (c Condition) Ref() Ref {
	switch is := c.Is.(type) {
	case Established:
		return is.Ref
	case Rolled:
		return is.Ref
	case Gone:
		return is.Ref
	case Renders:
		return is.Ref
	case Reports:
		return is.Ref
	case Has:
		return is.Ref
	case Held:
		return is.Ref
	}
	return Ref{}
}

// Node is the node that the condition, or its pods, are about; empty if there is none, or all.
func (c Condition) Node() string {
	switch is := c.Is.(type) {
	case PodReady:
		return is.Node
	case NodeReady:
		return is.Node
	case NoPods:
		return is.Node
	case PodGone:
		return is.Node
	case AgentSays:
		return is.Node
	}
	return ""
}

// Namespace is that of the pods that the condition selects by their labels; empty if it selects none.
func (c Condition) Namespace() string {
	switch is := c.Is.(type) {
	case PodReady:
		return is.Namespace
	case PodGone:
		return is.Namespace
	case Held:
		return is.Namespace
	case AgentSays:
		return is.Namespace
	}
	return ""
}

// conditionDocument is a condition as plans and journals have it: the fields of all kinds side by side, in the order in
// which they are written.
type conditionDocument struct {
	Kind         ConditionKind     `json:"kind"`
	Ref          Ref               `json:"ref,omitzero"`
	Node         string            `json:"node,omitempty"`
	Selector     string            `json:"selector,omitempty"`
	Namespace    string            `json:"namespace,omitempty"`
	CIDRs        []string          `json:"cidrs,omitempty"`
	Nodes        []string          `json:"nodes,omitempty"`
	Says         Saying            `json:"says,omitzero"`
	Version      string            `json:"version,omitempty"`
	Reports      map[string]string `json:"reports,omitempty"`
	Fields       json.RawMessage   `json:"fields,omitempty"`
	LeaveEnding  bool              `json:"leaveEnding,omitempty"`
	LeaveDaemons bool              `json:"leaveDaemons,omitempty"`
}

func (is Established) write(d *conditionDocument) { d.Ref = is.Ref }
func (is Rolled) write(d *conditionDocument)      { d.Ref = is.Ref }
func (is NodeReady) write(d *conditionDocument)   { d.Node = is.Node }
func (is Gone) write(d *conditionDocument)        { d.Ref = is.Ref }
func (is NodesAmong) write(d *conditionDocument)  { d.Nodes = is.Nodes }
func (is Renders) write(d *conditionDocument)     { d.Ref, d.Version = is.Ref, is.Version }
func (is Reports) write(d *conditionDocument)     { d.Ref, d.Reports = is.Ref, is.Status }
func (is Has) write(d *conditionDocument)         { d.Ref, d.Fields = is.Ref, is.Fields }
func (is PodReady) write(d *conditionDocument) {
	d.Node, d.Selector, d.Namespace, d.CIDRs = is.Node, is.Selector, is.Namespace, is.CIDRs
}
func (is NoPods) write(d *conditionDocument) {
	d.Node, d.CIDRs, d.LeaveEnding, d.LeaveDaemons = is.Node, is.CIDRs, is.LeaveEnding, is.LeaveDaemons
}
func (is PodGone) write(d *conditionDocument) {
	d.Node, d.Selector, d.Namespace = is.Node, is.Selector, is.Namespace
}
func (is Held) write(d *conditionDocument) {
	d.Ref, d.Selector, d.Namespace = is.Ref, is.Selector, is.Namespace
}
func (is AgentSays) write(d *conditionDocument) {
	d.Node, d.Selector, d.Namespace, d.Says = is.Node, is.Selector, is.Namespace, is.Says
}

// fact takes the fact out of the document. What it leaves in it does not belong to the kind of condition.
func (d *conditionDocument) fact() (Fact, error) {
	switch d.Kind {
	case KindEstablished:
		return Established{take(&d.Ref)}, nil
	case KindRolled:
		return Rolled{take(&d.Ref)}, nil
	case KindPodReady:
		return PodReady{take(&d.Node), take(&d.Selector), take(&d.Namespace), take(&d.CIDRs)}, nil
	case KindNodeReady:
		return NodeReady{take(&d.Node)}, nil
	case KindNoPods:
		return NoPods{take(&d.Node), take(&d.CIDRs), take(&d.LeaveEnding), take(&d.LeaveDaemons)}, nil
	case KindPodGone:
		return PodGone{take(&d.Node), take(&d.Selector), take(&d.Namespace)}, nil
	case KindGone:
		return Gone{take(&d.Ref)}, nil
	case KindNodesAmong:
		return NodesAmong{take(&d.Nodes)}, nil
	case KindRenders:
		return Renders{take(&d.Ref), take(&d.Version)}, nil
	case KindReports:
		return Reports{take(&d.Ref), take(&d.Reports)}, nil
	case KindHas:
		return Has{take(&d.Ref), take(&d.Fields)}, nil
	case KindHeld:
		return Held{take(&d.Ref), take(&d.Selector), take(&d.Namespace)}, nil
	case KindAgentSays:
		return AgentSays{take(&d.Node), take(&d.Selector), take(&d.Namespace), take(&d.Says)}, nil
	case "":
		return nil, nil
	}
	return nil, fmt.Errorf("the condition %q is not known", d.Kind)
}

// MarshalJSON writes the fields of the fact beside its kind.
func (c Condition) MarshalJSON() ([]byte, error) { return json.Marshal(c.document()) }

// Document is what an encoder writes of a condition, as that of an action.
func (c Condition) Document() any { return c.document() }

func (c Condition) document() *conditionDocument {
	d := &conditionDocument{}
	c.fill(d)
	return d
}

func (c Condition) fill(d *conditionDocument) {
	if c.Is != nil {
		d.Kind = c.Is.kind()
		c.Is.write(d)
	}
}

func conditionDocuments(conditions []Condition) []conditionDocument {
	if len(conditions) == 0 {
		return nil
	}
	all := make([]conditionDocument, len(conditions))
	for i, c := range conditions {
		c.fill(&all[i])
	}
	return all
}

// UnmarshalJSON reads a condition. A field that its kind does not have is an error.
func (c *Condition) UnmarshalJSON(data []byte) error {
	d := emptiedConditions.Get().(*conditionDocument)
	if err := strict(data, d); err != nil {
		return err
	}
	if err := c.take(d); err != nil {
		return err
	}
	emptiedConditions.Put(d)
	return nil
}

// take reads the condition out of a document, which is empty then.
func (c *Condition) take(d *conditionDocument) error {
	fact, err := d.fact()
	if err != nil {
		return err
	}
	kind := take(&d.Kind)
	if name := left(d); name != "" {
		return fmt.Errorf("the condition %q has no field %q", kind, name)
	}
	c.Is = fact
	return nil
}

// emptiedConditions has documents out of which everything was taken.
var emptiedConditions = sync.Pool{New: func() any { return &conditionDocument{} }}
