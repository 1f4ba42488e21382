package theseus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/theseus-cni/theseus/"

// layers are the ranks of docs/design.md: a package imports only packages of a strictly lower rank.
// A pattern that ends in / stands for every package below it.
var layers = []struct {
	pattern string
	rank    int
	pure    bool
}{
	{"api/v1alpha1", 0, true},
	{"internal/cluster", 0, true},
	{"internal/cluster/clustertest", 1, true}, // runs inside tests
	{"internal/finding", 0, true},
	{"internal/fault", 0, true},
	{"internal/bounded", 0, true},
	{"internal/printable", 0, true},
	{"internal/shell", 0, true},
	{"internal/outfile", 0, false},
	{"internal/infile", 1, false},
	{"internal/signed", 2, false},
	{"internal/canonical", 0, true},
	{"internal/selector", 1, true},
	{"internal/selector/nodes", 1, true},
	{"internal/bgp", 2, true},
	{"internal/bgp/draw", 3, true},
	{"internal/whatif", 1, true},
	{"internal/zone", 1, true},
	{"internal/zone/names", 2, true},
	{"internal/zone/shift", 2, true},
	{"internal/kopsname", 1, true},
	{"internal/cloud", 2, true},
	{"internal/cloud/aws", 7, false},
	{"internal/cloud/aws/awstest", 8, false}, // runs inside tests
	{"internal/certificate", 2, true},
	{"internal/certificate/certtest", 3, false}, // runs inside tests
	{"internal/policy", 2, true},
	{"internal/ipam", 1, true},
	{"internal/flag", 1, true},
	{"internal/felix", 1, true},
	{"internal/knob", 3, true},
	{"internal/loss", 1, true},
	{"internal/path", 1, true},
	{"internal/document", 1, true},
	{"internal/step", 1, true},
	{"internal/adoption", 2, true},
	{"internal/estimate", 2, true},
	{"internal/manifest", 1, true},
	{"internal/image", 1, true},
	{"internal/freeze", 1, true},
	{"internal/twin", 2, true},
	{"internal/splice", 1, true},
	{"internal/mirrorconfig", 2, true},
	{"internal/cni/cnitest", 3, false}, // an acceptance suite: runs inside tests
	{"internal/cni/", 3, true},
	{"internal/cni", 2, true},
	{"internal/check/checktest", 5, false}, // runs inside tests
	{"internal/check/", 4, true},
	{"internal/check", 3, true},
	{"internal/preflight", 5, true},
	{"internal/strategy/joint", 3, true},
	{"internal/strategy/", 4, true},
	{"internal/plan", 5, true},
	{"internal/engine", 6, true},
	{"internal/outage", 6, false},
	{"internal/report", 7, true},
	{"internal/kube", 7, false},
	{"internal/node", 7, false},
	{"internal/probe", 7, false},
	{"internal/journal", 7, false},
	{"internal/registry", 7, false},
	{"internal/flags", 7, false},
	{"internal/flags/pgtest", 7, false}, // runs inside tests
	{"internal/dns/dnstest", 8, false},  // runs inside tests
	{"internal/dns/", 7, false},
	{"internal/dns", 8, false},
	{"internal/replica", 8, false},
	{"internal/certs", 8, false},
	{"internal/nodepool", 8, false},
	{"internal/web", 8, false},
	{"internal/cli", 9, false},
	{"internal/controller", 9, false},
	{"internal/agent", 9, false},
	{"cmd/", 10, false},
	{"test/verdicts", 10, false},    // a program for the tests in a lab
	{"test/certmanager", 10, false}, // too, of another module
	{"test/charts", 10, false},      // makes fixtures, of another module
}

// impure are the imports that a pure package does without.
var impure = []string{"os", "net", "net/http", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "os/exec"}

// TestLayers holds the architecture: ranks are respected, every package has one, and pure packages are pure.
func TestLayers(t *testing.T) {
	for _, file := range goFiles(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := filepath.ToSlash(filepath.Dir(file))
		rank, pure, known := layerOf(pkg)
		if !known {
			t.Errorf("%s: package %s has no rank: add it to docs/design.md and to this test", file, pkg)
			continue
		}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			checkImport(t, file, rank, pure, path)
		}
		if pure {
			checkClock(t, file, parsed)
		}
	}
}

func checkImport(t *testing.T, file string, rank int, pure bool, path string) {
	if local, ok := strings.CutPrefix(path, module); ok {
		if other, _, _ := layerOf(local); other >= rank {
			t.Errorf("%s: rank %d imports %s of rank %d", file, rank, local, other)
		}
		return
	}
	if pure && (slices.Contains(impure, path) || strings.HasPrefix(path, "k8s.io/client-go")) {
		t.Errorf("%s: a pure package imports %s", file, path)
	}
}

