package rehearsal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// TestNeeds: a scratch cluster needs the original's network, and a node for each class.
func TestNeeds(t *testing.T) {
	flannel := &cni.Installation{CNI: "flannel", Version: "v0.27.4"}
	needs, err := NeedsOf(read(t, "odd.yaml"), []*cni.Installation{flannel},
		Options{Ignore: []string{"gpu", "capacity"}})
	if err != nil {
		t.Fatal(err)
	}
	if needs.Workers != 2 || needs.ControlPlane != 1 || len(needs.Classes) != 3 { // gpu-1 and gpu-2 are as b-1
		t.Errorf("%+v", needs)
	}
	var out bytes.Buffer
	if err := needs.Text(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"network              flannel v0.27.4\n", "workers              2 or more\n",
		"control-plane nodes  1 or more\n", "class-3  control plane  1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	if _, err := NeedsOf(read(t, "odd.yaml"), nil, Options{}); err == nil ||
		!strings.Contains(err.Error(), "0 known networks") {
		t.Errorf("%v", err)
	}
}
