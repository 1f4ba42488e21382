package compact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	faster "github.com/go-json-experiment/json/v1"

	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Fold makes the form of steps. Expand makes exactly these steps of it: what would come back otherwise is written out.
func Fold(steps []step.Step, c Cluster) (Form, error) {
	f, err := newFolder(steps, c)
	if err != nil {
		return Form{}, err
	}
	return f.form()
}

func newFolder(steps []step.Step, c Cluster) (*folder, error) {
	f := emptyFolder(steps, c)
	for i := range steps {
		if err := f.add(&steps[i]); err != nil {
			return nil, err
		}
	}
	f.share()
	return f, nil
}

// emptyFolder has folded none of the steps yet.
func emptyFolder(steps []step.Step, c Cluster) *folder {
	return &folder{cluster: c, base: newExpander(c), names: nodesOf(steps, c), byText: map[string]*candidate{}}
}

// nodesOf are the names of all nodes that steps are about: those of the cluster, and those that are yet to come.
func nodesOf(steps []step.Step, c Cluster) *names {
	n := newNames()
	for _, node := range c.All {
		n.add(node)
	}
	for i := range steps {
		for _, actions := range [][]step.Action{steps[i].Actions, steps[i].Undo} {
			for j := range actions {
				n.add(actions[j].Node())
			}
		}
	}
	return n
}

// folder makes a form.
type folder struct {
	cluster    Cluster
	base       *expander // without procedures
	names      *names
	steps      []folded
	candidates []*candidate // in the order of the steps that they are of
	byText     map[string]*candidate
}

// folded is a step, and the row that it may be.
type folded struct {
	step  *step.Step
	parts *parts // nil where another step has the candidate already
	row   Row
	of    *candidate // the procedure that the row would run
}

// candidate is what may become a procedure.
type candidate struct {
	shape shape
	uses  int
	name  string
	// several says that it is of steps about several nodes.
	several bool
}

// add folds a step. Steps that differ in names alone have the same candidate.
func (f *folder) add(s *step.Step) error {
	parts, err := f.fold(s)
	if err != nil {
		return err
	}
	text, row, err := f.template(s, parts)
	if err != nil {
		return err
	}
	next := folded{step: s, parts: parts, row: row}
	if text != nil {
		of, err := f.candidate(text, row)
		if err != nil {
			return err
		}
		if f.exact(s, row, of) {
			next.of = of
			if of.uses++; of.uses > 1 {
				next.parts = nil
			}
		}
	}
	f.steps = append(f.steps, next)
	return nil
}

// candidate is that of a text.
func (f *folder) candidate(text []byte, row Row) (*candidate, error) {
	if known := f.byText[string(text)]; known != nil {
		return known, nil
	}
	of := &candidate{several: row.Nodes != nil}
	if err := strict(text, &of.shape); err != nil {
		return nil, err
	}
	f.candidates = append(f.candidates, of)
	f.byText[string(text)] = of
	return of, nil
}

// parts are a step's lists, folded.
type parts struct{ before, actions, after, undo []segment }

func (f *folder) fold(s *step.Step) (*parts, error) {
	p := &parts{}
	for _, l := range []struct {
		conditions []step.Condition
		into       *[]segment
	}{{s.Before, &p.before}, {s.After, &p.after}} {
		items, err := f.names.conditionItems(l.conditions)
		if err != nil {
			return nil, err
		}
		*l.into = segments(items, false)
	}
	for _, l := range []struct {
		actions []step.Action
		id      string
		into    *[]segment
	}{{s.Actions, s.ID + "/", &p.actions}, {s.Undo, s.ID + "/undo-", &p.undo}} {
		items, err := f.names.actionItems(l.actions, l.id)
		if err != nil {
			return nil, err
		}
		*l.into = segments(items, true)
	}
	return p, nil
}

