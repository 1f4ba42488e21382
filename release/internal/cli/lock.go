package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/release/internal/contents"
	"github.com/theseus-cni/theseus/release/internal/debian"
)

// suite is the Debian that images are made of.
const suite = "bookworm"

// lock pins the newest packages of Debian.
func (a *app) lock() *cobra.Command {
	return &cobra.Command{
		Use:   "lock",
		Short: "Pin the newest packages of Debian that images need, in " + lockFile,
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			lock := &debian.Lock{Taken: time.Now().UTC().Truncate(time.Second), Suite: suite,
				Images: map[string]map[string][]debian.Package{}}
			for _, architecture := range contents.Architectures() {
				if err := pin(command.Context(), lock, architecture); err != nil {
					return err
				}
			}
			for name, of := range lock.Images {
				for _, architecture := range contents.Architectures() {
					fmt.Fprintf(a.out, "%s for %s: %d packages\n", name, architecture, len(of[architecture]))
				}
			}
			return lock.Write(filepath.Join(a.repository, filepath.FromSlash(lockFile)))
		},
	}
}

// pin adds the packages of all images for an architecture.
func pin(ctx context.Context, lock *debian.Lock, architecture string) error {
	dir, err := os.MkdirTemp("", "theseus-release-apt-")
	if err != nil {
		return fmt.Errorf("make a folder for apt: %w", err)
	}
	defer os.RemoveAll(dir)
	apt, err := debian.NewResolver(ctx, dir, lock.Suite, architecture)
	if err != nil {
		return err
	}
	for _, image := range contents.Images() {
		whole, single := image.Packages()
		packages, err := apt.Closure(ctx, whole)
		if err != nil {
			return err
		}
		alone, err := apt.Alone(ctx, single)
		if err != nil {
			return err
		}
		packages = append(packages, alone...)
		slices.SortFunc(packages, func(a, b debian.Package) int { return strings.Compare(a.Name, b.Name) })
		if lock.Images[image.Name] == nil {
			lock.Images[image.Name] = map[string][]debian.Package{}
		}
		lock.Images[image.Name][architecture] = packages
	}
	return nil
}
