package oci

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	spdx "github.com/spdx/tools-golang/json"

	"github.com/theseus-cni/theseus/release/internal/contents"
	"github.com/theseus-cni/theseus/release/internal/debian"
	"github.com/theseus-cni/theseus/release/internal/source"
)

// program is what the small stand-in for the product has as its programs: to compile the product's own for each
// architecture takes minutes. Package release tests those.
const program = `package main

import ("fmt"; "runtime/debug")

func main() { info, _ := debug.ReadBuildInfo(); fmt.Println(info.Main.Version) }
`

// repository makes a repository with the programs and one commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module github.com/theseus-cni/theseus\n\ngo 1.26.0\n",
		"LICENSE": "a licence\n"}
	for _, image := range contents.Images() {
		files["cmd/"+image.Command+"/main.go"] = program
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "one"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	return dir
}

// make makes all images of the repository's commit, in folders of their own.
func makeAll(t *testing.T, repository string) (string, []Made) {
	t.Helper()
	work, cache := t.TempDir(), cacheDir(t)
	checkout, err := source.Checkout(t.Context(), repository, filepath.Join(work, "source"), "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := debian.ReadLock("../../debian.lock")
	if err != nil {
		t.Fatal(err)
	}
	archives, err := debian.Configured(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := Maker{Source: checkout, Lock: lock, Work: work, Platforms: source.Platforms(),
		Archive: &debian.Archive{Dir: cache, Archives: archives, Say: t.Output()}}
	dir := filepath.Join(work, "images")
	made, err := m.Layout(t.Context(), "registry.example.com/theseus", dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, made
}

// cacheDir is where theseus-release keeps packages too.
func cacheDir(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "theseus-release", "debian")
}

// TestImages makes all images twice, and looks into them.
func TestImages(t *testing.T) {
	product := repository(t)
	dir, made := makeAll(t, product)
	_, again := makeAll(t, product)
	if !slices.Equal(made, again) {
		t.Errorf("the same commit makes two different sets of images:\n%v\n%v", made, again)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, image := range contents.Images() {
		if want := "registry.example.com/theseus/" + image.Name + ":v0.2.0"; made[i].Name != want {
			t.Errorf("the image is %s, want %s", made[i].Name, want)
		}
		index, err := top.ImageIndex(made[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != len(contents.Architectures()) {
			t.Errorf("%s has %d images, want one for each architecture", image.Name, len(manifest.Manifests))
		}
		for _, one := range manifest.Manifests {
			t.Run(image.Name+"/"+one.Platform.Architecture, func(t *testing.T) {
				inner, err := index.Image(one.Digest)
				if err != nil {
					t.Fatal(err)
				}
				lookInto(t, image, one.Platform.Architecture, inner, manifest.Annotations)
			})
		}
	}
}

// lookInto checks the configuration and the files of an image, and runs its programs if this machine can.
func lookInto(t *testing.T, image contents.Image, architecture string, inner v1.Image, annotations map[string]string) {
	config, err := inner.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != architecture || config.OS != "linux" ||
		!slices.Equal(config.Config.Entrypoint, []string{"/" + image.Command}) || config.Config.User != image.User {
		t.Errorf("the configuration is %+v", config)
	}
	if !maps.Equal(config.Config.Labels, annotations) || annotations["org.opencontainers.image.version"] != "v0.2.0" ||
		len(annotations["org.opencontainers.image.revision"]) != 40 ||
		annotations["org.opencontainers.image.licenses"] != "Apache-2.0" {
		t.Errorf("the labels are %v, the index's annotations %v", config.Config.Labels, annotations)
	}
	root := t.TempDir()
	files := extract(t, inner, root)
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[architecture]
	checkPrograms(t, image, root, files, machine)
	checkLibraries(t, root, files)
	checkBill(t, image, filepath.Join(root, BillPath))
	host, err := source.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if host.Architecture != architecture {
		return
	}
	if os.Getuid() != 0 {
		t.Fatal("the programs of an image are run in its root, for which this test needs root")
	}
	runIn(t, image, root)
}

// runIn runs the image's programs in its root.
func runIn(t *testing.T, image contents.Image, root string) {
	commands := [][]string{{"/" + image.Command}}
	for _, p := range image.Programs {
		switch p.Name {
		case "sh":
			commands = append(commands,
				[]string{"sh", "-c", "test -r /etc/ssl/certs/ca-certificates.crt && echo it reads"})
		case "ipset":
			commands = append(commands, []string{"ipset", "--version"})
		default:
			commands = append(commands, []string{p.Name, "--version"})
		}
	}
	if image.Name == "theseus-agent" {
		commands = append(commands, []string{"iptables-nft", "-m", "comment", "-m", "set", "-m", "conntrack",
			"-j", "MASQUERADE", "--help"})
	}
	for _, command := range commands {
		cmd := exec.Command("chroot", append([]string{root}, command...)...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%q: %v\n%s", command, err, out)
		}
	}
}

// extract unpacks an image, and returns the paths of its files.
func extract(t *testing.T, image v1.Image, root string) []string {
	t.Helper()
	flat := mutate.Extract(image)
	defer flat.Close()
	var files []string
	for entries := tar.NewReader(flat); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err == nil {
			err = place(entries, header, filepath.Join(root, path.Clean("/"+header.Name)))
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			files = append(files, path.Clean("/"+header.Name))
		}
	}
}

func place(content io.Reader, header *tar.Header, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(at, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(header.Linkname, at)
	case tar.TypeReg:
		text, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return os.WriteFile(at, text, header.FileInfo().Mode().Perm())
	}
	return fmt.Errorf("%s has the type %c", header.Name, header.Typeflag)
}

// checkPrograms demands every program of the table, for the right machine, and no other.
func checkPrograms(t *testing.T, image contents.Image, root string, files []string, machine elf.Machine) {
	targets := map[string]bool{}
	for _, name := range append(image.Names(), "/"+image.Command) {
		file := name
		if !path.IsAbs(name) {
			file = "/usr/sbin/" + name
			if _, err := os.Lstat(filepath.Join(root, file)); err != nil {
				file = "/usr/bin/" + name
			}
		}
		for target, err := os.Readlink(filepath.Join(root, file)); err == nil; target, err = os.Readlink(
			filepath.Join(root, file)) {
			file = debian.Merged(path.Join(path.Dir(file), target))
		}
		targets[file] = true
		binary, err := elf.Open(filepath.Join(root, file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if binary.Machine != machine {
			t.Errorf("%s is for %v, want %v", name, binary.Machine, machine)
		}
		binary.Close()
	}
	for _, file := range files {
		if (strings.HasPrefix(file, "/usr/bin/") || strings.HasPrefix(file, "/usr/sbin/")) && !targets[file] {
			t.Errorf("%s is a program without a reason", file)
		}
	}
}

// checkLibraries demands every library that a file of the image needs.
func checkLibraries(t *testing.T, root string, files []string) {
	there := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "usr/lib"), func(file string, _ os.DirEntry, err error) error {
		there[filepath.Base(file)] = true
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) { // an image without programs of Debian has no libraries
		t.Fatal(err)
	}
	for _, file := range files {
		binary, err := elf.Open(filepath.Join(root, file))
		if err != nil {
			continue // no program and no library
		}
		needed, err := binary.ImportedLibraries()
		binary.Close()
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, library := range needed {
			if !there[library] && !strings.HasPrefix(library, "ld-linux") {
				t.Errorf("%s needs %s, which is not in the image", file, library)
			}
		}
	}
}

// checkBill reads the bill of materials as others do.
func checkBill(t *testing.T, image contents.Image, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := spdx.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("the bill of materials: %v", err)
	}
	names := map[string]bool{}
	for _, p := range document.Packages {
		names[p.PackageName] = true
	}
	whole, alone := image.Packages()
	if len(whole) > 0 {
		whole = append(whole, "libc6")
	}
	for _, want := range slices.Concat([]string{image.Name, "std"}, whole, alone) {
		if !names[want] {
			t.Errorf("the bill of materials lacks %s", want)
		}
	}
	if !json.Valid(text) || !strings.HasPrefix(document.DocumentNamespace, "https://") {
		t.Errorf("the bill's namespace is %s", document.DocumentNamespace)
	}
}
