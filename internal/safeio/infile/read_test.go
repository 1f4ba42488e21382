package infile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

func TestReadUpTo(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(name, []byte("abcd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadUpTo(name, 4); err != nil || string(text) != "abcd" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ReadUpTo(name, 3); !errors.Is(err, bounded.ErrBound) || !strings.Contains(err.Error(), name) {
		t.Error(err)
	}
	if _, err := Read(name + "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadUpTo("/dev/zero", 1<<16); !errors.Is(err, bounded.ErrBound) {
		t.Errorf("a file without an end: %v", err)
	}
	if text, err := ReadOr(strings.NewReader("in"), "-"); err != nil || string(text) != "in" {
		t.Errorf("%q, %v", text, err)
	}
}
