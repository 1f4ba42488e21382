package preload

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

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

// TestClear: the oldest templates go, but none that a lab may be using.
func TestClear(t *testing.T) {
	parent := t.TempDir()
	make := func(name string, age time.Duration) {
		dir, then := filepath.Join(parent, name), time.Now().Add(-age)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
	}
	for i := range kept {
		make("recent-"+strconv.Itoa(i), spared/2)
	}
	make("old", 2*spared)
	make("again", 2*spared)
	make("new", 0) // unfinished
	if !used(filepath.Join(parent, "again")) || used(filepath.Join(parent, "missing")) {
		t.Error("used is wrong about what is there")
	}
	if err := clear(parent, filepath.Join(parent, "next")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != kept+1 || exists(filepath.Join(parent, "old")) || !exists(filepath.Join(parent, "again")) {
		t.Errorf("left: %v", left)
	}
}
