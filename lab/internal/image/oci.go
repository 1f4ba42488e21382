package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/theseus-cni/theseus/release/layer"
)

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"

	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// packed is a finished layer: a tar on disk. Layers are not compressed, so the digest of the blob is
// also the diff id; they are read once, from a disk next to.
type packed struct {
	path   string
	digest string // sha256:...
	size   int64
}

// settings is what a container of the image gets unless its pod says otherwise.
type settings struct {
	Entrypoint []string
	Cmd        []string
	User       string
	WorkingDir string
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// saveLayer writes files as a layer to path.
func saveLayer(path string, files []layer.File) (packed, error) {
	f, err := os.Create(path)
	if err != nil {
		return packed{}, fmt.Errorf("write a layer: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if err := layer.Write(io.MultiWriter(f, h), files); err != nil {
		return packed{}, err
	}
	return finished(f, "sha256:"+hex.EncodeToString(h.Sum(nil)))
}

// openLayer is a layer that was saved before.
func openLayer(path string) (packed, error) {
	f, err := os.Open(path)
	if err != nil {
		return packed{}, fmt.Errorf("read a layer: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return packed{}, fmt.Errorf("read a layer: %w", err)
	}
	return finished(f, "sha256:"+hex.EncodeToString(h.Sum(nil)))
}

func finished(f *os.File, digest string) (packed, error) {
	info, err := f.Stat()
	if err != nil {
		return packed{}, fmt.Errorf("measure a layer: %w", err)
	}
	return packed{path: f.Name(), digest: digest, size: info.Size()}, nil
}

// writeImage writes an OCI layout that holds one image called name.
func writeImage(w io.Writer, name string, set settings, layers []packed) error {
	config, err := json.Marshal(imageConfig(set, layers))
	if err != nil {
		return fmt.Errorf("encode the config: %w", err)
	}
	manifest := map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": describe(configType, config)}
	var descriptors []descriptor
	for _, l := range layers {
		descriptors = append(descriptors, descriptor{MediaType: layerType, Digest: l.digest, Size: l.size})
	}
	manifest["layers"] = descriptors
	encoded, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	top := describe(manifestType, encoded)
	top.Platform = &platform{Architecture: runtime.GOARCH, OS: "linux"}
	top.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType,
		"manifests": []descriptor{top}})
	if err != nil {
		return fmt.Errorf("encode the index: %w", err)
	}

	files := []layer.File{
		{Path: "/oci-layout", Mode: 0o644, Content: `{"imageLayoutVersion":"1.0.0"}`},
		{Path: "/index.json", Mode: 0o644, Content: string(index)},
		layer.Directory("/blobs", 0o755),
		layer.Directory("/blobs/sha256", 0o755),
		{Path: blob(top.Digest), Mode: 0o644, Content: string(encoded)},
		{Path: blob(describe(configType, config).Digest), Mode: 0o644, Content: string(config)},
	}
	for _, l := range layers {
		files = append(files, layer.File{Path: blob(l.digest), Mode: 0o644, Source: l.path})
	}
	if err := layer.Write(w, files); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// imageConfig is the config document: what runs, and which layers in which order.
func imageConfig(set settings, layers []packed) map[string]any {
	var ids []string
	for _, l := range layers {
		ids = append(ids, l.digest)
	}
	run := map[string]any{"Env": []string{searchPath}}
	for key, value := range map[string][]string{"Entrypoint": set.Entrypoint, "Cmd": set.Cmd} {
		if value != nil {
			run[key] = value
		}
	}
	for key, value := range map[string]string{"User": set.User, "WorkingDir": set.WorkingDir} {
		if value != "" {
			run[key] = value
		}
	}
	return map[string]any{
		"created":      time.Unix(0, 0).UTC().Format(time.RFC3339),
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       run,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": ids},
	}
}

func describe(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

func blob(digest string) string { return "/blobs/sha256/" + digest[len("sha256:"):] }
