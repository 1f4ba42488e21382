// Package source provides the commit that is released: its files in a folder of their own, and the Go programs built
// from them. Two builds of a commit with one version of Go have the same bytes, wherever they are made.
package source

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// Source is a commit that is checked out.
type Source struct {
	Dir     string
	Commit  string
	Time    time.Time // of the commit
	Version string    // such as v0.2.0, or another word, such as dev
}

// Checkout checks the commit out that HEAD names in a repository, into dir, which must not exist. If version is one of
// a module, the commit there has that tag and no other, so that Go writes that version into the programs. Files that
// are not committed are left out.
func Checkout(ctx context.Context, repository, dir, version string) (*Source, error) {
	line, err := git(ctx, repository, "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(line, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the time of a commit: %w", err)
	}
	repository, err = filepath.Abs(repository)
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	commands := [][]string{
		{"clone", "--quiet", "--no-checkout", "--no-tags", "--shared", repository, dir},
		{"-C", dir, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", commit},
	}
	if semver.IsValid(version) {
		commands = append(commands, []string{"-C", dir, "tag", version, commit})
	}
	for _, args := range commands {
		if _, err := git(ctx, "", args...); err != nil {
			return nil, err
		}
	}
	return &Source{Dir: dir, Commit: commit, Time: time.Unix(unix, 0).UTC(), Version: version}, nil
}

// Changed are the files of a work tree that differ from its commit.
func Changed(ctx context.Context, repository string) ([]string, error) {
	out, err := git(ctx, repository, "status", "--porcelain")
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), nil
}

// git runs in dir, and returns what it printed.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := run(cmd)
	return strings.TrimSpace(out), err
}

// Platform is what a program is built for.
type Platform struct{ OS, Architecture string }

func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// Platforms are what the command line is released for. Images are made for those with Linux.
func Platforms() []Platform {
	return []Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"},
		{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"}}
}

// Host is the platform of this machine.
func Host(ctx context.Context) (Platform, error) {
	out, err := run(exec.CommandContext(ctx, "go", "env", "GOHOSTOS", "GOHOSTARCH"))
	fields := strings.Fields(out)
	if err != nil || len(fields) != 2 {
		return Platform{}, fmt.Errorf("ask go for this machine's platform: %q %w", out, err)
	}
	return Platform{fields[0], fields[1]}, nil
}

// Build builds the program cmd/COMMAND into a file. Values are set in the program: those of string variables by their
// whole names.
func (s *Source) Build(ctx context.Context, command string, on Platform, values map[string]string, file string) error {
	flags := "-s -w"
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flags += " -X " + name + "=" + values[name]
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("name the file of %s: %w", command, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=true", "-ldflags",
		flags, "-o", file, "./cmd/"+command)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOOS="+on.OS, "GOARCH="+on.Architecture)
	if _, err := run(cmd); err != nil {
		return fmt.Errorf("build %s for %s: %w", command, on, err)
	}
	return nil
}

// run returns what a program printed; its error ends in what it said.
func run(cmd *exec.Cmd) (string, error) {
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[:min(2, len(cmd.Args))], " "), err,
			strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}
