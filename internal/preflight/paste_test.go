package preflight

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

// evil is what a name of a cluster ends with in these tests: pasted into a shell, it runs a command.
const evil = "$(id)"

// inQuotes are words in single quotes, as shell.Word writes them.
var inQuotes = regexp.MustCompile(`'[^']*'(?:\\''[^']*')*`)

// TestPaste: a command of a fix does nothing but what it says, whatever the objects of the cluster are called. It runs
// every check on its fixtures, in which all names and values that mean nothing to Theseus were made hostile.
func TestPaste(t *testing.T) {
	commands := 0
	for _, c := range All() {
		files, err := filepath.Glob(filepath.Join("check", filepath.Dir(c.ID), "testdata",
			filepath.Base(c.ID), "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			pass, _ := checktest.Load(t, file)
			hostile(t, pass)
			if c.Missing(pass) != "" {
				continue
			}
			for _, f := range c.Run(pass) {
				commands += harmless(t, file, f)
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands with a hostile name: the fixtures no longer reach them", commands)
	}
}

// harmless looks at one fix, and says whether it has a command with a hostile name.
func harmless(t *testing.T, file string, f finding.Finding) int {
	at := strings.Index(f.Fix, "kubectl ")
	if at < 0 || !strings.Contains(f.Fix[at:], evil) {
		return 0
	}
	if strings.Contains(inQuotes.ReplaceAllString(f.Fix[at:], ""), evil) {
		t.Errorf("%s: %s: a name is not quoted: %s", file, f.ID, f.Fix)
	}
	return 1
}

// hostile renames what a user can name: objects, and the values of labels and annotations, wherever they stand.
func hostile(t *testing.T, pass *check.Pass) {
	t.Helper()
	data, err := json.Marshal(pass.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	collect(tree, names)
	for name := range names {
		if known.MatchString(name) {
			delete(names, name)
		}
	}
	if data, err = json.Marshal(rename(tree, names)); err != nil {
		t.Fatal(err)
	}
	var renamed cluster.Snapshot
	if err := json.Unmarshal(data, &renamed); err != nil {
		t.Fatal(err)
	}
	pass.Snapshot = &renamed
}

// known are names that mean something to checks.
var known = regexp.MustCompile(
	`^(kube-.*|calico.*|default|flannel|cilium.*|tigera.*|weave.*|coredns|aws-node|typha.*|canal|metallb.*|true|false|linux|windows|amd64|arm64|)$`)

// collect gathers the names of objects.
func collect(tree any, names map[string]bool) {
	switch tree := tree.(type) {
	case map[string]any:
		if meta, ok := tree["metadata"].(map[string]any); ok {
			for _, field := range []string{"name", "namespace"} {
				if name, ok := meta[field].(string); ok {
					names[name] = true
				}
			}
		}
		for _, one := range tree {
			collect(one, names)
		}
	case []any:
		for _, one := range tree {
			collect(one, names)
		}
	}
}

func rename(tree any, names map[string]bool) any {
	switch tree := tree.(type) {
	case string:
		if names[tree] {
			return tree + evil
		}
	case map[string]any:
		for key, one := range tree {
			tree[key] = rename(one, names)
		}
	case []any:
		for i, one := range tree {
			tree[i] = rename(one, names)
		}
	}
	return tree
}
