package rehearse

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// TestReadNetwork: --network-manifest reads what plan --manifest reads, and refuses what that refuses.
func TestReadNetwork(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	read := func(file string) (*options, error) {
		o := &options{network: file}
		return o, o.readNetwork(&app.App{})
	}
	o, err := read(filepath.Join("..", "..", "network", "calico", "testdata", "calico-vxlan-v3.31.0.yaml"))
	if err != nil || len(o.installs) != 1 || o.installs[0].CNI != "calico" || o.installs[0].Version != "v3.31.0" {
		t.Errorf("%v: %+v", err, o.installs)
	}
	for name, c := range map[string]struct{ file, want string }{
		"no file":  {filepath.Join(folder, "none.yaml"), "no such file"},
		"empty":    {write("empty.yaml", "---\n"), "no Kubernetes object in it"},
		"no YAML":  {write("bad.yaml", "a: ["), "--network-manifest: the manifest:"},
		"a folder": {folder, "is a directory"},
		"a Secret": {write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\n"),
			"the Secret"},
		"no object": {write("none.yaml", "a: b\n"), "--network-manifest"},
	} {
		if name == "no file" {
			c.file = filepath.Join(folder, "missing.yaml")
		}
		if _, err := read(c.file); err == nil || !strings.Contains(err.Error(), c.want) || exit.HintOf(err) == "" {
			t.Errorf("%s: %v; hint: %s", name, err, exit.HintOf(err))
		}
	}
	if o, err := read(write("other.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")); err != nil ||
		len(o.installs) != 0 {
		t.Errorf("a manifest without a network: %v, %v", o.installs, err)
	}
}
