package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Cache builds programs and keeps them. It may be used from several goroutines and several
// processes at once: a lock lets only one of them build.
type Cache struct {
	source   string // root of the repository
	dir      string // where binaries are kept
	progress io.Writer

	mu        sync.Mutex
	goVersion string
	modules   sync.Map // directory by component and module
}

// New returns a cache that builds from the repository at sourceDir into cacheDir and says on
// progress what it builds and how long each build took. It changes nothing before the first build.
func New(sourceDir, cacheDir string, progress io.Writer) *Cache {
	return &Cache{source: sourceDir, dir: cacheDir, progress: progress}
}

// Source is the root of the repository that the cache builds from.
func (c *Cache) Source() string { return c.source }

// Dir is the directory that everything built is kept in.
func (c *Cache) Dir() string { return c.dir }

// Progress is where building reports.
func (c *Cache) Progress() io.Writer { return c.progress }

// Binary returns the path of the program called name, building it first if the cache does not
// hold it. The path's content never changes; a changed program gets another path.
func (c *Cache) Binary(ctx context.Context, name string) (string, error) {
	t, ok := targets()[name]
	if !ok {
		return "", fmt.Errorf("there is no program %q", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.ownCode {
		return c.own(ctx, name, t)
	}
	return c.component(ctx, name, t)
}

// Has reports whether Binary would return the program called name without building a third party's.
func (c *Cache) Has(ctx context.Context, name string) (bool, error) {
	t, ok := targets()[name]
	if !ok {
		return false, fmt.Errorf("there is no program %q", name)
	}
	if t.ownCode {
		return true, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	path, err := c.path(ctx, name, t)
	return err == nil && exists(path), err
}

// path is where a third-party program is kept.
func (c *Cache) path(ctx context.Context, name string, t target) (string, error) {
	version, err := c.version(ctx)
	if err != nil {
		return "", err
	}
	k, err := key(filepath.Join(c.source, t.module), t, version)
	if err != nil {
		return "", err
	}
	return filepath.Join(c.dir, "bin", name, k, name), nil
}

// component returns a third-party program from the cache, or builds it.
func (c *Cache) component(ctx context.Context, name string, t target) (string, error) {
	path, err := c.path(ctx, name, t)
	if err != nil {
		return "", err
	}
	if exists(path) {
		return path, nil
	}
	unlock, err := lock(ctx, filepath.Join(c.dir, "build.lock"), c.progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // another process built it while this one waited
		return path, nil
	}
	if t.patched != nil {
		if t.modfile, err = c.patch(ctx, t); err != nil {
			return "", fmt.Errorf("change the source of %s: %w", name, err)
		}
	}
	built := filepath.Join(c.dir, "new", name)
	if err := c.compile(ctx, name, t, built); err != nil {
		return "", err
	}
	return path, keep(built, path)
}

// own always builds a program of this repository, and stores it by the hash of its content. The built
// program also stays where go build put it, so that the next go build has nothing to link.
func (c *Cache) own(ctx context.Context, name string, t target) (string, error) {
	unlock, err := lock(ctx, filepath.Join(c.dir, "build.lock"), c.progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	built := filepath.Join(c.dir, "own", name)
	if err := c.compile(ctx, name, t, built); err != nil {
		return "", err
	}
	k, err := fileKey(built)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, "bin", name, k, name)
	if exists(path) {
		return path, nil
	}
	copied := built + ".copy"
	if err := copyFile(built, copied); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return path, keep(copied, path)
}

// slow is how long a build may take before it is reported: shorter builds only read the build cache.
const slow = 2 * time.Second

// compile runs go build and leaves the program at out.
func (c *Cache) compile(ctx context.Context, name string, t target, out string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	cmd := c.golang(ctx, t.module, t.args(out)...)
	cmd.Env = append(cmd.Env, t.env()...)
	var errs bytes.Buffer
	cmd.Stderr = &errs

	if !t.ownCode {
		fmt.Fprintf(c.progress, "building %s ...\n", name)
	}
	start := time.Now()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("build %s: %w\n%s", name, err, lastLines(errs.String(), 15))
	}
	if took := time.Since(start); !t.ownCode || took > slow {
		fmt.Fprintf(c.progress, "built %s in %.0f s\n", name, took.Seconds())
	}
	return nil
}

// golang is the go command in a module of the repository.
func (c *Cache) golang(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(c.source, module)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	return cmd
}

// keep moves a new binary to its place, and forgets all but the newest few of its kind.
func keep(built, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	if err := os.Rename(built, path); err != nil {
		return fmt.Errorf("keep the binary: %w", err)
	}
	return Prune(filepath.Dir(filepath.Dir(path)))
}

// version asks once for the Go version.
func (c *Cache) version(ctx context.Context) (string, error) {
	if c.goVersion != "" {
		return c.goVersion, nil
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("ask for the Go version: %w", err)
	}
	c.goVersion = strings.Join(strings.Fields(string(out)), " ")
	return c.goVersion, nil
}

// ModuleDir returns the directory that the source of a module lies in, downloaded if need be,
// at the version that the named component pins.
func (c *Cache) ModuleDir(ctx context.Context, component, module string) (string, error) {
	key := component + " " + module
	if dir, ok := c.modules.Load(key); ok {
		return dir.(string), nil
	}
	find := func() (string, error) {
		out, err := c.golang(ctx, components+component, "list", "-mod=readonly", "-m",
			"-f", "{{.Dir}}", module).Output()
		return strings.TrimSpace(string(out)), err
	}
	if dir, err := find(); err == nil && dir != "" {
		c.modules.Store(key, dir)
		return dir, nil
	}
	if out, err := c.golang(ctx, components+component, "mod", "download", module).CombinedOutput(); err != nil {
		return "", fmt.Errorf("download %s: %w\n%s", module, err, lastLines(string(out), 5))
	}
	dir, err := find()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", module, err)
	}
	if dir == "" {
		return "", fmt.Errorf("find the source of %s: not downloaded", module)
	}
	return dir, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
