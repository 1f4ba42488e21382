package theseus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestOneListOfKinds: the planner knows the contract with kinds of change, and names the kinds in one list alone; so
// does no kind know the planner.
func TestOneListOfKinds(t *testing.T) {
	const room, list = module + "internal/change/", "internal/change/plan/kinds.go"
	contract := map[string]bool{"compact": true, "kind": true, "verify": true}
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

// concerned are the packages that know one kind of change though it is not theirs, each with its reason. The command
// line, which wires everything together, knows all of them.
var concerned = map[string]string{
	"internal/run/mirrored":   "carries out the verbs that plans with a mirror alone have",
	"internal/mirror/replica": "the same: copies, freezes and takes down",
}

// TestNoKindOutside: a kind of change is known by its own package. Others ask its contract (internal/change/kind) what
// a plan is like: they neither import a kind nor look which part of a plan is set.
func TestNoKindOutside(t *testing.T) {
	sections, used := sectionsOf(t), map[string]bool{}
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		own := strings.HasPrefix(pkg, "internal/change/") && pkg != "internal/change/plan" &&
			pkg != "internal/change/verify"
		if own || strings.HasPrefix(pkg, "internal/cli") || strings.HasPrefix(pkg, "cmd/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, named := range kindsNamed(parsed, pkg, sections) {
			if filepath.ToSlash(file) == "internal/change/plan/kinds.go" {
				continue
			}
			if concerned[pkg] == "" {
				t.Errorf("%s uses %s, which is a kind of change or its field of kind.Plan: ask a method of kind.Plan. "+
					"If it means something else by this name, give the field another name", file, named)
			}
			used[pkg] = true
		}
	}
	for exception := range concerned {
		if !used[exception] {
			t.Errorf("%s: an exception that nothing needs", exception)
		}
	}
}

// kindsNamed are the kinds of change that a file imports, and in packages that have plans in their hands, the parts of
// plans that it uses.
func kindsNamed(file *ast.File, pkg string, sections []string) (named []string) {
	for _, spec := range file.Imports {
		full, _ := strconv.Unquote(spec.Path.Value)
		other, ours := strings.CutPrefix(full, module+"internal/change/")
		if ours && !slices.Contains([]string{"compact", "kind", "plan", "verify"}, other) {
			named = append(named, other)
		}
	}
	if !strings.HasPrefix(pkg, "internal/run") && !strings.HasPrefix(pkg, "internal/change/") {
		return named
	}
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok || !slices.Contains(sections, selector.Sel.Name) {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); !ok || !imports(file, pkg.Name) { // step.Mirror is an operation
			named = append(named, selector.Sel.Name)
		}
		return true
	})
	return named
}

// imports says whether a file imports a package by this name.
func imports(file *ast.File, name string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool {
		full, _ := strconv.Unquote(spec.Path.Value)
		return spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(full) == name
	})
}

// sectionsOf are the parts of a plan that only plans of one kind have: the fields that may be nil.
func sectionsOf(t *testing.T) (sections []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "internal/change/kind/plan.go",
		nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Plan" {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			if _, pointer := field.Type.(*ast.StarExpr); pointer {
				sections = append(sections, field.Names[0].Name)
			}
		}
		return false
	})
	if len(sections) < 7 {
		t.Fatalf("the sections of a plan are %v", sections)
	}
	return sections
}
