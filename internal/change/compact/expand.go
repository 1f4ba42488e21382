package compact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	faster "github.com/go-json-experiment/json"

	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// maxExpanded bounds the bytes that a form's steps have as JSON. It is far above that of any plan for 5,000 nodes.
const maxExpanded = 512 << 20

// Expand makes the steps of a form. It fails on a form that Fold would not make: one that names a procedure, a wave or
// a list of nodes that is not there, has fields that are unknown, or is larger than 512 MiB.
func Expand(f Form, c Cluster) ([]step.Step, error) { return ExpandWithin(f, c, maxExpanded) }

// ExpandWithin is Expand for steps of at most so many bytes as JSON, and at most maxExpanded. For more, the error is a
// *TooLarge.
func ExpandWithin(f Form, c Cluster, most int) ([]step.Step, error) {
	e := newExpander(c)
	e.left = min(most, maxExpanded)
	e.most = e.left
	return e.form(f)
}

// Outline makes the steps of a form without what they do: their conditions, actions and undo, which are most of a plan
// for many nodes.
func Outline(f Form, c Cluster) ([]step.Step, error) {
	e := newExpander(c)
	e.outline = true
	return e.form(f)
}

// TooLarge is the error for what takes more bytes than Limit.
type TooLarge struct{ Limit int }

func (t *TooLarge) Error() string {
	return fmt.Sprintf("the steps are too large: they take more than %d MiB", t.Limit>>20)
}

