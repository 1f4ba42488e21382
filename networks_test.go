package theseus

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// knowing are what a package, or a file of one, knows of a network that is not its own, each with its reason. None of
// them is of a pair.
var knowing = map[string]string{
	"internal/network/flannel calico":              "a pod that also runs Calico's agent is Canal's",
	"internal/network/canal calico":                "it is Calico's agent and flannel's in one pod",
	"internal/network/canal flannel":               "the same",
	"internal/network/cilium/cilium.go calico":     "a hint names the sources",
	"internal/network/cilium/cilium.go flannel":    "the same",
	"internal/network/cilium/cilium.go kuberouter": "the same",
	"internal/change/replace/refuse.go calico":     "what users wrote, and a change would end",
	"internal/change/rollout calico":               "a change of one network's flags: those of Calico's Felix",
	"internal/change/rollout cilium": "the same: Cilium's have other places, and its agents " +
		"read them only when they start",
	"internal/change/pool calico":          "a change of Calico's own settings: its IPPools",
	"internal/change/encapsulation calico": "a change of Calico's own settings: how its IPPools encapsulate",
	"internal/change/reflectors calico": "a change of Calico's own settings: " +
		"its BGPPeers, and who reflects",
	"internal/cluster/kube/snapshot_other.go calico": "API groups that a snapshot holds; drivers read what is in them",
	"internal/cluster/kube/snapshot_other.go cilium": "the same",
	"internal/run/measured.go calico":                "whether a network treats other nodes as the outside",
	"internal/run/measured.go canal":                 "the same",
	"internal/run/measured.go flannel":               "the same",
	"internal/run/measured.go kindnet":               "the same",
	"internal/run/measured.go kuberouter":            "the same",
	"internal/run/measured.go weave":                 "the same",
	"internal/node/bird.go calico":                   "the folder in which Calico's image has BIRD's sockets",
	"internal/step/allowed.go calico": "what agents may be asked to remove stands on one page; each " +
		"driver's residue is held within it",
	"internal/step/allowed.go flannel":    "the same",
	"internal/step/allowed.go kindnet":    "the same",
	"internal/step/allowed.go weave":      "the same",
	"internal/step/allowed.go cilium":     "the same",
	"internal/step/allowed.go kuberouter": "the same",
}

// shared are the packages that serve every network: what they do may depend on what a network says of itself, and not
// on which it is.
var shared = []string{"internal/change/plan", "internal/run", "internal/run/engine",
	"internal/node", "internal/network/joint", "internal/step/adoption", "internal/cluster/kube",
	"internal/cluster/outage", "internal/run/report", "internal/proof/path", "internal/proof/probe",
	"internal/proof/loss", "internal/step", "internal/run/journal", "internal/node/agent"}

// TestNoPairs: what is known of a network is in its driver. The planner, the engine, its hands and the strategies, and
// the drivers of other networks, neither import it nor name it.
func TestNoPairs(t *testing.T) {
	list, err := parser.ParseFile(token.NewFileSet(), "internal/network/drivers/drivers.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	// a driver's name, and others for its network's parts
	words := map[string][]string{"calico": {"felix", "tigera"}, "kuberouter": {"kube-router"}}
	for _, spec := range list.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if name := filepath.Base(path); name != "cni" {
			words[name] = append(words[name], name)
		}
	}
	networks := maps.Clone(words)
	delete(words, "bridge") // which is also what some networks make
	used := map[string]bool{}
	for _, file := range goFiles(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		own := strings.TrimPrefix(pkg, "internal/network/")
		if networks[own] == nil && !slices.Contains(shared, pkg) && !strings.HasPrefix(pkg, "internal/change/") {
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
				if network == own ||
					!slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) }) {
					continue
				}
				where := filepath.ToSlash(file) + " " + network
				if knowing[where] == "" {
					where = pkg + " " + network
				}
				if knowing[where] == "" {
					t.Errorf("%s knows of %s (%s): that belongs to its driver, or in knowing (networks_test.go) with "+
						"the reason", file, network, text)
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
