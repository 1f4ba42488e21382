package theseus

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityTable: every line of the tables of defences in docs/security.md names tests, and they are there.
func TestSecurityTable(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, head := range []string{"| what | what holds | tests |\n|---|---|---|\n", "| attack | what holds | tests |\n|---|---|---|\n"} {
		_, table, found := strings.Cut(string(page), head)
		table, _, ended := strings.Cut(table, "\n\n")
		if !found || !ended {
			t.Fatalf("docs/security.md has no table %s", head)
		}
		lines = append(lines, strings.Split(table, "\n")...)
	}
	there := map[string]bool{}
	if err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, match := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[match[1]] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(/[^`]*)?`").FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no test holds: %s", line)
		}
		for _, name := range names {
			script, ok := strings.CutPrefix(name[1]+name[2], "TestScripts/")
			if ok {
				if _, err := os.Stat("internal/cli/testdata/" + script + ".txtar"); err != nil {
					t.Errorf("there is no script %s: %s", script, line)
				}
			} else if !there[name[1]] {
				t.Errorf("there is no %s: %s", name[1], line)
			}
		}
	}
}