func (e *expander) form(f Form) ([]step.Step, error) {
	for name, text := range f.Procedures {
		var s shape
		if err := strict(text, &s); err != nil {
			return nil, fmt.Errorf("procedure %s: %w", name, err)
		}
		e.procedures[name] = &s
	}
	steps := make([]step.Step, len(f.Steps))
	for i, entry := range f.Steps {
		if err := e.step(entry, &steps[i]); err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return steps, nil
}

func newExpander(c Cluster) *expander {
	every, _ := json.Marshal(c.All) // strings alone
	return &expander{cluster: c, all: every, procedures: map[string]*shape{}, eaches: map[*byte]*each{},
		left: maxExpanded, most: maxExpanded}
}

// fieldsKnown is an option by which every field must be known.
var fieldsKnown = faster.RejectUnknownMembers(true)

// strict reads JSON in which every field must be known. The first decoder takes a third of the time; what it refuses,
// the second one reads or refuses.
func strict[T any](data []byte, into *T) error {
	if reader, own := any(into).(json.Unmarshaler); own {
		return reader.UnmarshalJSON(data) // an action or a condition, which is as strict itself
	}
	if faster.Unmarshal(data, into, fieldsKnown) == nil {
		return nil
	}
	*into = *new(T)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// expander makes steps.
type expander struct {
	cluster    Cluster
	all        []byte // every node, as JSON
	procedures map[string]*shape
	eaches     map[*byte]*each // of entries of procedures, by their first byte; nil of one that stands for itself
	left, most int             // bytes
	outline    bool            // steps do not say what they do
}

// scope is what names in a step stand for.
type scope struct {
	values map[string]string // of placeholders; nil outside of procedures
	nodes  []string
	wave   string
	all    []byte // every node of the cluster, as JSON
}

// step makes the step of a row, or of one that is written out.
func (e *expander) step(entry json.RawMessage, into *step.Step) error {
	var kind struct {
		Procedure *string `json:"procedure"`
	}
	if err := json.Unmarshal(entry, &kind); err != nil {
		return err
	}
	if kind.Procedure != nil {
		var row Row
		if err := strict(entry, &row); err != nil {
			return err
		}
		return e.row(row, into)
	}
	var s shape
	if err := strict(entry, &s); err != nil {
		return err
	}
	return e.build(&s, scope{wave: s.Wave, all: e.all}, into)
}

// row makes the step that runs a procedure.
func (e *expander) row(row Row, into *step.Step) error {
	procedure := e.procedures[row.Procedure]
	if procedure == nil {
		return fmt.Errorf("there is no procedure %q", row.Procedure)
	}
	in, err := e.scope(row)
	if err != nil {
		return err
	}
	bare := *procedure // the lists are filled entry by entry
	bare.Before, bare.Actions, bare.After, bare.Undo = nil, nil, nil, nil
	text, err := json.Marshal(bare)
	if err != nil {
		return err
	}
	var s shape
	if err := strict(in.fill(text), &s); err != nil {
		return err
	}
	s.Before, s.Actions, s.After, s.Undo = procedure.Before, procedure.Actions, procedure.After, procedure.Undo
	if s.Wave, s.Part, s.Node = row.Wave, row.Part, row.Node; row.Estimate != nil {
		s.Estimate = *row.Estimate
	}
	return e.build(&s, in, into)
}

// scope is what the names in a row's procedure stand for.
func (e *expander) scope(row Row) (in scope, err error) {
	in = scope{values: map[string]string{"wave": row.Wave, "part": row.Part}, wave: row.Wave, all: e.all}
	switch {
	case row.Node != "":
		in.nodes = []string{row.Node}
	case row.Nodes != nil && row.Nodes.Name != "":
		in.nodes, err = e.named(row.Nodes.Name, in)
	case row.Nodes != nil:
		in.nodes = row.Nodes.List
	}
	for _, name := range append(slices.Clone(in.nodes), row.Wave, row.Part) {
		if name != "" && !safe(name) {
			return in, fmt.Errorf("%q is no name of a node, a wave or a part", name)
		}
	}
	if len(in.nodes) > 0 {
		in.values["node"], in.values["nodes"] = in.nodes[0], joint.List(in.nodes)
	}
	return in, err
}

// The forms of lists that name all nodes of a row, or every node of the cluster.
const nodesAsList, allAsList = `["{nodes}"]`, `["{all}"]`

// fill puts names in the places of placeholders. Outside of procedures, that is the list of every node alone.
func (in scope) fill(text []byte) []byte {
	if bytes.Contains(text, []byte(allAsList)) {
		text = bytes.ReplaceAll(text, []byte(allAsList), in.all)
	}
	if in.values == nil {
		return text
	}
	if bytes.Contains(text, []byte(nodesAsList)) {
		list, _ := json.Marshal(in.nodes) // strings alone
		text = bytes.ReplaceAll(text, []byte(nodesAsList), list)
	}
	return fill(text, in.values)
}

// named is the list of nodes of a name.
func (e *expander) named(name string, in scope) ([]string, error) {
	known, back := strings.CutSuffix(name, reversed)
	nodes := map[string][]string{all: e.cluster.All, ofStep: in.nodes, ofWave: e.cluster.wave(in.wave)}[known]
	if len(nodes) == 0 {
		return nil, fmt.Errorf("there is no list of nodes %q here", name)
	}
	if back {
		return reverse(nodes), nil
	}
	return nodes, nil
}

// build makes the step of a shape.
func (e *expander) build(s *shape, in scope, into *step.Step) (err error) {
	*into = step.Step{ID: s.ID, Group: s.Group, Does: s.Does, Title: s.Title, Why: s.Why,
		Wave: s.Wave, Part: s.Part, Node: s.Node, Gate: s.Gate, Alone: s.Alone, NoReturn: s.NoReturn,
		Stop: s.Stop, Estimate: s.Estimate}
	if e.outline {
		return nil
	}
	if into.Before, err = expand[step.Condition](e, s.Before, in, nil); err != nil {
		return err
	}
	if into.Actions, err = expand(e, s.Actions, in, numbered(s.ID+"/")); err != nil {
		return err
	}
	if into.Actions == nil && s.Actions != nil {
		into.Actions = []step.Action{}
	}
	if into.After, err = expand[step.Condition](e, s.After, in, nil); err != nil {
		return err
	}
	into.Undo, err = expand(e, s.Undo, in, numbered(s.ID+"/undo-"))
	return err
}

// numbered gives actions the IDs that they have from their places, and says which are done together with the one
// before.
func numbered(id string) func(a *step.Action, i int, together bool) {
	return func(a *step.Action, i int, together bool) {
		if a.ID == "" {
			a.ID = id + strconv.Itoa(i+1)
		}
		a.Together = a.Together || together
	}
}

// expand makes a list of its folded form. The function place tells an entry its place in the list, and whether it is
// done together with the one before; it is nil for conditions.
func expand[T any](e *expander, folded []json.RawMessage, in scope,
	place func(entry *T, i int, together bool)) (entries []T, err error) {
	add := func(text []byte, together bool) error {
		if e.left -= len(text); e.left < 0 {
			return &TooLarge{e.most}
		}
		var entry T
		if err := strict(text, &entry); err != nil {
			return err
		}
		if place != nil {
			place(&entry, len(entries), together)
		}
		entries = append(entries, entry)
		return nil
	}
	for _, entry := range folded {
		of, err := e.standsFor(entry, in)
		if err != nil {
			return nil, err
		}
		if of == nil {
			err = add(in.fill(entry), false)
		} else {
			err = e.each(*of, in, add)
		}
		if err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// standsFor reads an entry that stands for several; it returns nil for any other. The entries of a procedure are read
// once for all its rows.
func (e *expander) standsFor(entry json.RawMessage, in scope) (*each, error) {
	again := in.values != nil && len(entry) > 0
	if again {
		if of, known := e.eaches[&entry[0]]; known {
			return of, nil
		}
	}
	var has struct {
		ForEach json.RawMessage `json:"forEach"`
	}
	if err := json.Unmarshal(entry, &has); err != nil {
		return nil, err
	}
	var of *each
	if has.ForEach != nil {
		of = &each{}
		if err := strict(entry, of); err != nil {
			return nil, err
		}
	}
	if again {
		e.eaches[&entry[0]] = of
	}
	return of, nil
}

// each expands one entry that stands for several.
func (e *expander) each(of each, in scope, add func(text []byte, together bool) error) error {
	if of.ForEach.Name != "" {
		nodes, err := e.named(of.ForEach.Name, in)
		if err != nil {
			return err
		}
		of.ForEach.Lists = [][]string{nodes}
	}
	for _, nodes := range of.ForEach.Lists {
		if of.InTurn {
			for i := range nodes {
				if err := in.forEach(nodes[i:i+1], of.Do, add); err != nil {
					return err
				}
			}
		} else if err := in.forEach(nodes, of.Do, add); err != nil {
			return err
		}
	}
	return nil
}

// forEach says every entry of do for all nodes, before the next entry.
func (in scope) forEach(nodes []string, do []json.RawMessage, add func(text []byte, together bool) error) error {
	for _, text := range do {
		for i, node := range nodes {
			if !safe(node) {
				return fmt.Errorf("%q is no name of a node", node)
			}
			if err := add(in.fill(fill(text, map[string]string{"node": node})), i > 0); err != nil {
				return err
			}
		}
	}
	return nil
}
