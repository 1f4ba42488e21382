package theseus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readers are the files that parse YAML without internal/safeio/bounded, each with its reason.
var readers = map[string]string{
	"internal/safeio/bounded/yaml.go":     "the reader itself",
	"internal/cluster/document/block.go":  "single scalars, and collections without aliases",
	"internal/mirror/splice/splice.go":    "into nodes, which expand nothing; aliases are refused",
	"internal/mirror/splice/edit.go":      "text that Theseus made",
	"internal/flags/flagset/tree.go":      "into nodes, which expand nothing; it counts the values",
	"internal/flags/setting/catalogue.go": "files that are built in",
	"internal/mirror/dns/config.go":       "a file of the machine's own: its zones and secrets",
	"internal/network/cnitest/cnitest.go": "fixtures of tests",
	"test/charts/main.go":                 "makes fixtures",
}

// TestBoundedReaders: YAML from outside is parsed within the bounds of internal/safeio/bounded, nowhere else.
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
			if ok && names[from.Name] && (strings.HasPrefix(call.Sel.Name, "Unmarshal") ||
				strings.Contains(call.Sel.Name, "Decoder") ||
				strings.HasPrefix(call.Sel.Name, "YAMLToJSON")) {
				t.Errorf("%s calls %s.%s: read it with internal/safeio/bounded", file, from.Name, call.Sel.Name)
			}
			return true
		})
	}
}

// whole are the files that read something to its end without internal/safeio/infile, each with its reason.
var whole = map[string]string{
	"internal/safeio/infile/read.go":            "the reader itself",
	"internal/safeio/bounded/yaml.go":           "the reader itself",
	"internal/mirror/dns/config.go":             "files of the machine's own: its zones and secrets",
	"internal/run/archive.go":                   "bounded there, by what evidence may have",
	"internal/run/journal/file.go":              "the machine's own journal",
	"internal/run/journal/process.go":           "files of /proc",
	"internal/run/journal/migration.go":         "bounded there, by what a plan may have",
	"internal/cli/mirror/dns/run.go":            "the machine's own journal",
	"internal/cli/mirror/config/config.go":      "bounded there, by what can be edited",
	"internal/cli/flags/eval/eval.go":           "bounded there, by what a flag set may have",
	"internal/flags/provider/file.go":           "bounded there, by what a flag set may have",
	"internal/flags/provider/remote.go":         "bounded there, by what an answer may have",
	"internal/cluster/kube/ailing.go":           "bounded there, by what of a log is shown",
	"internal/mirror/dns/dnstest/dnstest.go":    "runs in tests",
	"internal/mirror/cloud/aws/awstest/fake.go": "runs in tests",
	"internal/network/cnitest/suite.go":         "runs in tests",

	"internal/cluster/clustertest/controlplane.go": "runs in tests",
}

// TestWholeFiles: files and streams from outside are read within a bound. What runs on nodes reads the kernel's files
// and its own, and is left out.
func TestWholeFiles(t *testing.T) {
	for _, file := range goFiles(t) {
		file = filepath.ToSlash(file)
		if whole[file] != "" || !strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "internal/node/") ||
			strings.HasPrefix(file, "internal/proof/probe/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := call.X.(*ast.Ident); ok &&
				(from.Name == "os" && call.Sel.Name == "ReadFile" || from.Name == "io" && call.Sel.Name == "ReadAll") {
				t.Errorf("%s calls %s.%s: read it with internal/safeio/infile", file, from.Name, call.Sel.Name)
			}
			return true
		})
	}
}

// written are the files that create files without internal/safeio/outfile, each with its reason.
var written = map[string]string{
	"internal/cli/clitest/clitest.go":        "runs in tests",
	"internal/cli/statedir/statedir.go":      "a trial whether there is room, which is removed",
	"internal/mirror/dns/dnstest/dnstest.go": "runs in tests",
	"internal/network/cnitest/suite.go":      "runs in tests",

	"internal/cluster/clustertest/controlplane.go": "runs in tests",
	"internal/proof/signal/promtest/promtest.go":   "runs in tests",
}

// TestWrittenFiles: files with anything of a cluster are written whole or not at all, and for their owner alone.
func TestWrittenFiles(t *testing.T) {
	for _, file := range goFiles(t) {
		file = filepath.ToSlash(file)
		if written[file] != "" || !strings.HasPrefix(file, "internal/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := call.X.(*ast.Ident); ok && from.Name == "os" &&
				(call.Sel.Name == "WriteFile" || call.Sel.Name == "Create") {
				t.Errorf("%s calls os.%s: write it with internal/safeio/outfile", file, call.Sel.Name)
			}
			return true
		})
	}
}

// bounds are what a stream of JSON may be read through: each ends where somebody said it does.
var bounds = []string{"bytes.NewReader", "strings.NewReader", "io.LimitReader", "http.MaxBytesReader"}