// literal says whether a step has a placeholder of its own.
func (p *parts) literal(s *step.Step) (bool, error) {
	for _, list := range [][]segment{p.before, p.actions, p.after, p.undo} {
		for _, segment := range list {
			if slices.ContainsFunc(segment.do, func(it item) bool { return it.node == "" && placeholders(it.text) }) {
				return true, nil
			}
		}
	}
	of, err := (&parts{}).shape(s, nil)
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(of)
	return placeholders(string(text)), err
}

// shape is a step with folded lists; name names lists of nodes.
func (p *parts) shape(s *step.Step, name func([]string) string) (shape, error) {
	of := shape{ID: s.ID, Group: s.Group, Does: s.Does, Title: s.Title, Why: s.Why, Gate: s.Gate, Alone: s.Alone,
		NoReturn: s.NoReturn, Stop: s.Stop}
	if s.Actions != nil {
		of.Actions = []json.RawMessage{}
	}
	for _, l := range []struct {
		from []segment
		into *[]json.RawMessage
	}{{p.before, &of.Before}, {p.actions, &of.Actions}, {p.after, &of.After}, {p.undo, &of.Undo}} {
		for _, segment := range l.from {
			entries, err := segment.entries(name)
			if err != nil {
				return of, err
			}
			*l.into = append(*l.into, entries...)
		}
	}
	return of, nil
}

// written is a step that no procedure says: its lists are folded where that is exact.
func (f *folder) written(s folded) (json.RawMessage, error) {
	p, err := s.parts, error(nil)
	if p == nil {
		if p, err = f.fold(s.step); err != nil {
			return nil, err
		}
	}
	of, err := p.shape(s.step, func(list []string) string { return f.name(list, nil, s.step.Wave) })
	if err != nil {
		return nil, err
	}
	of.Wave, of.Part, of.Node, of.Estimate = s.step.Wave, s.step.Part, s.step.Node, s.step.Estimate
	text, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	content, err := contentOf(s.step)
	if err != nil {
		return nil, err
	}
	says := func(text []byte) bool {
		var again step.Step
		return f.expander().step(text, &again) == nil && same(&again, content)
	}
	for _, text := range [][]byte{f.every(text), text} {
		if says(text) {
			return text, nil
		}
	}
	whole, err := json.Marshal(s.step)
	if err != nil {
		return nil, err
	}
	if says(whole) {
		return whole, nil
	}
	return nil, fmt.Errorf("step %s contains a text that plan files use as a placeholder", s.step.ID)
}

// expander is one without procedures.
func (f *folder) expander() *expander {
	e := *f.base
	e.procedures = map[string]*shape{}
	return &e
}

// every puts a placeholder in the places of the list of every node.
func (f *folder) every(text []byte) []byte {
	if len(f.cluster.All) < 2 {
		return text
	}
	return bytes.ReplaceAll(text, f.base.all, []byte(allAsList))
}

// contentOf is a step as JSON, for comparisons.
func contentOf(s *step.Step) ([]byte, error) {
	return faster.Marshal(s.Document())
}

func same(s *step.Step, content []byte) bool {
	again, err := contentOf(s)
	return err == nil && bytes.Equal(again, content)
}

// name is that of a list of nodes in a step of a wave whose row has some; "" is none.
func (f *folder) name(list, row []string, wave string) string {
	for _, known := range []struct {
		name  string
		nodes []string
	}{{ofStep, row}, {ofWave, f.cluster.wave(wave)}, {all, f.cluster.All}} {
		switch {
		case len(known.nodes) == 0:
		case slices.Equal(known.nodes, list):
			return known.name
		case isReverse(known.nodes, list):
			return known.name + reversed
		}
	}
	return ""
}

