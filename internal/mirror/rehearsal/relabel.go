package rehearsal

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Relabel is what a change of labels does to a node of the scratch cluster.
type Relabel struct {
	Node string
	// Labels are the new values; nil is none.
	Labels map[string]*string
}

// Relabelled is a label that the rehearsed change gave a node or took from it: its value then, and the one before.
type Relabelled struct {
	Now *string `json:"now"`
	Was *string `json:"was"`
}

// MixedLabels is the lack of a copy in which a node stands for nodes that a change of labels affects, and for others.
const MixedLabels = "nodes that keep their labels, next to nodes that do not"

// Relabels are what a change of the original's labels does to the scratch cluster's nodes that stand for its nodes.
// Where one stands for nodes that the change affects and for others, that is a lack of the copy.
func (c *Copy) Relabels(effects []whatif.Effect) []Relabel {
	all := map[string]map[string]*string{}
	others := map[string]bool{}
	for _, effect := range effects {
		if effect.What != whatif.Label {
			continue
		}
		var to *string
		if !effect.Removed {
			to = &effect.Value
		}
		for name, stands := range c.standing() {
			hit := 0
			for _, original := range stands {
				if slices.Contains(effect.Nodes, original) {
					hit++
				}
			}
			if hit == 0 {
				continue
			}
			if all[name] == nil {
				all[name] = map[string]*string{}
			}
			all[name][effect.Key] = to
			if hit < len(stands) {
				others[name] = true
			}
		}
	}
	lack := Lack{MixedLabels,
		fmt.Sprintf("%s stand for both and change their labels: a node that keeps them is not rehearsed there",
			few(slices.Sorted(maps.Keys(others))))}
	if len(others) > 0 && !slices.Contains(c.Lacks, lack) {
		c.Lacks = append(c.Lacks, lack)
	}
	var made []Relabel
	for _, name := range slices.Sorted(maps.Keys(all)) {
		made = append(made, Relabel{name, all[name]})
	}
	return made
}

// Relabelable refuses a change of labels that would not be one on a node of the copy: that has no such label, or the
// label already. The copy gives nodes only the labels that all nodes of their class have.
func (c *Copy) Relabelable(all []Relabel, scratch *cluster.Snapshot) error {
	if len(all) == 0 {
		return &cni.Refusal{Message: "no node of the copy stands for a node whose labels the change affects",
			Hint: "theseus rehearse needs says which nodes a rehearsal needs"}
	}
	for _, one := range all {
		labels := map[string]string{}
		for i := range scratch.Nodes {
			if scratch.Nodes[i].Name == one.Node {
				maps.Copy(labels, scratch.Nodes[i].Labels)
			}
		}
		for _, node := range c.Nodes {
			if node.Name == one.Node {
				maps.Copy(labels, node.Labels)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(one.Labels)) {
			value, has := labels[key]
			switch to := one.Labels[key]; {
			case to == nil && !has:
				return &cni.Refusal{Message: fmt.Sprintf("Node %s would not have the label %s in the copy, so it "+
					"cannot lose it", one.Node, key), Hint: "set it there first, with the original's value: kubectl " +
					"label node " + one.Node + " " + key + "=VALUE, with the scratch cluster's context; or leave out " +
					"--ignore, if that names it"}
			case to != nil && has && value == *to:
				return &cni.Refusal{Message: fmt.Sprintf("Node %s has the label %s=%s in the copy already, so it "+
					"cannot get it", one.Node, key, value), Hint: "remove it there first: kubectl label node " +
					one.Node + " " + key + "-, with the scratch cluster's context"}
			}
		}
	}
	return nil
}

// standing are the original's nodes for which each node of the scratch cluster stands.
func (c *Copy) standing() map[string][]string {
	all := map[string][]string{}
	for _, class := range c.Classes {
		for i, name := range class.Nodes {
			if n := len(class.Plays); n > 0 {
				all[class.Plays[i%n]] = append(all[class.Plays[i%n]], name)
			}
		}
		for i := len(class.Nodes); i < len(class.Plays); i++ { // it has more nodes than the original
			all[class.Plays[i]] = []string{class.Nodes[i%len(class.Nodes)]}
		}
	}
	return all
}

// Patch is the merge patch that changes the labels of a node as it is now, and notes what they were; nil if they are
// so.
func (r Relabel) Patch(live *corev1.Node) ([]byte, error) {
	given, err := givenTo(live)
	if err != nil {
		return nil, err
	}
	labels := map[string]any{}
	for key, to := range r.Labels {
		was := labelOf(live, key)
		if equal(was, to) {
			continue
		}
		if before, again := given.Relabelled[key]; again { // by an attempt whose answer was lost
			was = before.Was
		}
		given.Relabelled[key] = Relabelled{to, was}
		labels[key] = valueOf(to)
	}
	return given.patch(live, labels)
}

// Back is the merge patch that takes the change of labels back; nil if there is nothing to take back.
func (r Relabel) Back(live *corev1.Node) ([]byte, error) {
	given, err := givenTo(live)
	if err != nil {
		return nil, err
	}
	labels := given.back(live)
	given.Relabelled = nil
	return given.patch(live, labels)
}

// back are the labels that a change gave or took, as they were; those that another program has set since stay.
func (g *Given) back(live *corev1.Node) map[string]any {
	labels := map[string]any{}
	for key, label := range g.Relabelled {
		if equal(labelOf(live, key), label.Now) {
			labels[key] = valueOf(label.Was)
		}
	}
	return labels
}

// givenTo is what a rehearsal gave a node so far.
func givenTo(live *corev1.Node) (given Given, err error) {
	if made(live) {
		err = given.read(live)
	}
	if given.Labels == nil {
		given.Labels = map[string]GivenLabel{}
	}
	if given.Relabelled == nil {
		given.Relabelled = map[string]Relabelled{}
	}
	return given, err
}

// patch sets labels, with the annotation that says what a rehearsal gave the node; nil if there are none.
func (g *Given) patch(live *corev1.Node, labels map[string]any) ([]byte, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	text, err := g.text()
	if err != nil {
		return nil, err
	}
	return nodePatch(live, labels, text, live.Spec.Taints)
}

func labelOf(node *corev1.Node, key string) *string {
	if value, has := node.Labels[key]; has {
		return &value
	}
	return nil
}

// valueOf is a value in a merge patch.
func valueOf(text *string) any {
	if text == nil {
		return nil
	}
	return *text
}

func equal(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// RelabelTable lists what a change does to the labels of the scratch cluster's nodes.
func RelabelTable(all []Relabel) Table {
	var rows [][]string
	for _, one := range all {
		for _, key := range slices.Sorted(maps.Keys(one.Labels)) {
			what := "loses " + key
			if to := one.Labels[key]; to != nil {
				what = "gets " + key + "=" + *to
			}
			rows = append(rows, []string{one.Node, what})
		}
	}
	return Table{Title: "Labels that the change sets on " + cluster.Count(len(all), "node"),
		Head: []string{"NODE", "LABEL"}, Rows: rows}
}
