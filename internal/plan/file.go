package plan

import (
	"fmt"

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

// Read takes a plan from YAML or JSON. A plan that was edited, that has fields that nobody knows or that
// breaks a rule is refused with a *Refusal: what is printed must be what is done.
func Read(data []byte) (*Plan, error) {
	var p Plan
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		return nil, refuse("give a file that theseus plan -o wrote, with the same version of theseus", "this is no plan: %v", err)
	}
	if p.APIVersion != v1alpha1.APIVersion || p.Kind != Kind {
		return nil, refuse("give a file that theseus plan -o wrote", "this is no plan, but %s %s", orNothing(p.APIVersion), orNothing(p.Kind))
	}
	if p.Hash != Hash(&p) {
		return nil, refuse("make a new plan with theseus plan; change what goes into it, not what comes out",
			"the plan %s was edited since it was made", p.Name)
	}
	if err := Verify(&p); err != nil {
		return nil, refuse("make a new plan with this version of theseus", "the plan %s breaks a rule: %v", p.Name, err)
	}
	return &p, nil
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}
