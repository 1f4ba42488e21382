package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/release/layer"
)

// Image is an image that is ready to be imported.
type Image struct {
	Name string // as manifests call it, with its registry and tag
	Tar  string // path of an OCI layout in a tar; its content never changes
}

// All returns the images that a lab on the given network needs, building what is missing. A version of Calico that is
// not the default comes next to the default, to which it is upgraded.
func All(ctx context.Context, cache *build.Cache, network, calico string) ([]Image, error) {
	list, err := recipes(network, calico, cache.Source())
	if err != nil {
		return nil, err
	}
	m := maker{cache: cache}
	var images []Image
	for _, r := range list {
		tar, err := m.make(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("make the image %s: %w", r.name, err)
		}
		images = append(images, Image{Name: r.name, Tar: tar})
	}
	return images, nil
}

// Programs are the names of the programs in those images, in order.
func Programs(network, calico, source string) ([]string, error) {
	list, err := recipes(network, calico, source)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, r := range list {
		for _, name := range r.binaries {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// maker makes images, and the layer that they share at most once.
type maker struct {
	cache *build.Cache

	tools    []layer.File
	toolsKey string
	shared   *packed
}

// make returns the tar of an image, from the cache if nothing in it changed.
func (m *maker) make(ctx context.Context, r recipe) (string, error) {
	own, err := r.gather(ctx, m.cache)
	if err != nil {
		return "", err
	}
	if r.userland {
		if err := m.collect(); err != nil {
			return "", err
		}
		libs, err := missing(own, m.tools)
		if err != nil {
			return "", err
		}
		own = append(own, libs...)
	}
	sort.Slice(own, func(i, j int) bool { return own[i].Path < own[j].Path })
	key, err := filesKey(own)
	if err != nil {
		return "", err
	}
	if r.userland {
		key += m.toolsKey
	}
	set, err := json.Marshal(r.set)
	if err != nil {
		return "", fmt.Errorf("encode the settings: %w", err)
	}
	sum := sha256.Sum256([]byte(r.name + key + string(set)))
	path := filepath.Join(m.cache.Dir(), "images", flat(r.name), hex.EncodeToString(sum[:8])+".tar")
	if _, err := os.Stat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	return path, m.write(r, own, path)
}

// collect finds the shared layer's files, once.
func (m *maker) collect() error {
	if m.tools != nil {
		return nil
	}
	var err error
	m.tools, m.toolsKey, err = userland()
	return err
}

// write makes the layers and the image around them; the image appears at path when it is whole.
func (m *maker) write(r recipe, own []layer.File, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	work, err := os.MkdirTemp(m.cache.Dir(), "image-")
	if err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	defer os.RemoveAll(work)
	var layers []packed
	if r.userland {
		shared, err := m.share()
		if err != nil {
			return err
		}
		layers = append(layers, shared)
	}
	top, err := saveLayer(filepath.Join(work, "layer.tar"), own)
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(work, "image.tar"))
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	defer out.Close()
	if err := writeImage(out, r.name, r.set, append(layers, top)); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return fmt.Errorf("keep the image: %w", err)
	}
	return build.Prune(filepath.Dir(path))
}

// share returns the shared layer, written at most once per set of tools.
func (m *maker) share() (packed, error) {
	if m.shared != nil {
		return *m.shared, nil
	}
	path := filepath.Join(m.cache.Dir(), "layers", "userland-"+m.toolsKey+".tar")
	l, err := openLayer(path)
	if errors.Is(err, os.ErrNotExist) {
		l, err = saveShared(path, m.tools)
	}
	if err != nil {
		return packed{}, err
	}
	m.shared = &l
	return l, nil
}

func saveShared(path string, files []layer.File) (packed, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return packed{}, fmt.Errorf("make the cache: %w", err)
	}
	unfinished := fmt.Sprintf("%s.%d", path, os.Getpid())
	l, err := saveLayer(unfinished, files)
	if err != nil {
		return packed{}, err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return packed{}, fmt.Errorf("keep the layer: %w", err)
	}
	l.path = path
	return l, nil
}

// flat is an image's name as a directory's.
func flat(name string) string {
	return strings.NewReplacer("/", "_", ":", "_").Replace(name)
}
