package contents

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const product = "../../.."

// starters are the files of the product that start programs, each with what they start.
var starters = map[string]string{
	"internal/node/commands.go":       "the programs of the agent's image, as the callers of Commands.run name them",
	"internal/node/adoptcni.go":       "CNI plugins of the node, in the node's root",
	"internal/run/mirrored/actor.go":  "/bin/sh, with a line of the plan",
	"internal/run/nodepool/hook.go":   "a command of the user's, which an image for it must bring",
	"internal/mirror/dns/place.go":    "a command of the user's that reaches another place, such as kubectl or ssh",
	"internal/run/guarded/process.go": "the user's change, and the user's way back (--on-loss)",
	"internal/proof/signal/ask/ask.go": "a signal that is a command of the user's (--slo); the " +
		"controller refuses plans with one",
	"internal/safeio/group/group.go": "nothing: it gives what others start a process group",
	"internal/cli/guard/guard.go":    "nothing: it looks up in PATH what process.go starts",
}

// TestStarters: a new place that starts programs is named here, and its programs are in an image.
func TestStarters(t *testing.T) {
	found := map[string]bool{}
	for _, dir := range []string{"cmd", "internal"} {
		sources(t, filepath.Join(product, dir), func(file string, parsed *ast.File) {
			file, _ = filepath.Rel(product, file)
			for _, spec := range parsed.Imports {
				if spec.Path.Value == `"os/exec"` && !strings.HasSuffix(filepath.Dir(file), "test") {
					found[file] = true
				}
			}
		})
	}
	for file := range starters {
		if !found[file] {
			t.Errorf("%s starts no program: take it off the list", file)
		}
	}
	for file := range found {
		if starters[file] == "" {
			t.Errorf("%s starts programs: add it to starters, and what it starts to an image", file)
		}
	}
}

// TestAgentPrograms compares the programs of the agent's image with those that the code on nodes runs.
func TestAgentPrograms(t *testing.T) {
	called := map[string]bool{}
	sources(t, filepath.Join(product, "internal/node"), func(file string, parsed *ast.File) {
		ast.Inspect(parsed, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && isRun(call) {
				names, err := programs(call.Args[2])
				if err != nil {
					t.Errorf("%s: %v", file, err)
				}
				for _, name := range names {
					called[name] = true
				}
			}
			return true
		})
	})
	want := slices.Sorted(maps.Keys(called))
	got := slices.Sorted(slices.Values(agent().Names()))
	if !slices.Equal(got, want) {
		t.Errorf("the agent's image has %q\nthe agent calls       %q", got, want)
	}
}

// isRun says whether a call is Commands.run(ctx, input, name, ...).
func isRun(call *ast.CallExpr) bool {
	run, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || run.Sel.Name != "run" || len(call.Args) < 3 {
		return false
	}
	commands, ok := run.X.(*ast.SelectorExpr)
	return ok && commands.Sel.Name == "Commands"
}

// programs are the programs that an argument can name: a literal, or a form of iptables by backend.program(SUFFIX).
func programs(argument ast.Expr) ([]string, error) {
	switch argument := argument.(type) {
	case *ast.BasicLit:
		name, err := strconv.Unquote(argument.Value)
		return []string{name}, err
	case *ast.CallExpr:
		method, ok := argument.Fun.(*ast.SelectorExpr)
		if !ok || method.Sel.Name != "program" || len(argument.Args) != 1 {
			break
		}
		suffix, ok := argument.Args[0].(*ast.BasicLit)
		if !ok {
			break
		}
		text, err := strconv.Unquote(suffix.Value)
		var names []string
		for _, family := range []string{"iptables", "ip6tables"} {
			for _, kind := range []string{"nft", "legacy"} {
				names = append(names, family+"-"+kind+text)
			}
		}
		return names, err
	}
	return nil, fmt.Errorf("which program is called cannot be read from %T", argument)
}

// sources parses the Go files below a folder that are no tests.
func sources(t *testing.T, dir string, see func(file string, parsed *ast.File)) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		seen++
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			see(path, parsed)
		}
		return err
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d files in %s: %v", seen, dir, err)
	}
}

// TestReasons: every program and every package has a reason.
func TestReasons(t *testing.T) {
	for _, image := range Images() {
		for _, p := range image.Programs {
			if p.Package == "" || len(p.Why) < 20 {
				t.Errorf("%s: the reason for %s is %q", image.Name, p.Name, p.Why)
			}
		}
		for _, d := range image.Data {
			if len(d.Why) < 20 {
				t.Errorf("%s: the reason for %s is %q", image.Name, d.Package, d.Why)
			}
		}
	}
}
