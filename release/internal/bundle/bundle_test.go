package bundle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/release/internal/source"
)

// TestArchive: the same entries are the same bytes, whatever the files' own times and modes; tar and sha256sum read
// them.
func TestArchive(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var archives [][]byte
	for i := range 2 {
		dir := t.TempDir()
		program := filepath.Join(dir, "program")
		if err := os.WriteFile(program, []byte("content"), []os.FileMode{0o600, 0o640}[i]); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(program, at, at.AddDate(i, 0, 0)); err != nil {
			t.Fatal(err)
		}
		release := filepath.Join(dir, "release")
		if err := os.Mkdir(release, 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(release, "a.tar.gz")
		if err := Archive(file, []Entry{{Name: "theseus", Source: program, Mode: 0o755},
			{Name: "LICENSE", Content: "text", Mode: 0o644}}, at); err != nil {
			t.Fatal(err)
		}
		if err := Checksums(release); err != nil {
			t.Fatal(err)
		}
		check := exec.Command("sh", "-c",
			"sha256sum --strict -c checksums.txt && tar --numeric-owner --utc -tvzf a.tar.gz")
		check.Dir = release
		out, err := check.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "-rwxr-xr-x 0/0               7 2026-01-02 03:04 theseus") {
			t.Errorf("%v\n%s", err, out)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, content)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same entries are two different archives")
	}
}

func TestKrew(t *testing.T) {
	got, err := Krew("https://example.com/theseus", "v0.2.0", []Plugin{
		{source.Platform{OS: "linux", Architecture: "amd64"}, "theseus_v0.2.0_linux_amd64.tar.gz", "00"},
		{source.Platform{OS: "darwin", Architecture: "arm64"}, "theseus_v0.2.0_darwin_arm64.tar.gz", "11"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/krew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
