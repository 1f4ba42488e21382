package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// listener is a view that keeps what it is told.
type listener struct {
	View
	strings.Builder
}

func (l *listener) Say(text string) { l.WriteString(text + "\n") }

// TestEvidenceThatCannotBeKept is said once, and once more when it has come back.
func TestEvidenceThatCannotBeKept(t *testing.T) {
	said := &listener{}
	r := &Run{View: said, Dir: filepath.Join(t.TempDir(), "absent")}
	save := func() { r.save(kube.NewEvidence(kube.Collected{})) }
	warned := func() int { return strings.Count(said.String(), "warning: the evidence for the report cannot be kept") }
	save()
	save()
	if warned() != 1 {
		t.Errorf("said %q", said.String())
	}
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	save()
	if _, err := os.Stat(filepath.Join(r.Dir, EvidenceFile)); err != nil || warned() != 1 {
		t.Errorf("%v, said %q", err, said.String())
	}
	if err := os.RemoveAll(r.Dir); err != nil {
		t.Fatal(err)
	}
	if save(); warned() != 2 {
		t.Errorf("said %q", said.String())
	}
}
