package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// TestConfs: what a runtime passes over is told with its reason, and nothing that is no configuration is read.
func TestConfs(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, confDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"00-broken.conflist": `{"name": "x", "plugins": [`,
		"05-none.conflist":   `{"name": "x", "type": "bridge"}`,
		"10-bridge.conflist": `{"name": "pods", "plugins": [{"type": "bridge", "bridge": "cbr0", "mtu": 1460, "ipMasq": true,
			"ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}}, {"type": "portmap"}]}`,
		"20-old.conf":          `{"name": "old", "type": "ptp", "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"}}`,
		"30-long.conf":         strings.Repeat(" ", mostConfSize+1),
		"40-x.conflist.staged": `{}`,
		"50-folder.conf/x":     "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := &Node{Root: root}
	files, err := n.confFiles()
	if err != nil {
		t.Fatal(err)
	}
	got := n.confs(files)
	for i := range got {
		if got[i].Problem != "" {
			got[i].Problem = "some"
		}
	}
	want := []cluster.Conf{
		{File: "00-broken.conflist", Problem: "some"},
		{File: "05-none.conflist", Problem: "some"},
		{File: "10-bridge.conflist", Network: "pods", Plugins: []string{"bridge", "portmap"}, Bridge: "cbr0",
			MTU: 1460, IPAM: "host-local", Subnets: []string{"10.1.0.0/24", "fd00::/64"},
			DataDir: "/run/ipam", IPMasq: true},
		{File: "20-old.conf", Network: "old", Plugins: []string{"ptp"}, IPAM: "host-local",
			Subnets: []string{"10.2.0.0/24"}},
		{File: "30-long.conf", Problem: "some"},
		{File: "50-folder.conf", Problem: "some"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	facts := cluster.NodeFacts{Confs: got}
	if serving, ok := facts.Serving(); !ok || serving.File != "10-bridge.conflist" {
		t.Errorf("%+v serves", serving)
	}
}

func FuzzParseConf(f *testing.F) {
	f.Add([]byte(`{"name": "a", "plugins": [{"type": "bridge", "ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}]]}}]}`),
		true)
	f.Add([]byte(`{"type": "ptp", "ipam": {"subnet": "10.0.0.0/24"}}`), false)
	f.Add([]byte(`{"plugins": [{}]}`), true)
	f.Fuzz(func(t *testing.T, text []byte, list bool) {
		var conf cluster.Conf
		if parseConf(text, list, &conf) != nil {
			return
		}
		if len(conf.Plugins) == 0 || conf.Plugins[0] == "" {
			t.Errorf("%q has no plugin, and is taken for a network", text)
		}
		if _, err := json.Marshal(conf); err != nil {
			t.Error(err)
		}
	})
}
