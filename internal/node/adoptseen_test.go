package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// forgets lets the runtime remember no network namespaces, as libcni before v1.2 does where the plugin's answer names
// none.
func (w *site) forgets() {
	w.t.Helper()
	files, err := names(filepath.Join(w.Root, resultsDir))
	must(w.t, err)
	for _, name := range files {
		file := filepath.Join(w.Root, resultsDir, name)
		text, err := os.ReadFile(file)
		must(w.t, err)
		var cached map[string]any
		if json.Unmarshal(text, &cached) != nil {
			continue
		}
		delete(cached, "netns")
		if result, ok := cached["result"].(map[string]any); ok {
			delete(result, "interfaces")
		}
		text, err = json.Marshal(cached)
		must(w.t, err)
		must(w.t, os.WriteFile(file, text, 0o644))
	}
}

// TestAdoptForgotten: pods of which the runtime remembers no network namespace are found by their addresses, and where
// that could be another's, the pod is refused and not left out.
func TestAdoptForgotten(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	w.forgets()
	end := flows(t, w, a, b)
	do(t, w.Node, step.VerbAdopt, forth)
	if on := a.whole() + b.whole(); on != "routedrouted" {
		t.Errorf("they are on %s", on)
	}
	w.forgets()
	do(t, w.Node, step.VerbAdopt, back)
	end()
	if on := a.whole() + b.whole(); on != "bridgedbridged" {
		t.Errorf("after the way back: %s", on)
	}
	w.forgets()
	dir := filepath.Join(w.Root, resultsDir)
	files, err := names(dir)
	must(t, err)
	mine := files[slices.IndexFunc(files, func(name string) bool { return strings.Contains(name, a.id) })]
	text, err := os.ReadFile(filepath.Join(dir, mine))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "of-another"),
		[]byte(strings.ReplaceAll(string(text), a.id, "another")), 0o644))
	got := outcomes(t, do(t, w.Node, step.VerbAdoptable, forth))
	if o := got["a"]; o.State != step.AdoptRefused ||
		!strings.Contains(o.Reason, "does not remember its network namespace") || got["b"].State != step.AdoptReady {
		t.Errorf("two were given one address: %+v", got)
	}
}
