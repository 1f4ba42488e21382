package compact

import (
	"encoding/json"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// Form are the steps of a plan, folded.
type Form struct {
	// Procedures are the steps that several rows run, by name. They lack the fields that a row has.
	Procedures map[string]json.RawMessage
	// Steps are rows and steps that are written out, in the order in which they run.
	Steps []json.RawMessage
}

// Wave is a named list of nodes.
type Wave struct {
	Name  string
	Nodes []string
}

// Cluster are the nodes that a form refers to.
type Cluster struct {
	All   []string
	Waves []Wave
}

// wave are the nodes of a wave; nil where there is none of the name.
func (c Cluster) wave(name string) []string {
	for _, wave := range c.Waves {
		if wave.Name == name {
			return wave.Nodes
		}
	}
	return nil
}

// isReverse says whether b has the nodes of a, the last first.
func isReverse(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[len(b)-1-i] {
			return false
		}
	}
	return true
}

func reverse(nodes []string) []string {
	back := slices.Clone(nodes)
	slices.Reverse(back)
	return back
}

// Row is a step that runs a procedure.
type Row struct {
	Procedure string `json:"procedure"`
	Wave      string `json:"wave,omitempty"`
	// Part is the part of the wave, as in part-3, where the step has one.
	Part string `json:"part,omitempty"`
	// Node is the node of a step that is about one; Nodes are those of a step that is about several.
	Node  string `json:"node,omitempty"`
	Nodes *Nodes `json:"nodes,omitempty"`
	// Estimate is left out where it is that of the procedure.
	Estimate *step.Duration `json:"estimate,omitempty"`
}

// each is an entry of a list that stands for several.
type each struct {
	ForEach Batches `json:"forEach"`
	// InTurn does everything for one node before the next. Else every entry of Do is done for all nodes of a batch,
	// which are done together where Do is of actions, before the next entry.
	InTurn bool              `json:"inTurn,omitempty"`
	Do     []json.RawMessage `json:"do"`
}

// The names of lists of nodes.
const (
	all    = "all"   // every node of the cluster
	ofStep = "nodes" // the nodes of the row
	ofWave = "wave"  // the nodes of the step's wave

	reversed = "-reversed" // after one of these names: the last node first
)

// Nodes is a list of nodes: its name, or the nodes.
type Nodes struct {
	Name string
	List []string
}

// MarshalJSON writes the name or the list.
func (n Nodes) MarshalJSON() ([]byte, error) {
	if n.Name != "" {
		return json.Marshal(n.Name)
	}
	return json.Marshal(n.List)
}

// UnmarshalJSON reads a name or a list.
func (n *Nodes) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &n.List)
	}
	return json.Unmarshal(data, &n.Name)
}

// Batches are the nodes of an each: the name of a list, a list, or a list of lists, one after the other.
type Batches struct {
	Name  string
	Lists [][]string
}

// MarshalJSON writes the name, the list, or the lists.
func (b Batches) MarshalJSON() ([]byte, error) {
	switch {
	case b.Name != "":
		return json.Marshal(b.Name)
	case len(b.Lists) == 1:
		return json.Marshal(b.Lists[0])
	}
	return json.Marshal(b.Lists)
}

// UnmarshalJSON reads a name, a list, or lists.
func (b *Batches) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, &b.Name)
	}
	if json.Unmarshal(data, &b.Lists) == nil {
		return nil
	}
	b.Lists = make([][]string, 1)
	return json.Unmarshal(data, &b.Lists[0])
}
