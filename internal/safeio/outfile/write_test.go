package outfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	expect(t, name, "new")
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A disk that fills up costs neither the former file nor leaves half of the next one.
func TestFailure(t *testing.T) {
	name := filepath.Join(t.TempDir(), "plan.yaml")
	if err := Write(name, []byte("old")); err != nil {
		t.Fatal(err)
	}
	err := WriteBy(name, func(to io.Writer) error {
		_, err := to.Write([]byte("ne"))
		return errors.Join(err, syscall.ENOSPC)
	})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	expect(t, name, "old")
	if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSweep: what killed writes have left is removed, and nothing else.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".a.json.1", ".a.json.22", "a.json", ".a.jsonl.1", ".b.json.1", "a.json.1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "a.json"), link), Sweep(link),
		Sweep(filepath.Join(dir, "absent", "a"))); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if want := []string{".a.jsonl.1", ".b.json.1", "a.json", "a.json.1"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %q, not %q (%v)", left, want, err)
	}
}

func TestLink(t *testing.T) {
	dir := t.TempDir()
	name, link := filepath.Join(dir, "plan.yaml"), filepath.Join(dir, "link")
	if err := errors.Join(Write(name, []byte("old")), os.Symlink(name, link), Write(link, []byte("new"))); err != nil {
		t.Fatal(err)
	}
	expect(t, name, "new")
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
	if err := Write(os.DevNull, []byte("x")); err != nil {
		t.Error(err)
	}
}

func expect(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
