// Package oci makes images: a layer of Debian's programs, and over it one with a program of Theseus. The images of one
// name for all architectures are one index, and all indexes are one OCI layout.
package oci

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/theseus-cni/theseus/release/internal/contents"
	"github.com/theseus-cni/theseus/release/internal/debian"
	"github.com/theseus-cni/theseus/release/internal/sbom"
	"github.com/theseus-cni/theseus/release/internal/source"
	"github.com/theseus-cni/theseus/release/layer"
)

// Repository is the address of the source.
const Repository = "https://github.com/theseus-cni/theseus"

// BillPath is where an image has its bill of materials.
const BillPath = "/usr/share/doc/theseus/sbom.spdx.json"

// Maker makes images of one commit.
type Maker struct {
	Source  *source.Source
	Lock    *debian.Lock
	Archive *debian.Archive
	Work    string // a folder for what is under way

	Platforms []source.Platform // images are made for those with Linux
}

// Index is an image for all platforms with Linux. values are set in its program.
func (m *Maker) Index(ctx context.Context, image contents.Image, values map[string]string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, on := range m.Platforms {
		if on.OS != "linux" {
			continue
		}
		one, err := m.image(ctx, image, on.Architecture, values)
		if err != nil {
			return nil, fmt.Errorf("make the image %s for %s: %w", image.Name, on.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: on.OS, Architecture: on.Architecture}}})
	}
	return mutate.Annotations(index, m.origin(image)).(v1.ImageIndex), nil
}

// origin says where an image is from, in the words of the OCI's image specification.
func (m *Maker) origin(image contents.Image) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": image.Title, prefix + "description": image.Description, prefix + "licenses": "Apache-2.0",
		prefix + "source": Repository, prefix + "url": Repository, prefix + "version": m.Source.Version,
		prefix + "revision": m.Source.Commit, prefix + "created": m.Source.Time.Format(time.RFC3339),
		prefix + "base.name": "debian:" + m.Lock.Suite,
	}
}

func (m *Maker) image(ctx context.Context, image contents.Image, architecture string,
	values map[string]string) (v1.Image, error) {
	packages, err := m.Lock.Of(image.Name, architecture)
	if err != nil {
		return nil, err
	}
	userland, err := m.userland(ctx, image, packages)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(m.Work, architecture, image.Command)
	if err := m.Source.Build(ctx, image.Command, source.Platform{OS: "linux", Architecture: architecture},
		values, program); err != nil {
		return nil, err
	}
	bill, err := sbom.Of(sbom.Subject{Name: image.Name, Version: m.Source.Version, Time: m.Source.Time,
		Source: Repository, Purpose: "CONTAINER"},
		[]string{program}, m.Lock.Suite, architecture, packages)
	if err != nil {
		return nil, err
	}
	licence, err := os.ReadFile(filepath.Join(m.Source.Dir, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read the licence: %w", err)
	}
	own := []layer.File{
		layer.Program("/"+image.Command, program),
		layer.Text(BillPath, string(bill)),
		layer.Text("/usr/share/doc/theseus/LICENSE", string(licence)),
	}
	for i := range own {
		own[i].Time = m.Source.Time
	}
	return m.assemble(image, architecture, userland, own)
}

// userland are the files of an image that are Debian's, and what these take for granted.
func (m *Maker) userland(ctx context.Context, image contents.Image, packages []debian.Package) ([]layer.File, error) {
	files := slices.Clone(image.Files)
	for _, p := range packages {
		deb, err := m.Archive.Fetch(ctx, m.Lock.Taken, p)
		if err != nil {
			return nil, err
		}
		more, err := debian.Unpack(ctx, deb, p, image.Names())
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return append(files, authorities(files)...), nil
}

// authorities is the one file of certificates that programs read, which the package ca-certificates makes when it is
// installed.
func authorities(files []layer.File) []layer.File {
	const folder = "/usr/share/ca-certificates/mozilla/"
	var found []layer.File
	for _, f := range files {
		if strings.HasPrefix(f.Path, folder) {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b layer.File) int { return strings.Compare(a.Path, b.Path) })
	var all strings.Builder
	for _, f := range found {
		all.WriteString(strings.TrimSuffix(f.Content, "\n") + "\n")
	}
	return []layer.File{layer.Text("/etc/ssl/certs/ca-certificates.crt", all.String())}
}

func (m *Maker) assemble(image contents.Image, architecture string, layers ...[]layer.File) (v1.Image, error) {
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: m.Source.Time}
	out, err := mutate.ConfigFile(out, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + image.Command}, User: image.User, Labels: m.origin(image),
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	for i, files := range layers {
		one, err := pack(files)
		if err != nil {
			return nil, err
		}
		by := []string{"packages of Debian " + m.Lock.Suite, image.Command + " " + m.Source.Version}[i]
		out, err = mutate.Append(out, mutate.Addendum{Layer: one, MediaType: types.OCILayer,
			History: v1.History{Created: created, CreatedBy: by}})
		if err != nil {
			return nil, fmt.Errorf("add a layer: %w", err)
		}
	}
	return mutate.Annotations(out, m.origin(image)).(v1.Image), nil
}

// pack is a layer of files.
func pack(files []layer.File) (v1.Layer, error) {
	var text bytes.Buffer
	if err := layer.Write(&text, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }
	one, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("pack a layer: %w", err)
	}
	return one, nil
}
