package node

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestVerbsAreDocumented: docs/security.md says of every verb of the agent what it needs a privileged container for.
func TestVerbsAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	_, table, _ := strings.Cut(string(docs), "\n| verb |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, verb := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
				said[verb[1]] = true
			}
		}
	}
	for _, verb := range step.Verbs() {
		if !said[verb.Name] {
			t.Errorf("docs/security.md does not say what the agent does for %q", verb.Name)
		}
		delete(said, verb.Name)
	}
	for name := range said {
		t.Errorf("docs/security.md has a row for %q, which is no verb", name)
	}
}
