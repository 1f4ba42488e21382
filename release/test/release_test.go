package test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/release/internal/cli"
)

// TestReleaseFull makes a release of this checkout's commit twice, in two folders, and looks into it.
func TestReleaseFull(t *testing.T) {
	full(t)
	var sums, dirs []string
	for range 2 {
		dir := filepath.Join(t.TempDir(), "release")
		if code := cli.Main(t.Context(), []string{"--repository", repository, "release", "v0.2.0", "--dir", dir},
			t.Output(), t.Output()); code != 0 {
			t.Fatalf("the release ends with %d", code)
		}
		text, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
		if err != nil {
			t.Fatal(err)
		}
		sums, dirs = append(sums, string(text)), append(dirs, dir)
	}
	if sums[0] != sums[1] {
		t.Errorf("two releases of one commit differ:\n%s\n%s", sums[0], sums[1])
	}
	check := exec.Command("sha256sum", "--strict", "-c", "checksums.txt")
	check.Dir = dirs[0]
	output(t, check)
	for _, name := range []string{"theseus_v0.2.0_images.tar.gz", "theseus_v0.2.0_linux_arm64.tar.gz",
		"theseus_v0.2.0_darwin_amd64.spdx.json", "krew.yaml", "theseus-0.2.0.tgz", "theseus-0.2.0.yaml"} {
		if !strings.Contains(sums[0], "  "+name+"\n") {
			t.Errorf("the release has no %s:\n%s", name, sums[0])
		}
	}
	lookIntoArchive(t, dirs[0])
	lookIntoChart(t, dirs[0])
}

// lookIntoChart: the chart names the image of the controller that is in the layout of the release.
func lookIntoChart(t *testing.T, release string) {
	t.Helper()
	dir := t.TempDir()
	unpack(t, filepath.Join(release, "theseus-0.2.0.tgz"), dir)
	values, err := os.ReadFile(filepath.Join(dir, "theseus", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, digest, found := strings.Cut(string(values), "\n  digest: sha256:")
	if !found || len(digest) < 64 {
		t.Fatalf("the chart names no image by its digest:\n%s", values)
	}
	unpack(t, filepath.Join(release, "theseus_v0.2.0_images.tar.gz"), dir)
	if _, err := os.Stat(filepath.Join(dir, "images", "blobs", "sha256", digest[:64])); err != nil {
		t.Errorf("the layout of images has no image that the chart names: %v", err)
	}
}

// lookIntoArchive runs the program for this machine. It knows its version, its commit, and its agent's image.
func lookIntoArchive(t *testing.T, release string) {
	t.Helper()
	dir := t.TempDir()
	names := unpack(t, filepath.Join(release, "theseus_v0.2.0_linux_amd64.tar.gz"), dir)
	if want := []string{"CHANGELOG.md", "LICENSE", "README.md", "completions/theseus.bash", "completions/theseus.fish",
		"completions/theseus.zsh", "theseus"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
	commit := output(t, exec.Command("git", "-C", repository, "rev-parse", "--short=12", "HEAD"))
	program := filepath.Join(dir, "theseus")
	if got := output(t, exec.Command(program, "--version")); !strings.HasPrefix(got,
		"theseus v0.2.0 (commit "+commit+", ") {
		t.Errorf("theseus --version says %q", got)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "ghcr.io/theseus-cni/theseus-agent:v0.2.0@sha256:") {
		t.Error("theseus does not know the image of its agent")
	}
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), root+"/internal") {
		t.Error("the program holds the path that it was built at")
	}
}

// unpack unpacks a .tar.gz, and returns the names of its files in order.
func unpack(t *testing.T, archive, dir string) []string {
	t.Helper()
	in, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	zipped, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for entries := tar.NewReader(zipped); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}
