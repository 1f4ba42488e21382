package theseus

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityTable: every line of the tables of defences in docs/security.md names tests, each with its package, and they are there.
func TestSecurityTable(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, head := range []string{"| what | what holds | tests |\n|---|---|---|\n", "| attack | what holds | tests |\n|---|---|---|\n"} {
		_, table, found := strings.Cut(string(page), head)
		table, _, ended := strings.Cut(table, "\n\n")
		if !found || !ended {
			t.Fatalf("docs/security.md has no table %s", head)
		}
		for line := range strings.Lines(table) {
			if !named.MatchString(line) {
				t.Errorf("no test holds: %s", line)
			}
		}
	}
	if bare := regexp.MustCompile("`(Test|Fuzz)\\w+[^`]*`").FindAllString(string(page), -1); bare != nil {
		t.Errorf("without their packages: %s", bare)
	}
	packages := testsByPackage(t)
	for _, name := range named.FindAllStringSubmatch(string(page), -1) {
		if problem := packages.lack(name[1], name[2], name[3]); problem != "" {
			t.Errorf("%s: %s", name[0], problem)
		}
	}
}

// named is a test with its package and, after slashes, its subtests.
var named = regexp.MustCompile("`([a-z0-9-]+)\\.((?:Test|Fuzz)\\w+)((?:/[^`/]+)*)`")

// testFiles are the texts of the test files, by folder.
type testFiles map[string]string

func testsByPackage(t *testing.T) testFiles {
	t.Helper()
	all := testFiles{}
	if err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if file == "bin" { // make release unpacks the commit there
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		all[filepath.Dir(file)] += string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// lack says why a test of a package is not there; empty where it is. A subtest is there if its name is written in that package, or is that of
// a script.
func (all testFiles) lack(in, test, subtests string) string {
	var folders []string
	for folder, text := range all {
		if filepath.Base(folder) == in && strings.Contains(text, "\nfunc "+test+"(") {
			folders = append(folders, folder)
		}
	}
	if len(folders) != 1 {
		return "the packages of this name with this test are " + strings.Join(folders, ", ") + "; there must be one"
	}
	for _, sub := range strings.Split(subtests, "/")[1:] {
		if _, err := os.Stat(filepath.Join(folders[0], "testdata", sub+".txtar")); err != nil && !strings.Contains(all[folders[0]], `"`+sub+`"`) {
			return "there is no subtest " + sub
		}
	}
	return ""
}
