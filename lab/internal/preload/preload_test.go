package preload

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

func TestClone(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(from, "fs/private"), 0o755))
	must(os.Chmod(filepath.Join(from, "fs/private"), 0o700))
	must(os.WriteFile(filepath.Join(from, "blob"), []byte("blob"), 0o444))
	must(os.WriteFile(filepath.Join(from, "meta.db"), []byte("db"), 0o644))
	must(os.Symlink("nowhere", filepath.Join(from, "fs/link")))
	must(Clone(from, to))

	same := func(name string) bool {
		a, err := os.Lstat(filepath.Join(from, name))
		must(err)
		b, err := os.Lstat(filepath.Join(to, name))
		must(err)
		return os.SameFile(a, b)
	}
	if !same("blob") {
		t.Error("a blob was copied")
	}
	if same("meta.db") {
		t.Error("a database is shared between nodes")
	}
	if target, err := os.Readlink(filepath.Join(to, "fs/link")); err != nil || target != "nowhere" {
		t.Errorf("link: %q, %v", target, err)
	}
	if info, err := os.Stat(filepath.Join(to, "fs/private")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of a directory: %v, %v", info, err)
	}
}

func TestKey(t *testing.T) {
	a, b := spec.Image{Name: "a", Tar: "1.tar"}, spec.Image{Name: "b", Tar: "2.tar"}
	if key([]spec.Image{a, b}) != key([]spec.Image{b, a}) {
		t.Error("the order counts")
	}
	c := spec.Image{Name: "b", Tar: "3.tar"}
	if key([]spec.Image{a, b}) == key([]spec.Image{a, c}) {
		t.Error("another archive does not count")
	}
}
