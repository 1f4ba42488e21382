package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/compact"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// Format is the form of plan files that this version writes and reads. Format 1 wrote out every step of every node.
const Format = 2

// stored is a plan as it is stored, with its steps folded.
type stored struct {
	Plan       `json:",inline"`
	Format     int                        `json:"format"`
	Procedures map[string]json.RawMessage `json:"procedures,omitempty"`
	Steps      []json.RawMessage          `json:"steps"`
}

// nodes are those that the folded steps of a plan refer to.
func nodes(p *Plan) compact.Cluster {
	c := compact.Cluster{All: p.Cluster.Nodes}
	for _, wave := range p.Waves {
		c.Waves = append(c.Waves, compact.Wave{Name: wave.Name, Nodes: wave.Nodes})
	}
	return c
}

// fold is a plan with its steps folded.
func fold(p *Plan) (*stored, error) {
	form, err := compact.Fold(p.Steps, nodes(p))
	if err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	return &stored{Plan: *p, Format: Format, Procedures: form.Procedures, Steps: form.Steps}, nil
}

// Write turns a plan into YAML: complete, so that it is all that apply needs. What happens on many nodes is written
// once.
func Write(p *Plan) ([]byte, error) {
	d, err := fold(p)
	if err != nil {
		return nil, err
	}
	entries := d.Steps
	d.Steps = []json.RawMessage{}
	data, err := yaml.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	if len(entries) == 0 {
		return data, nil
	}
	// All other lists are indented, so these lines are the plan's steps.
	before, after, _ := bytes.Cut(data, []byte("\nsteps: []\n"))
	parts := [][]byte{before, []byte("\nsteps:\n")}
	for _, entry := range entries {
		part, err := line(entry)
		if err != nil {
			return nil, fmt.Errorf("write plan: %w", err)
		}
		parts = append(parts, part)
	}
	return bytes.Join(append(parts, after), nil), nil
}

// line is one entry of the steps as YAML: a row on one line, and a step in full.
func line(entry json.RawMessage) ([]byte, error) {
	var row compact.Row
	if json.Unmarshal(entry, &row) == nil && row.Procedure != "" {
		if text, ok := row.Line(); ok {
			return []byte("- " + text + "\n"), nil
		}
	}
	return yaml.Marshal([]json.RawMessage{entry})
}

// WriteJSON turns a plan into JSON: the same as Write, in a fraction of the time.
func WriteJSON(p *Plan) ([]byte, error) {
	d, err := fold(p)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	return append(data, '\n'), nil
}

// Read takes a plan from YAML or JSON. A plan that was edited, that has unknown fields or that breaks a rule is
// refused with a *Refusal: the printed plan must be the plan that runs.
func Read(data []byte) (*Plan, error) {
	const hint = "give a file that theseus plan -o wrote"
	p, unread := Decode(data)
	var head metav1.TypeMeta
	err := unread
	if unread == nil {
		head.APIVersion, head.Kind = p.APIVersion, p.Kind
	} else {
		head, err = headOf(data)
	}
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, kind.Refuse(hint, "this is no plan, but an empty file")
	case err != nil:
		return nil, kind.Refuse(hint, "this is no plan, but something that cannot be read as one")
	case head.APIVersion == "" || head.Kind == "":
		return nil, kind.Refuse(hint, "this is no plan: apiVersion and kind are missing")
	case head.APIVersion != v1alpha1.APIVersion || head.Kind != Kind:
		return nil, kind.Refuse(hint, "this is no plan, but a %s of %s", head.Kind, head.APIVersion)
	}
	if unread != nil {
		what := unread.Error()
		if _, field, ok := strings.Cut(what, "json: "); ok {
			what = field
		}
		return nil, kind.Refuse(
			"apply it with the version of theseus that wrote it, or make a new plan with theseus plan",
			"the plan was edited, or written by another version of theseus: %s", what)
	}
	if err := Sound(p); err != nil {
		return nil, err
	}
	return p, nil
}

