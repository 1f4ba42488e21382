package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// PathsFile is what the agent asks of a probe pod on its node.
type PathsFile struct {
	Generation int64           `json:"generation"`
	Paths      []v1alpha1.Path `json:"paths"`
}

// ResultsFile is what a probe pod has seen. Generation is that of the paths it measures.
type ResultsFile struct {
	Generation int64                 `json:"generation"`
	At         time.Time             `json:"at"`
	Paths      []v1alpha1.PathResult `json:"paths"`
}

// PathsPath is where the paths of a network's probe pod are, in the folder shared with the agent.
func PathsPath(dir, network string) string { return filepath.Join(dir, network+".paths.json") }

// ResultsPath is where the results of a network's probe pod are.
func ResultsPath(dir, network string) string { return filepath.Join(dir, network+".results.json") }

// WritePaths replaces the paths in a file.
func WritePaths(file string, paths PathsFile) error { return replace(file, paths) }

// ReadPaths reads paths; errors.Is(err, fs.ErrNotExist) when there are none.
func ReadPaths(file string) (PathsFile, error) { return read[PathsFile](file) }

// WriteResults replaces the results in a file.
func WriteResults(file string, results ResultsFile) error { return replace(file, results) }

// ReadResults reads results; errors.Is(err, fs.ErrNotExist) when there are none.
func ReadResults(file string) (ResultsFile, error) { return read[ResultsFile](file) }

// replace writes a file by renaming, so that readers see the old or the new one and nothing between. It
// is not synced: neither file is of use after a power cut.
func replace(file string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Chmod(temp.Name(), 0o644)
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

func read[T any](file string) (T, error) {
	var value T
	data, err := os.ReadFile(file)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, fmt.Errorf("read %s: %w", file, err)
	}
	return value, nil
}

// watchInterval is how often a watched file is looked at.
const watchInterval = 200 * time.Millisecond

// Watch calls changed at once when the file is there, and then whenever it was replaced, until the
// context ends. It looks five times a second, as the file may be on any kind of mount.
func Watch(ctx context.Context, file string, changed func()) {
	var last os.FileInfo
	for ctx.Err() == nil {
		if info, err := os.Stat(file); err == nil {
			if last == nil || !os.SameFile(last, info) || !last.ModTime().Equal(info.ModTime()) || last.Size() != info.Size() {
				last = info
				changed()
			}
		}
		pause(ctx, watchInterval)
	}
}
