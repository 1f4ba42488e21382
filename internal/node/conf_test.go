package node

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/step"
)

// write makes files below a root.
func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads the files of a folder, and of those in it.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func args(t *testing.T, value any) json.RawMessage {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

const (
	conf     = `{"name":"k8s-pod-network","plugins":[{"type":"calico"}]}`
	newer    = `{"name":"k8s-pod-network","plugins":[{"type":"calico","mtu":1450}]}`
	staged   = "10-calico.conflist.theseus"
	active   = "10-calico.conflist"
	flannels = "10-flannel.conflist"
)

func TestConf(t *testing.T) {
	type files = map[string]string
	pair := step.ConfArgs{Staged: staged, Active: active}
	for _, c := range []struct {
		name, verb string
		args       step.ConfArgs
		before     files
		changed    bool
		after      files // nil: as before
		fails      string
	}{
		{"activate", step.VerbActivate, pair, files{staged: conf, flannels: conf}, true,
			files{active: conf, flannels: conf}, ""},
		{"activate again", step.VerbActivate, pair, files{active: conf, flannels: conf}, false, nil, ""},
		{"activate with the installer's copy beside it",
			step.VerbActivate, pair, files{active: conf, staged: conf}, false, nil, ""},
		{"activate a newer one", step.VerbActivate, pair, files{active: conf, staged: newer},
			true, files{active: newer}, ""},
		{"activate nothing", step.VerbActivate, pair, files{flannels: conf}, false, nil, "has not written"},
		{"activate half a file", step.VerbActivate, pair, files{staged: `{"name":`, flannels: conf},
			false, nil, "not JSON"},
		{"activate an empty file", step.VerbActivate, pair, files{staged: "", flannels: conf}, false, nil, "not JSON"},
		{"activate without a plugin", step.VerbActivate, pair, files{staged: `{}`, flannels: conf},
			false, nil, "no plugin"},
		{"activate behind another", step.VerbActivate, pair, files{staged: conf, "05-other.conf": conf},
			false, nil, "prefers 05-other.conf"},
		{"activate what is in a folder", step.VerbActivate, step.ConfArgs{Staged: "theseus/" + active, Active: active},
			files{"theseus/" + active: conf, flannels: conf}, true, files{active: conf, flannels: conf}, ""},
		{"activate half a file in a folder", step.VerbActivate, step.ConfArgs{Staged: "theseus/" + active,
			Active: active}, files{"theseus/" + active: `{"name":`, flannels: conf}, false,
			nil, "not JSON"},
		{"activate what is halfway out of a folder", step.VerbActivate,
			step.ConfArgs{Staged: "theseus/" + active, Active: active}, files{staged: conf, flannels: conf}, true,
			files{active: conf, flannels: conf}, ""},
		{"activate from a folder again", step.VerbActivate, step.ConfArgs{Staged: "theseus/" + active, Active: active},
			files{"theseus/" + active: conf, active: conf}, false, nil, ""},
		{"deactivate into a folder", step.VerbDeactivate, step.ConfArgs{Staged: "theseus/" + active, Active: active},
			files{"theseus/" + active: newer, active: conf, flannels: conf}, true,
			files{"theseus/" + active: conf, flannels: conf}, ""},
		{"activate into a folder", step.VerbActivate, step.ConfArgs{Staged: staged, Active: "theseus/" + active},
			files{staged: conf}, false, nil, "not a file name"},
		{"activate outside the folder, by one in it", step.VerbActivate, step.ConfArgs{Staged: "theseus/../../x",
			Active: active}, files{flannels: conf}, false, nil, "not a file name"},
		{"activate outside the folder", step.VerbActivate, step.ConfArgs{Staged: "../x", Active: active},
			files{flannels: conf}, false, nil, "not a file name"},
		{"activate onto itself", step.VerbActivate, step.ConfArgs{Staged: active, Active: active},
			files{active: conf}, false, nil, "both"},
		{"deactivate", step.VerbDeactivate, pair, files{active: conf, flannels: conf}, true,
			files{staged: conf, flannels: conf}, ""},
		{"deactivate over the installer's copy", step.VerbDeactivate, pair,
			files{active: newer, staged: conf, flannels: conf}, true, files{staged: newer, flannels: conf}, ""},
		{"deactivate again", step.VerbDeactivate, pair, files{staged: conf, flannels: conf}, false, nil, ""},
		{"deactivate the only one", step.VerbDeactivate, pair, files{active: conf, "README": ""},
			false, nil, "the only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range c.before {
				write(t, root, files{filepath.Join(confDir, name): content})
			}
			n := &Node{Root: root}
			got, err := n.Do(t.Context(), c.verb, args(t, c.args))
			if c.fails == "" && err != nil {
				t.Fatal(err)
			}
			if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("error %v, want one that says %q", err, c.fails)
			}
			if got.Changed != c.changed {
				t.Errorf("changed %t, want %t (%s)", got.Changed, c.changed, got.Message)
			}
			want := c.after
			if want == nil {
				want = maps.Clone(c.before)
			}
			if diff := cmp.Diff(want, readAll(t, filepath.Join(root, confDir))); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDoRefuses(t *testing.T) {
	n := &Node{Root: t.TempDir()}
	for _, c := range []struct{ verb, args, says string }{
		{"dance", "", "unknown verb"},
		{step.VerbActivate, "", "missing"},
		{step.VerbJoin, `{"old":`, "read the arguments"},
		{step.VerbJoin, `{"old":["198.19.0.0/20"]}`, "no pair"},
	} {
		_, err := n.Do(t.Context(), c.verb, json.RawMessage(c.args))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: error %v, want one that says %q", c.verb, c.args, err, c.says)
		}
	}
}

func TestPathsOfAResidue(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"precious": "x"})
	write(t, root, map[string]string{"var/lib/cni/flannel/a": "x", "var/lib/cni/flannel2/b": "x",
		"var/lib/cni/networks/c": "x", "run/flannel/subnet.env": "x"})
	if err := os.Symlink(outside, filepath.Join(root, "run/escape")); err != nil {
		t.Fatal(err)
	}
	n := &Node{Root: root}
	found, err := n.existing([]string{"/run/flannel", "/var/lib/cni/flannel*", "/var/lib/nowhere/x"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/run/flannel", "/var/lib/cni/flannel", "/var/lib/cni/flannel2"}, found); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := n.remove(found); err != nil {
		t.Fatal(err)
	}
	if left, err := n.existing([]string{"/var/lib/cni/*", "/run/*"}); err != nil ||
		!cmp.Equal(left, []string{"/var/lib/cni/networks", "/run/escape"}) {
		t.Errorf("left %v, %v", left, err)
	}
	if err := n.remove([]string{"/run/escape/precious"}); err == nil {
		t.Error("a file outside the root was removed through a link")
	}
	if got := readAll(t, outside); got["precious"] != "x" {
		t.Error("a file outside the root is gone")
	}
}
