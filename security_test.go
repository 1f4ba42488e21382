package theseus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSecurityTable: every line of the tables of defences in docs/security.md names tests, each with its package, and
// they are there. make runs the tests that need a real API server, too.
func TestSecurityTable(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, head := range []string{"| what | what holds | tests |\n|---|---|---|\n",
		"| attack | what holds | tests |\n|---|---|---|\n"} {
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
	for folder, text := range packages {
		if folder != "." && strings.Contains(text, `"THESEUS_KUBE"`) {
			t.Errorf("%s reads THESEUS_KUBE by itself: %s does that", folder, kubeProgram)
		}
		for _, test := range needsKube(t, text) {
			if !madeWithKube(t, folder, test) {
				t.Errorf("make lab-test runs no %s of %s, which is skipped elsewhere: it needs THESEUS_KUBE",
					test, folder)
			}
		}
	}
	for _, name := range named.FindAllStringSubmatch(string(page), -1) {
		if problem := packages.lack(name[1], name[2], name[3]); problem != "" {
			t.Errorf("%s: %s", name[0], problem)
		}
	}
}

// named is a test with its package and, after slashes, its subtests.
var named = regexp.MustCompile("`([a-z0-9-]+)\\.((?:Test|Fuzz)\\w+)((?:/[^`/]+)*)`")

// needsKube are the tests of a package that are skipped without THESEUS_KUBE, by themselves or by a function of the
// package.
func needsKube(t *testing.T, text string) []string {
	t.Helper()
	if !strings.Contains(text, kubeProgram) {
		return nil
	}
	uses := map[string]map[string]bool{} // what functions, and methods, mention
	for _, file := range strings.Split(text, fileEnd) {
		if file == "" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), "", file, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if uses[f.Name.Name] == nil {
				uses[f.Name.Name] = map[string]bool{}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					uses[f.Name.Name][n.Name] = true
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok {
						uses[f.Name.Name][of.Name+"."+n.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	var tests []string
	for name := range uses {
		reached, next := map[string]bool{}, []string{name}
		for len(next) > 0 {
			one := next[0]
			next = next[1:]
			if reached[one] {
				continue
			}
			reached[one] = true
			next = slices.AppendSeq(next, maps.Keys(uses[one]))
		}
		if strings.HasPrefix(name, "Test") && name != "TestMain" && reached[kubeProgram] {
			tests = append(tests, name)
		}
	}
	return tests
}

// kubeProgram is the one function that reads THESEUS_KUBE.
const kubeProgram = "clustertest.Program"

// madeWithKube says whether a line of the Makefile runs a test with THESEUS_KUBE.
func madeWithKube(t *testing.T, folder, test string) bool {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\tTHESEUS_KUBE=\S+ go test .*-run '([^']+)'(.*)$`).
		FindAllStringSubmatch(string(text), -1) {
		if regexp.MustCompile(strings.ReplaceAll(line[1], "$$", "$")).MatchString(test) &&
			slices.Contains(strings.Fields(line[2]), "./"+filepath.ToSlash(folder)) {
			return true
		}
	}
	return false
}

// fileEnd separates the files of a package.
const fileEnd = "\x00"

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
		all[filepath.Dir(file)] += string(text) + fileEnd
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// lack says why a test of a package is not there; empty where it is. A subtest is there if its name is written in that
// package, or is that of a script.
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
		if _, err := os.Stat(filepath.Join(folders[0], "testdata", sub+".txtar")); err != nil &&
			!strings.Contains(all[folders[0]], `"`+sub+`"`) {
			return "there is no subtest " + sub
		}
	}
	return ""
}