// template is a step as a procedure, and the row that runs it. There is none where the step has neither wave nor node.
func (f *folder) template(s *step.Step, p *parts) (json.RawMessage, Row, error) {
	row := Row{Wave: s.Wave, Part: s.Part, Node: s.Node, Estimate: &s.Estimate}
	nodes := p.nodes(s)
	if s.Node == "" && len(nodes) > 0 {
		row.Nodes = &Nodes{List: nodes}
		if name := f.name(nodes, nil, s.Wave); name != "" {
			row.Nodes = &Nodes{Name: name}
		}
	}
	if s.Wave == "" && len(nodes) == 0 || s.Wave != "" && !safe(s.Wave) || s.Part != "" && !safe(s.Part) {
		return nil, row, nil
	}
	of, err := p.shape(s, func(list []string) string { return f.name(list, nodes, s.Wave) })
	if err != nil {
		return nil, row, err
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil, row, err
	}
	text = f.every(text)
	if len(nodes) > 1 {
		list, _ := json.Marshal(nodes)
		text = bytes.ReplaceAll(text, list, []byte(nodesAsList))
		text = replace(text, joint.List(nodes), "{nodes}")
	}
	if len(nodes) > 0 {
		text = replace(text, nodes[0], "{node}")
	}
	return replace(replace(text, row.Part, "{part}"), s.Wave, "{wave}"), row, nil
}

// nodes are those that a step is about: its own, or those of most of its entries.
func (p *parts) nodes(s *step.Step) (most []string) {
	if s.Node != "" {
		return []string{s.Node}
	}
	count, best := map[string]int{}, 0
	for _, list := range [][]segment{p.actions, p.before, p.after, p.undo} {
		for _, segment := range list {
			if len(segment.lists) != 1 {
				continue
			}
			key, _ := json.Marshal(segment.lists[0])
			if count[string(key)] += len(segment.do); count[string(key)] > best {
				best, most = count[string(key)], segment.lists[0]
			}
		}
	}
	return most
}

// exact says whether a row expands to a step.
func (f *folder) exact(s *step.Step, row Row, of *candidate) bool {
	content, err := contentOf(s)
	if err != nil {
		return false
	}
	e := f.expander()
	e.procedures[row.Procedure] = &of.shape
	var again step.Step
	return e.row(row, &again) == nil && same(&again, content)
}

// share lets steps that have a candidate of their own run that of others, where it expands to the same.
func (f *folder) share() {
	for i := range f.steps {
		at := &f.steps[i]
		if at.of == nil || at.of.uses > 1 && at.row.Nodes != nil {
			continue // a step of one node may be said as those of several
		}
		for _, other := range f.candidates {
			if other != at.of && other.uses > 0 && (at.row.Nodes != nil || other.several) &&
				f.runs(other, at.row, at.step.ID) && f.exact(at.step, at.row, other) {
				at.of.uses--
				at.of = other
				other.uses++
				break
			}
		}
	}
}

// runs says whether a row that runs a candidate has an ID.
func (f *folder) runs(of *candidate, row Row, id string) bool {
	in, err := f.base.scope(row)
	return err == nil && string(in.fill([]byte(of.shape.ID))) == id
}

// form is what was folded. What is said once is no procedure.
func (f *folder) form() (Form, error) {
	form := Form{Procedures: map[string]json.RawMessage{}}
	for _, s := range f.steps {
		if s.of == nil || s.of.uses < 2 {
			text, err := f.written(s)
			if err != nil {
				return form, err
			}
			form.Steps = append(form.Steps, text)
			continue
		}
		if s.of.name == "" {
			s.of.name = unused(form.Procedures, s.of.shape.ID)
			s.of.shape.Estimate = *s.row.Estimate
			text, err := json.Marshal(s.of.shape)
			if err != nil {
				return form, err
			}
			form.Procedures[s.of.name] = text
		}
		if s.row.Procedure = s.of.name; *s.row.Estimate == s.of.shape.Estimate {
			s.row.Estimate = nil
		}
		text, err := json.Marshal(s.row)
		if err != nil {
			return form, err
		}
		form.Steps = append(form.Steps, text)
	}
	return form, nil
}
