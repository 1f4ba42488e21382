package theseus

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOneListOfKinds: the planner knows the contract with kinds of change, and names the kinds in one list alone; so does no kind know the
// planner.
func TestOneListOfKinds(t *testing.T) {
	const room, list = module + "internal/change/", "internal/change/plan/kinds.go"
	contract := map[string]bool{"kind": true, "verify": true}
	for _, file := range goFiles(t) {
		file = filepath.ToSlash(file)
		if !strings.HasPrefix(file, "internal/change/") || file == list {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		planner := strings.HasPrefix(file, "internal/change/plan/")
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			other, ours := strings.CutPrefix(path, room)
			switch {
			case ours && planner && !contract[other]:
				t.Errorf("%s imports %s: the planner names kinds of change in %s alone", file, other, list)
			case ours && !planner && other == "plan":
				t.Errorf("%s imports the planner, which knows kinds of change by their contract", file)
			}
		}
	}
}