// TestBoundedDecoders: JSON is decoded from what was read within a bound, as TestWholeFiles has it, or through one.
// What it can expand to, and how deep it goes, encoding/json bounds itself.
func TestBoundedDecoders(t *testing.T) {
	seen := 0
	for _, file := range goFiles(t) {
		file = filepath.ToSlash(file)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || calledAs(call) != "json.NewDecoder" || len(call.Args) != 1 {
				return true
			}
			seen++
			from, ok := call.Args[0].(*ast.CallExpr)
			if !ok || !slices.Contains(bounds, calledAs(from)) {
				t.Errorf("%s decodes JSON from a stream without a bound", file)
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("no decoder was found")
	}
}

// calledAs is what a call names, as in "json.NewDecoder"; empty for what is no function of a package.
func calledAs(call *ast.CallExpr) string {
	if function, ok := call.Fun.(*ast.SelectorExpr); ok {
		if from, ok := function.X.(*ast.Ident); ok {
			return from.Name + "." + function.Sel.Name
		}
	}
	return ""
}

// parsers are the functions that turn bytes of others into values.
var parsers = []string{"json.Unmarshal", "json.NewDecoder", "bounded.Unmarshal", "bounded.UnmarshalStrict",
	"infile.ReadJSON", "yaml.Unmarshal", "x509.ParseCertificate", "pem.Decode", "ssh.ParseAuthorizedKey",
	"kjson.UnmarshalCaseSensitivePreserveInts", "sigsjson.UnmarshalStrict"}

// unfuzzed are the packages that parse without a fuzz target of their own, each with its reason; "/..." stands for all
// below.
var unfuzzed = map[string]string{
	"cmd/theseus-agent":      "the plan of a benchmark, and the paths of a new pod, of its own pod",
	"cmd/theseus-controller": "addresses that it wrote itself",
	"internal/change/...":    "plans, which FuzzRead of change/plan tries",
	"internal/cli/...": "a change, in the bounds that FuzzToJSON tries; journals and " +
		"answers, which other rooms have",
	"internal/cluster":                   "values of a snapshot, which FuzzAdd of cluster/document tries",
	"internal/cluster/clustertest":       "objects of tests",
	"internal/cluster/kube":              "objects that the API server has validated against Theseus' own schemas",
	"internal/mirror/dns":                "answers of name servers that the user names, bounded",
	"internal/mirror/replica":            "objects of an API server",
	"internal/mirror/scratch":            "objects of an API server",
	"internal/network/cnitest":           "fixtures of tests",
	"internal/node/agent":                "objects that the API server has validated against Theseus' own schemas",
	"internal/preflight/check":           "objects of a snapshot, which FuzzChecks tries",
	"internal/preflight/check/api":       "objects of a snapshot, which FuzzChecks tries",
	"internal/preflight/check/cidr":      "objects of a snapshot, which FuzzChecks tries",
	"internal/preflight/check/checktest": "fixtures of tests",
	"internal/run":                       "evidence that it wrote itself; the journal's records, which run/journal has",
	"internal/run/controller":            "the journal's records, which run/journal has",
	"internal/run/engine":                "the journal's records, which run/journal has",
	"internal/run/guarded":               "the journal's records, which run/journal has",
	"internal/run/guarded/result":        "the journal's records, which run/journal has",
	"internal/run/mirrored":              "plans, which FuzzRead of change/plan tries",
	"internal/run/propose":               "the journal's records, which run/journal has",
	"internal/run/report":                "the journal's records, which run/journal has",
	"internal/run/web/webtest":           "steps that it made itself, for tests",
	"internal/proof/load":                "tasks and answers of its own pods, bounded",
	"internal/safeio/infile":             "JSON into a type of the caller's",
	"internal/step/adoption":             "files that FuzzParseConf of node tries",
	"internal/step/estimate":             "plans, which FuzzRead of change/plan tries",
	"internal/mirror/certs/certtest":     "certificates of tests",
}

// TestParsersAreFuzzed: every package that parses what others wrote has a fuzz target, or a reason to have none.
func TestParsersAreFuzzed(t *testing.T) {
	parses := map[string]bool{}
	for _, file := range goFiles(t) {
		file = filepath.ToSlash(file)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && slices.Contains(parsers, calledAs(call)) {
				parses[path.Dir(file)] = true
			}
			return true
		})
	}
	used := map[string]bool{}
	for dir := range parses {
		if !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") || fuzzes(t, dir) {
			continue
		}
		listed := dir
		for above := path.Dir(dir); unfuzzed[listed] == "" && above != "."; above = path.Dir(above) {
			listed = above + "/..."
		}
		if used[listed] = true; unfuzzed[listed] == "" {
			t.Errorf("%s parses what others wrote, and has neither a fuzz target nor a reason to have none", dir)
		}
	}
	for listed := range unfuzzed {
		if !used[listed] {
			t.Errorf("no package needs the reason of %s: take it off the list", listed)
		}
	}
}

// fuzzes says whether the tests of a package have a fuzz target.
func fuzzes(t *testing.T, dir string) bool {
	t.Helper()
	tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(tests, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "\nfunc Fuzz")
	})
}
