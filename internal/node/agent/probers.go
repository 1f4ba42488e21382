package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// Probers measure the paths that start on a node, one prober for each network.
type Probers interface {
	// Forget removes the results that probers of these networks left.
	Forget(networks []string) error
	// Order hands a network's prober the paths to measure.
	Order(network string, paths probe.PathsFile) error
	// Results are those of a network's prober; errors.Is(err, fs.ErrNotExist) if there are none.
	Results(network string) (probe.ResultsFile, error)
}

// Folder is shared with the probers of a node, which are processes of their own.
type Folder string

// Forget implements Probers. It makes the folders of the probers first.
func (f Folder) Forget(networks []string) error {
	errs := []error{probe.MakeFolders(string(f), networks)}
	for _, network := range networks {
		err := os.Remove(probe.ResultsPath(string(f), network))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Order implements Probers.
func (f Folder) Order(network string, paths probe.PathsFile) error {
	if err := probe.MakeFolders(string(f), []string{network}); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	return probe.WritePaths(probe.PathsPath(string(f), network), paths)
}

// Results implements Probers.
func (f Folder) Results(network string) (probe.ResultsFile, error) {
	return probe.ReadResults(probe.ResultsPath(string(f), network))
}
