// Package cli is the command line of theseus-release.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/release/internal/debian"
	"github.com/theseus-cni/theseus/release/internal/oci"
	"github.com/theseus-cni/theseus/release/internal/source"
)

// DefaultRegistry is where the project publishes its images.
const DefaultRegistry = "ghcr.io/theseus-cni"

// lockFile is the lock of Debian's packages, in the repository.
const lockFile = "release/debian.lock"

// app is what the commands share.
type app struct {
	out, err   io.Writer
	repository string
	cache      string
	only       []string // platforms, such as linux/amd64; none means all
}

// Main runs a command and returns the exit code.
func Main(ctx context.Context, args []string, out, errs io.Writer) int {
	a := &app{out: out, err: errs}
	root := &cobra.Command{Use: "theseus-release", Short: "Make images and releases of Theseus from a commit",
		SilenceErrors: true, SilenceUsage: true}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	root.PersistentFlags().StringVar(&a.repository, "repository", ".", "the repository whose HEAD is built")
	root.PersistentFlags().StringVar(&a.cache, "cache", cacheDir(), "where packages of Debian are kept")
	root.AddCommand(a.lock(), a.images(), a.release())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "error: "+strings.Join(strings.Fields(err.Error()), " "))
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		fmt.Fprintln(errs, "hint: "+hinted.Hint())
	}
	return 1
}

func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "theseus-release")
}

// maker checks the commit out, into a folder near the one that is written, which the caller removes.
func (a *app) maker(ctx context.Context, version, near string) (*oci.Maker, error) {
	on, err := a.platforms()
	if err != nil {
		return nil, err
	}
	changed, err := source.Changed(ctx, a.repository)
	if err != nil {
		return nil, err
	}
	if len(changed) > 0 {
		fmt.Fprintf(a.err, "note: %d files are not committed: they are left out\n", len(changed))
	}
	if err := os.MkdirAll(filepath.Dir(near), 0o755); err != nil {
		return nil, fmt.Errorf("make a folder for the build: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(near), ".theseus-release-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the build: %w", err)
	}
	m := &oci.Maker{Work: work, Platforms: on,
		Archive: &debian.Archive{Dir: filepath.Join(a.cache, "debian"), Say: a.err}}
	if m.Archive.Archives, err = debian.Configured(ctx); err != nil {
		os.RemoveAll(work)
		return nil, err
	}
	if m.Source, err = source.Checkout(ctx, a.repository, filepath.Join(work, "source"), version); err == nil {
		m.Lock, err = debian.ReadLock(filepath.Join(m.Source.Dir, filepath.FromSlash(lockFile)))
	}
	if err != nil {
		os.RemoveAll(work)
	}
	return m, err
}

// limit gives a command the flag --platform.
func (a *app) limit(command *cobra.Command) {
	command.Flags().StringSliceVar(&a.only, "platform", nil,
		"build for these alone, such as linux/amd64 (a release needs this machine's); default: all")
}

// platforms are those that are built for.
func (a *app) platforms() ([]source.Platform, error) {
	all := source.Platforms()
	if len(a.only) == 0 {
		return all, nil
	}
	var on []source.Platform
	for _, name := range a.only {
		i := slices.IndexFunc(all, func(p source.Platform) bool { return p.String() == name })
		if i < 0 {
			return nil, refusal{fmt.Sprintf("theseus is not released for %q", name),
				fmt.Sprintf("name some of %v", all)}
		}
		on = append(on, all[i])
	}
	if !slices.ContainsFunc(on, func(p source.Platform) bool { return p.OS == "linux" }) {
		return nil, refusal{"images are made for Linux alone, and --platform names none with it",
			"add --platform linux/amd64"}
	}
	return on, nil
}
