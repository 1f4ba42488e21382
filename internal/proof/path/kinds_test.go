package path

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestKindsDocumented: the table of docs/paths.md is that of the code.
func TestKindsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n\n"+Table()+"\n") {
		t.Errorf("docs/paths.md does not hold this table; put it there in place of the old one:\n%s", Table())
	}
}

// TestKindsKnown: what is said to be measured is measured where everything is there, no class is left out, and each
// test that is named is there.
func TestKindsKnown(t *testing.T) {
	built, named := map[string]bool{}, map[string]bool{}
	for _, path := range Build(whole(3)) {
		built[path.Class] = true
	}
	for _, path := range Build(guarded(3)) {
		if !built[path.Class] && !Optional(path.Class) {
			t.Errorf("%s must answer, and guards alone measure it", path.ID)
		}
		built[path.Class] = true
	}
	tests := testsOf(t, "../../..")
	var names []string
	for _, kind := range Kinds() {
		for _, class := range slices.Concat(kind.Classes, kind.Guarded) {
			named[class] = true
			if !built[class] {
				t.Errorf("%s: no path is of the class %s", kind.Name, class)
			}
		}
		for _, test := range kind.Tests {
			if !tests[test] {
				t.Errorf("%s: there is no test %s", kind.Name, test)
			}
		}
		if slices.Contains(names, kind.Name) || strings.Contains(kind.Name+kind.Note, "|") {
			t.Errorf("%q is there twice, or breaks the table", kind.Name)
		}
		names = append(names, kind.Name)
	}
	for class := range built {
		if !named[class] {
			t.Errorf("the class %s is of no kind", class)
		}
	}
}

// testsOf are the names of the tests below a folder.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			tests[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
