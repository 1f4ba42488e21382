package build

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// patch has the changes that the source of a module needs before it can be built or run here.
type patch struct {
	module string
	files  map[string][]phrase.Edit // by path in the module
}

const weaveModule = "github.com/weaveworks/weave"

// weavePatch has the changes for Weave Net 2.6.5: an interface of another kind when the bridge is made,
// for a moment and for its MTU only, since not every kernel has dummy interfaces (Linux without modules);
// and the name of the core API in newer releases of client-go.
func weavePatch() *patch {
	core := func(resource string) phrase.Edit {
		return phrase.Edit{
			From: `client.Core().RESTClient(), "` + resource,
			To:   `client.CoreV1().RESTClient(), "` + resource,
		}
	}
	return &patch{module: weaveModule, files: map[string][]phrase.Edit{
		"net/bridge.go":          {{From: "&netlink.Dummy{", To: "&netlink.Ifb{"}},
		"prog/weave-npc/main.go": {core("namespaces"), core("pods")},
	}}
}

// typhaPatch has the change for Typha of v3.30 and v3.31 with Go 1.26 or later: json-iterator mishandles a struct that
// only has a map, as Calico's labels do, and Typha panics at the first object.
func typhaPatch() *patch {
	return &patch{module: calico, files: map[string][]phrase.Edit{
		"libcalico-go/lib/json/json.go": {
			{From: `import jsoniter "github.com/json-iterator/go"`, To: `import (
	"encoding/json"

	jsoniter "github.com/json-iterator/go"
)`},
			{From: "jsoniter.ConfigCompatibleWithStandardLibrary.Marshal(v)", To: "json.Marshal(v)"},
		},
	}}
}

// patch copies the source of a target's patched module into the cache, changes the copy, and returns
// the component's go.mod with the copy in place of the module. The caller holds the build lock.
func (c *Cache) patch(ctx context.Context, t target) (modfile string, err error) {
	p := t.patched
	original, err := c.ModuleDir(ctx, path.Base(t.module), p.module)
	if err != nil {
		return "", err
	}
	work := filepath.Join(c.dir, "patched", path.Base(t.module))
	source := filepath.Join(work, "source")
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	if err := os.CopyFS(source, os.DirFS(original)); err != nil {
		return "", err
	}
	for name, edits := range p.files {
		if err := edit(filepath.Join(source, filepath.FromSlash(name)), edits); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if own := filepath.Join(source, "go.mod"); !exists(own) { // from before modules
		if err := os.WriteFile(own, []byte("module "+p.module+"\n"), 0o644); err != nil {
			return "", err
		}
	}
	mod, sum := t.requirements(filepath.Join(c.source, t.module))
	return patchedModfile(mod, sum, work, p.module, source)
}

func edit(file string, edits []phrase.Edit) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := phrase.Apply(string(text), edits)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

// patchedModfile writes to dir the go.mod and go.sum, with one module read from source.
func patchedModfile(mod, sum, dir, module, source string) (string, error) {
	text, err := os.ReadFile(mod)
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(sum)
	if err != nil {
		return "", err
	}
	text = slices.Concat(text, fmt.Appendf(nil, "\nreplace %s => %s\n", module, source))
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644); err != nil {
		return "", err
	}
	modfile := filepath.Join(dir, "go.mod")
	return modfile, os.WriteFile(modfile, text, 0o644)
}
