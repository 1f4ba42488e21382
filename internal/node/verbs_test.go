package node

import (
	"reflect"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestWorks: every verb of the table has its work here, which takes what the table says, and no other verb has any.
func TestWorks(t *testing.T) {
	done := works()
	for _, verb := range step.Verbs() {
		w, known := done[verb.Name]
		if want := reflect.TypeOf(verb.Args); !known {
			t.Errorf("the verb %q has no work", verb.Name)
		} else if w.args != want {
			t.Errorf("the work of %q takes %s, the table says %s", verb.Name, w.args, want)
		}
		delete(done, verb.Name)
	}
	for name := range done {
		t.Errorf("%q is not in step.Verbs", name)
	}
}
