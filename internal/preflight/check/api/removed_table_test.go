package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write removed.json anew")

// TestRemovedTable holds removed.json to what k8s.io/api says of its own types: APILifecycleRemoved and
// APILifecycleReplacement of every version. Two groups have their types elsewhere and are added by hand.
func TestRemovedTable(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*", "*",
		"zz_generated.prerelease-lifecycle.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no lifecycles: %v", err)
	}
	table := []removal{
		{"apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", 22, "apiextensions.k8s.io/v1"},
		{"apiregistration.k8s.io/v1beta1", "APIService", 22, "apiregistration.k8s.io/v1"},
	}
	for _, file := range files {
		table = append(table, lifecycles(t, file)...)
	}
	slices.SortFunc(table, func(a, b removal) int {
		return strings.Compare(a.APIVersion+" "+a.Kind, b.APIVersion+" "+b.Kind)
	})
	want, err := json.MarshalIndent(table, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("removed.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("removed.json"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("removed.json is stale (go test ./internal/preflight/check/api -update writes it): %v", err)
	}
}

// lifecycles reads one version of one group.
func lifecycles(t *testing.T, file string) []removal {
	version := filepath.Base(filepath.Dir(file))
	if group := groupOf(t, filepath.Join(filepath.Dir(file), "register.go")); group != "" {
		version = group + "/" + version
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*removal{}
	replacements := map[string]string{}
	for _, declaration := range parsed.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv == nil {
			continue
		}
		kind := function.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
		result := function.Body.List[0].(*ast.ReturnStmt).Results
		switch function.Name.Name {
		case "APILifecycleRemoved":
			minor, err := strconv.Atoi(result[1].(*ast.BasicLit).Value)
			if err != nil || strings.HasSuffix(kind, "List") {
				continue
			}
			found[kind] = &removal{APIVersion: version, Kind: kind, Minor: minor}
		case "APILifecycleReplacement":
			fields := map[string]string{}
			for _, element := range result[0].(*ast.CompositeLit).Elts {
				pair := element.(*ast.KeyValueExpr)
				fields[pair.Key.(*ast.Ident).Name], _ = strconv.Unquote(pair.Value.(*ast.BasicLit).Value)
			}
			replacements[kind] = strings.TrimPrefix(fields["Group"]+"/"+fields["Version"], "/")
		}
	}
	var all []removal
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		found[kind].Instead = replacements[kind]
		all = append(all, *found[kind])
	}
	return all
}

func groupOf(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "GroupName = ")
	if !ok {
		t.Fatalf("%s names no group", file)
	}
	line, _, _ := strings.Cut(rest, "\n")
	group, err := strconv.Unquote(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return group
}