// checkClock finds time.Now, time.Since and friends: pure code is given the time.
func checkClock(t *testing.T, file string, parsed *ast.File) {
	ast.Inspect(parsed, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == "time" &&
			slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick"}, selector.Sel.Name) {
			t.Errorf("%s: a pure package calls time.%s", file, selector.Sel.Name)
		}
		return true
	})
}

func layerOf(pkg string) (rank int, pure, known bool) {
	for _, layer := range layers {
		if pkg == layer.pattern || strings.HasSuffix(layer.pattern, "/") && strings.HasPrefix(pkg, layer.pattern) {
			return layer.rank, layer.pure, true
		}
	}
	return 0, false, false
}

// goFiles lists the module's own Go files, without tests: a test may use the real thing.
func goFiles(t *testing.T) []string {
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path == "lab" || path == ".git" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && filepath.Dir(path) != "." {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// knowing are what a package, or a file of one, knows of a network that is not its own, each with its reason. None of them is
// of a pair.
var knowing = map[string]string{
	"internal/cni/flannel calico":            "Canal runs Calico's agent in flannel's own pod, and is refused by that",
	"internal/strategy/rollout calico":       "a change of one network's flags: those of Calico's Felix",
	"internal/plan/rollout.go calico":        "the same",
	"internal/plan/rollout.go cilium":        "a change of one network's flags: Cilium's, which have other places",
	"internal/plan/rollout_cilium.go cilium": "the same",
	"internal/plan/rollout_cilium.go calico": "where a rollout's flag is written, on either network",
	"internal/plan/verify_rollout.go cilium": "the rules of a rollout there: its agents read a flag only when they start",
	"internal/plan/calico.go calico":         "changes of Calico's own settings are for clusters on it",
	"internal/plan/pool.go calico":           "a change of Calico's own settings: its IPPools",
	"internal/plan/encapsulation.go calico":  "a change of Calico's own settings: how its IPPools encapsulate",
	"internal/plan/reflectors.go calico":     "a change of Calico's own settings: its BGPPeers, and who reflects",
	"internal/plan/fingerprint.go calico":    "which objects of networks' own a plan is made from",
	"internal/plan/fingerprint.go cilium":    "the same",
	"internal/plan/refuse.go calico":         "labels by which another tool's migration is known",
	"internal/plan/refuse.go flannel":        "the same: the tool is Calico's own controller",
	"internal/kube/snapshot_other.go calico": "API groups that a snapshot holds; drivers read what is in them",
	"internal/kube/snapshot_other.go cilium": "the same",
	"internal/node/bird.go calico":           "the folder in which Calico's image has BIRD's sockets",
	"internal/step/allowed.go calico":        "what agents may be asked to remove stands on one page; each driver's residue is held within it",
	"internal/step/allowed.go flannel":       "the same",
	"internal/step/allowed.go weave":         "the same",
	"internal/step/allowed.go cilium":        "the same",
	"internal/step/allowed.go kube-router":   "the same",
}

// shared are the packages that serve every network: what they do may depend on what a network says of itself, and not on which it is.
var shared = []string{"internal/plan", "internal/engine", "internal/node", "internal/adoption", "internal/kube", "internal/outage", "internal/report",
	"internal/path", "internal/probe", "internal/loss", "internal/step", "internal/journal", "internal/agent"}

// TestNoPairs: what is known of a network is in its driver. The planner, the engine, its hands and the strategies, and the
// drivers of other networks, neither import it nor name it.
func TestNoPairs(t *testing.T) {
	entries, err := os.ReadDir("internal/cni")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string][]string{"calico": {"felix", "tigera"}, "kube-router": {"kube-router", "kuberouter"}} // a driver's name, and others for its network's parts
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "cnitest" {
			words[entry.Name()] = append(words[entry.Name()], entry.Name())
		}
	}
	delete(words, "bridge") // which is also what some networks make
	used := map[string]bool{}
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		own := strings.TrimPrefix(pkg, "internal/cni/")
		if own == pkg && !slices.Contains(shared, pkg) && !strings.HasPrefix(pkg, "internal/strategy/") || own == "cnitest" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			text := ""
			switch n := node.(type) {
			case *ast.BasicLit:
				text = strings.ToLower(n.Value)
			case *ast.Ident:
				text = strings.ToLower(n.Name)
			}
			for network, names := range words {
				if network == own || !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) }) {
					continue
				}
				where := filepath.ToSlash(file) + " " + network
				if knowing[where] == "" {
					where = pkg + " " + network
				}
				if knowing[where] == "" {
					t.Errorf("%s knows of %s (%s): that belongs to its driver", file, network, text)
				}
				used[where] = true
			}
			return true
		})
	}
	for exception := range knowing {
		if !used[exception] {
			t.Errorf("%s: an exception that nothing needs", exception)
		}
	}
}
