package typha

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestSkew(t *testing.T) { checktest.Run(t, Skew()) }

// TestFix: the fix says what comes first on this way, and what a plan has to be told.
func TestFix(t *testing.T) {
	for name, want := range map[string]string{
		"invalid-upgrade":   `pass --accept typha/skew="agents first"`,
		"invalid-downgrade": "Typha first, since it is older",
		"invalid-operator":  "use another release of the operator",
		"invalid-apart":     "calico-node first",
	} {
		pass, _ := checktest.Load(t, "testdata/skew/"+name+".yaml")
		if found := Skew().Run(pass); len(found) != 1 || !strings.Contains(found[0].Fix, want) {
			t.Errorf("%s: %q is in no fix: %+v", name, want, found)
		}
	}
}
