package node

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVerbsAreDocumented: docs/security.md says of every verb of the agent what it needs a privileged container for.
func TestVerbsAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for line := range strings.Lines(string(docs)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, verb := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
				said[verb[1]] = true
			}
		}
	}
	done, err := os.ReadFile("node.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	files, err := filepath.Glob("../step/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(Verb\w+) += "([a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
			names[found[1]] = found[2]
		}
	}
	verbs := regexp.MustCompile(`case step\.(Verb\w+):`).FindAllStringSubmatch(string(done), -1)
	if len(verbs) < 20 {
		t.Errorf("only %d verbs found", len(verbs))
	}
	for _, verb := range verbs {
		if !said[names[verb[1]]] {
			t.Errorf("docs/security.md does not say what the agent does for %q (%s)", names[verb[1]], verb[1])
		}
	}
}