// Sound is a *Refusal if a plan does not match its hash, or breaks a rule. It computes the hash, and compares it with
// the stored one.
func Sound(p *Plan) error {
	if p.APIVersion != v1alpha1.APIVersion || p.Kind != Kind {
		return kind.Refuse("make a new plan with theseus plan", "this is no plan, but a %s of %s", p.Kind, p.APIVersion)
	}
	hash, err := identity(p)
	if err != nil {
		return kind.Refuse("make a new plan with theseus plan", "the plan %s has no hash: %v", p.Name, err)
	}
	if p.Hash != hash {
		return kind.Refuse("make a new plan with theseus plan; change what goes into it, not what comes out",
			"the plan %s was edited, or cut short, since it was made", p.Name)
	}
	if err := Verify(p); err != nil {
		return kind.Refuse("make a new plan with this version of theseus", "the plan %s breaks a rule: %v", p.Name, err)
	}
	return nil
}

// headOf is what a document says that it is.
func headOf(data []byte) (head metav1.TypeMeta, err error) {
	text, known := document.JSON(data)
	if !known {
		text = data // it may be JSON
	}
	if json.Unmarshal(text, &head) != nil {
		err = bounded.Unmarshal(data, &head)
	}
	return head, err
}

// Decode takes a plan from YAML or JSON as it is. Fields that are unknown, and other formats, are an error. YAML's own
// reader takes many times the time and memory, so it gets only what a person wrote in another form than Write's.
func Decode(data []byte) (*Plan, error) { return DecodeWithin(data, math.MaxInt) }

// DecodeWithin is Decode for a plan whose steps have at most so many bytes when they are written out. For more, the
// error is a *TooLarge.
func DecodeWithin(data []byte, most int) (*Plan, error) {
	data, err := asJSON(data)
	if err != nil {
		return nil, err
	}
	var d stored
	reader := json.NewDecoder(bytes.NewReader(data))
	reader.DisallowUnknownFields()
	if err := reader.Decode(&d); err != nil {
		return nil, err
	}
	if err := canonical.Once(data); err != nil {
		return nil, err
	}
	return d.expand(most)
}

// asJSON is a document as JSON.
func asJSON(data []byte) ([]byte, error) {
	if json.Valid(data) {
		return data, nil
	}
	written, ok := document.JSON(data)
	if ok {
		return written, nil
	}
	err := bounded.UnmarshalStrict(data, (*json.RawMessage)(&written))
	return written, err
}

// Outline is what a plan says about itself, without what its steps do. It is for display alone: no run can begin with
// it.
type Outline struct {
	Name, Hash string
	From, To   string
	// OnNodes is true if steps change the nodes of this cluster, and measure its paths.
	OnNodes bool
	// Steps have no conditions, no actions and no undo.
	Steps []step.Step
}

// OutlineOf is the outline of a plan.
func OutlineOf(p *Plan) *Outline {
	o := &Outline{Name: p.Name, Hash: p.Hash, From: p.From(), To: p.To(), OnNodes: p.OnNodes(),
		Steps: slices.Clone(p.Steps)}
	for i := range o.Steps {
		s := &o.Steps[i]
		s.Before, s.Actions, s.After, s.Undo = nil, nil, nil, nil
	}
	return o
}

// DecodeOutline takes the outline of a plan that was decoded and proven before, from the same bytes: it takes the hash
// that is written in them, and finds no edit (Decode, Sound). It takes a small part of the time.
func DecodeOutline(data []byte) (*Outline, error) {
	data, err := asJSON(data)
	if err != nil {
		return nil, err
	}
	var d struct {
		stored
		Workloads json.RawMessage `json:"workloads"` // the largest parts that are not in the outline
		Findings  json.RawMessage `json:"findings"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	if err := d.known(); err != nil {
		return nil, err
	}
	d.Plan.Steps, err = compact.Outline(compact.Form{Procedures: d.Procedures, Steps: d.stored.Steps}, nodes(&d.Plan))
	if err != nil {
		return nil, err
	}
	return OutlineOf(&d.Plan), nil
}

// TooLarge is the error for a plan that is larger than a limit.
type TooLarge = compact.TooLarge

// known refuses a format that this version does not read.
func (d *stored) known() error {
	if d.Format != Format {
		return fmt.Errorf("its format is %d, and this version reads format %d", max(d.Format, 1), Format)
	}
	return nil
}

// expand makes the plan of what was stored.
func (d *stored) expand(most int) (*Plan, error) {
	if err := d.known(); err != nil {
		return nil, err
	}
	steps, err := compact.ExpandWithin(compact.Form{Procedures: d.Procedures, Steps: d.Steps}, nodes(&d.Plan), most)
	if err != nil {
		return nil, err
	}
	d.Plan.Steps = steps
	return &d.Plan, nil
}
