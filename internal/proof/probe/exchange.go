package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// PathsFile has the paths that the agent asks a prober on its node to measure.
type PathsFile struct {
	Generation int64           `json:"generation"`
	Paths      []v1alpha1.Path `json:"paths"`
}

// ResultsFile has a prober's results.
type ResultsFile struct {
	// Generation is that of the PathsFile that it measures.
	Generation int64     `json:"generation"`
	At         time.Time `json:"at"`
	// Pod is the UID of the prober's pod, and Since the start of its process.
	Pod   string    `json:"pod,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Paths results   `json:"paths"`
}

// Bounds of the agent's reads from a prober, which it does not trust. The API server accepts no object larger than
// maxFile.
const (
	maxFile  = 3 << 19 // bytes
	maxPaths = 1024
)

// results are bounded in number: an empty result takes two bytes in a file, and hundreds in memory.
type results []v1alpha1.PathResult

// UnmarshalJSON reads one result after the other, and stops at the first too many.
func (r *results) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return err // null has none
	}
	*r = nil
	for decoder.More() {
		if len(*r) == maxPaths {
			return fmt.Errorf("more than %d paths", maxPaths)
		}
		var result v1alpha1.PathResult
		if err := decoder.Decode(&result); err != nil {
			return err
		}
		*r = append(*r, result)
	}
	return nil
}

// ProberUser is the user and group that probers run as, also on the node.
const ProberUser = manifest.ProberUser

// MakeFolders makes the folders that the agent and the probers of its node exchange files in, and repairs their owners.
// Each prober has a folder of its own in dir. It belongs to root, and so do the paths in it; the prober may write into
// the folder "out" in it, and nowhere else.
func MakeFolders(dir string, networks []string) error {
	for _, network := range networks {
		out := filepath.Dir(ResultsPath(dir, network))
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(out, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if os.Geteuid() != 0 {
			continue // as in a test: the probers are the same user
		}
		if err := os.Lchown(out, ProberUser, ProberUser); err != nil {
			return err
		}
	}
	return nil
}

// PathsPath is where the paths of a network's prober are, in the folder shared with the agent.
func PathsPath(dir, network string) string { return filepath.Join(dir, network, "paths.json") }

// ResultsPath is where the results of a network's prober are.
func ResultsPath(dir, network string) string {
	return filepath.Join(dir, network, "out", "results.json")
}

// WritePaths replaces the paths in a file, which every user may read.
func WritePaths(file string, paths PathsFile) error { return replace(file, paths, 0o644) }

// ReadPaths reads paths; errors.Is(err, fs.ErrNotExist) if there are none.
func ReadPaths(file string) (PathsFile, error) { return read[PathsFile](file) }

// WriteResults replaces the results in a file.
func WriteResults(file string, results ResultsFile) error { return replace(file, results, 0o600) }

// ReadResults reads results; errors.Is(err, fs.ErrNotExist) if there are none.
func ReadResults(file string) (ResultsFile, error) { return read[ResultsFile](file) }

// replace writes a file by renaming, so that readers see either the old or the new one. It
// is not synced: neither file is needed after a power failure.
func replace(file string, value any, mode os.FileMode) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(mode) // on the open file: the name may belong to another file by now
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// read reads a file that another user may have made: it refuses links, devices, pipes, and more than maxFile bytes.
func read[T any](file string) (T, error) {
	var value T
	opened, err := openHere(file)
	if err != nil {
		return value, err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return value, err
	}
	if !info.Mode().IsRegular() {
		return value, fmt.Errorf("read %s: it is not a regular file", file)
	}
	tooLarge := fmt.Errorf("read %s: it has more than %d bytes", file, maxFile)
	if info.Size() > maxFile {
		return value, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(opened, maxFile+1)) // the file may grow meanwhile
	if err != nil {
		return value, err
	}
	if len(data) > maxFile {
		return value, tooLarge
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, fmt.Errorf("read %s: %w", file, err)
	}
	return value, nil
}

// watchInterval is how often a watched file is checked.
const watchInterval = 200 * time.Millisecond

// Watch calls changed at once if the file exists, and then whenever it was replaced, until the
// context ends. It polls five times a second, as the file may be on any kind of mount.
func Watch(ctx context.Context, file string, changed func()) {
	var last os.FileInfo
	for ctx.Err() == nil {
		if info, err := os.Stat(file); err == nil {
			if last == nil || !os.SameFile(last, info) || !last.ModTime().Equal(info.ModTime()) ||
				last.Size() != info.Size() {
				last = info
				changed()
			}
		}
		pause(ctx, watchInterval)
	}
}
