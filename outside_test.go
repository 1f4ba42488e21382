package theseus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// readers are the files that parse YAML without internal/bounded, each with its reason.
var readers = map[string]string{
	"internal/bounded/yaml.go":        "the reader itself",
	"internal/document/block.go":      "single scalars, and collections without aliases",
	"internal/splice/splice.go":       "into nodes, which expand nothing; aliases are refused",
	"internal/splice/edit.go":         "text that Theseus made",
	"internal/flag/tree.go":           "into nodes, which expand nothing; it counts the values",
	"internal/knob/catalogue.go":      "files that are built in",
	"internal/cni/cnitest/cnitest.go": "fixtures of tests",
	"test/charts/main.go":             "makes fixtures",
	"internal/dns/config.go":          "a file of the machine's own: its zones and secrets",
}

// TestBoundedReaders: YAML from outside is parsed within the bounds of internal/bounded, nowhere else.
func TestBoundedReaders(t *testing.T) {
	for _, file := range goFiles(t) {
		file = filepath.ToSlash(file)
		if readers[file] != "" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if !strings.Contains(path, "yaml") {
				continue
			}
			name := "yaml"
			if spec.Name != nil {
				name = spec.Name.Name
			}
			names[name] = true
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := call.X.(*ast.Ident)
			if ok && names[from.Name] && (strings.HasPrefix(call.Sel.Name, "Unmarshal") || strings.Contains(call.Sel.Name, "Decoder") ||
				strings.HasPrefix(call.Sel.Name, "YAMLToJSON")) {
				t.Errorf("%s calls %s.%s: read it with internal/bounded", file, from.Name, call.Sel.Name)
			}
			return true
		})
	}
}
