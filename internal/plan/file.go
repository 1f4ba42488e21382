package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Write turns a plan into YAML: complete, so that it is all that apply needs.
func Write(p *Plan) ([]byte, error) {
	data, err := yaml.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	return data, nil
}

// WriteJSON turns a plan into JSON: the same, which for thousands of nodes is read in a fraction of the time.
func WriteJSON(p *Plan) ([]byte, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	return append(data, '\n'), nil
}

// Read takes a plan from YAML or JSON. A plan that was edited, that has fields that nobody knows or that
// breaks a rule is refused with a *Refusal: what is printed must be what is done.
func Read(data []byte) (*Plan, error) {
	const hint = "give a file that theseus plan -o wrote"
	p, unread := Decode(data)
	var head metav1.TypeMeta
	err := unread
	if unread == nil {
		head.APIVersion, head.Kind = p.APIVersion, p.Kind
	} else {
		err = yaml.Unmarshal(data, &head)
	}
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, refuse(hint, "this is no plan, but an empty file")
	case err != nil:
		return nil, refuse(hint, "this is no plan, but something that cannot be read as one")
	case head.APIVersion == "" || head.Kind == "":
		return nil, refuse(hint, "this is no plan: apiVersion and kind are missing")
	case head.APIVersion != v1alpha1.APIVersion || head.Kind != Kind:
		return nil, refuse(hint, "this is no plan, but a %s of %s", head.Kind, head.APIVersion)
	}
	if unread != nil {
		what := unread.Error()
		if _, field, ok := strings.Cut(what, "json: "); ok {
			what = field
		}
		return nil, refuse("apply it with the version of theseus that wrote it, or make a new plan with theseus plan",
			"the plan was edited, or written by another version of theseus: %s", what)
	}
	if p.Hash != Hash(p) {
		return nil, refuse("make a new plan with theseus plan; change what goes into it, not what comes out",
			"the plan %s was edited, or cut short, since it was made", p.Name)
	}
	if err := Verify(p); err != nil {
		return nil, refuse("make a new plan with this version of theseus", "the plan %s breaks a rule: %v", p.Name, err)
	}
	return p, nil
}

// Decode takes a plan from YAML or JSON as it is. Fields that nobody knows are an error. YAML's reader would take JSON too, but
// for thousands of nodes with many times the time, and gigabytes of memory.
func Decode(data []byte) (*Plan, error) {
	var p Plan
	if !json.Valid(data) {
		if err := yaml.UnmarshalStrict(data, &p); err != nil {
			return nil, err
		}
		return &p, nil
	}
	reader := json.NewDecoder(bytes.NewReader(data))
	reader.DisallowUnknownFields()
	if err := reader.Decode(&p); err != nil {
		return nil, err
	}
	return &p, nil
}
