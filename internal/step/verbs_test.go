package step_test

import (
	"reflect"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestVerbs: a name is one verb's, and a verb and the one that takes it back take the same arguments.
func TestVerbs(t *testing.T) {
	seen := map[string]bool{}
	for _, verb := range step.Verbs() {
		if seen[verb.Name] || verb.Name == "" {
			t.Errorf("the name %q is there twice, or empty", verb.Name)
		}
		seen[verb.Name] = true
		if verb.Back == "" {
			continue
		}
		back, known := step.VerbNamed(verb.Back)
		if !known || back.Back != verb.Name || reflect.TypeOf(back.Args) != reflect.TypeOf(verb.Args) {
			t.Errorf("%q is taken back by %q, which is another kind of verb: %+v", verb.Name, verb.Back, back)
		}
	}
}
