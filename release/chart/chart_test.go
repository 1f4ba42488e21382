package chart

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// example is a release.
var example = Release{Version: "v0.2.0", Registry: "registry.example.com/infra", Time: time.Unix(1700000000, 0),
	Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}

// TestPack: the archive has every file of the chart, and the version and the image of the release. Two archives of one
// chart have the same bytes.
func TestPack(t *testing.T) {
	var archives []string
	for range 2 {
		out := t.TempDir()
		if err := example.Pack("../../"+Folder, out); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, "theseus-0.2.0.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, string(text))
	}
	if archives[0] != archives[1] {
		t.Error("two archives of the chart differ")
	}
	files := unpacked(t, archives[0])
	for name, lines := range map[string][]string{
		"theseus/Chart.yaml":  {"version: 0.2.0", "appVersion: v0.2.0"},
		"theseus/values.yaml": {"  registry: " + example.Registry, "  tag: v0.2.0", "  digest: " + example.Digest},
	} {
		for _, line := range lines {
			if !strings.Contains(files[name], "\n"+line+"\n") {
				t.Errorf("%s lacks the line %q:\n%s", name, line, files[name])
			}
		}
	}
	for _, name := range []string{"theseus/values.schema.json", "theseus/templates/_helpers.tpl",
		"theseus/templates/crds.yaml", "theseus/templates/NOTES.txt"} {
		if files[name] == "" {
			t.Errorf("the archive has no %s", name)
		}
	}
}

// TestPackRefuses: a chart without a line that the release sets is not packed.
func TestPackRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"Chart.yaml", "values.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("version: 0.0.0-dev\nappVersion: dev\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := example.Pack(dir, t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), `"  registry: ghcr.io/theseus-cni" 0 times`) {
		t.Error(err)
	}
}

// unpacked are the files of an archive.
func unpacked(t *testing.T, archive string) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for entries := tar.NewReader(zipped); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}
