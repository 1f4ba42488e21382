package oci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/theseus-cni/theseus/release/internal/contents"
)

// AgentVariable is the variable of the program theseus that names the agent's image.
const AgentVariable = "github.com/theseus-cni/theseus/internal/cli/agentimage.linked"

// Made is an image in a layout.
type Made struct {
	Command string // its program, such as theseus-agent
	Name    string // such as ghcr.io/theseus-cni/theseus-agent:v0.2.0
	Digest  v1.Hash
}

// Reference names the image by its digest too.
func (m Made) Reference() string { return m.Name + "@" + m.Digest.String() }

// Layout makes all images, and writes them as an OCI layout, which replaces what is in dir. The agent's image is made
// first: theseus names it by its digest.
func (m *Maker) Layout(ctx context.Context, registry, dir string) ([]Made, error) {
	unfinished := filepath.Join(m.Work, "layout")
	path, err := layout.Write(unfinished, empty.Index)
	if err != nil {
		return nil, fmt.Errorf("write the layout: %w", err)
	}
	var all []Made
	values := map[string]string{}
	for _, image := range contents.Images() {
		index, err := m.Index(ctx, image, values)
		if err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, fmt.Errorf("count the digest of %s: %w", image.Name, err)
		}
		made := Made{image.Command, registry + "/" + image.Name + ":" + m.Source.Version, digest}
		// containerd imports an image under the first name; the second is the OCI's.
		names := map[string]string{"io.containerd.image.name": made.Name,
			"org.opencontainers.image.ref.name": image.Name + ":" + m.Source.Version}
		if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
			return nil, fmt.Errorf("write %s to the layout: %w", image.Name, err)
		}
		if image.Command == "theseus-agent" {
			values = map[string]string{AgentVariable: made.Reference()}
		}
		all = append(all, made)
	}
	return all, replace(dir, unfinished)
}

// replace puts a layout in the place of the one that was there. What is no layout is not removed.
func replace(dir, by string) error {
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
			return fmt.Errorf("%s holds something else than a layout of images", dir)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("replace the layout: %w", err)
	}
	if err := os.Rename(by, dir); err != nil {
		return fmt.Errorf("keep the layout: %w", err)
	}
	return nil
}
