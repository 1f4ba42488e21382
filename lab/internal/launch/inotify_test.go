package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// TestInotify: five clusters of two nodes get room, the machine gets its limit back, and what another has set stays.
func TestInotify(t *testing.T) {
	dir := t.TempDir()
	i := inotify{filepath.Join(dir, "limit"), filepath.Join(dir, "kept")}
	is := func(want string) {
		t.Helper()
		if raw, err := os.ReadFile(i.limit); err != nil || strings.TrimSpace(string(raw)) != want {
			t.Errorf("the limit is %q, not %s: %v", raw, want, err)
		}
	}
	set := func(to string) {
		if err := os.WriteFile(i.limit, []byte(to+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fit := func(clusters int, raised bool) {
		t.Helper()
		labs := make([]state.Lab, clusters)
		for n := range labs {
			labs[n].Spec = spec.Lab{Nodes: 2}
		}
		if line, err := i.fit(labs); err != nil || (line != "") != raised {
			t.Errorf("%d clusters: %q, %v", clusters, line, err)
		}
	}
	set("128")
	fit(1, false)
	is("128")
	fit(4, true)
	is("256")
	fit(5, true)
	is("312")
	if err := i.restore(); err != nil {
		t.Error(err)
	}
	is("128")
	if err := i.restore(); err != nil { // nothing was raised
		t.Error(err)
	}
	fit(5, true)
	set("1024")
	if err := i.restore(); err != nil {
		t.Error(err)
	}
	is("1024")
}
