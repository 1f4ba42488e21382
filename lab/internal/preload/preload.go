// Package preload gives every node its images without importing them on every node: a containerd
// imports them once into a directory of the cache, and a node's containerd starts on a copy of that
// directory in which everything but the databases is a hard link. That is sound because containerd
// never writes to a blob or to a committed snapshot again.
package preload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// format changes when templates of older programs cannot be used any more.
const format = "1"

// Template returns the directory of a containerd that holds the images, making it in cacheDir if it
// is not there yet. The tars are known by their paths: their content never changes.
func Template(ctx context.Context, cacheDir string, images []spec.Image, log io.Writer) (string, error) {
	parent := filepath.Join(cacheDir, "containerd")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(parent, key(images))
	if used(dir) {
		return dir, nil
	}
	lock, err := os.OpenFile(filepath.Join(cacheDir, "containerd.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock the cache: %w", err)
	}
	if used(dir) { // another command made it while this one waited
		return dir, nil
	}
	if err := clear(parent, dir); err != nil {
		return "", err
	}
	unfinished := filepath.Join(parent, "new")
	if err := fill(ctx, unfinished, images, log); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// used says whether a template is there, and notes that it is used now.
func used(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func key(images []spec.Image) string {
	var lines []string
	for _, i := range images {
		lines = append(lines, i.Name+" "+i.Tar)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(format + "\n" + strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

const (
	kept   = 6         // templates that stay in the cache
	spared = time.Hour // since its last use, a template stays whatever their number: a lab may yet add nodes from it
)

// clear makes room for another template and removes what an interrupted run left.
func clear(parent, next string) error {
	if err := os.RemoveAll(filepath.Join(parent, "new")); err != nil {
		return err
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return modified(b).Compare(modified(a)) })
	for i, e := range entries {
		if i >= kept-1 && e.Name() != filepath.Base(next) && time.Since(modified(e)) > spared {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func modified(e fs.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// config is a containerd that can hold images and nothing else.
const config = `version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = %q
`

// fill runs a containerd on dir in namespaces of its own and imports the images.
func fill(ctx context.Context, dir string, images []spec.Image, log io.Writer) error {
	work, err := os.MkdirTemp("", "theseus-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	socket, file := filepath.Join(work, "sock"), filepath.Join(work, "config.toml")
	text := fmt.Sprintf(config, dir, filepath.Join(work, "state"), socket)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	var output strings.Builder
	daemon := exec.Command("containerd", "--config", file)
	daemon.Stdout, daemon.Stderr = &output, &output
	daemon.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWNET,
		Unshareflags: unix.CLONE_NEWNS, // with this one the mounts are made private too
	}
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	err = importAll(ctx, socket, images, log)
	// It has to close its databases: SIGTERM, and SIGKILL only if it does not listen.
	_ = daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = daemon.Process.Kill()
		<-ended
		err = errors.Join(err, errors.New("containerd did not end"))
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output.String())
	}
	return nil
}

func importAll(ctx context.Context, socket string, images []spec.Image, log io.Writer) error {
	if err := awaitSocket(ctx, socket); err != nil {
		return err
	}
	for _, i := range images {
		start := time.Now()
		out, err := exec.CommandContext(ctx, "ctr", "--address", socket, "-n", "k8s.io", "images",
			"import", i.Tar).CombinedOutput()
		if err != nil {
			return fmt.Errorf("import %s: %w: %s", i.Name, err, out)
		}
		fmt.Fprintf(log, "         unpacked %s in %.1fs\n", i.Name, time.Since(start).Seconds())
	}
	return nil
}

func awaitSocket(ctx context.Context, socket string) error {
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !exists(socket) {
		select {
		case <-tick.C:
		case <-limit.Done():
			return fmt.Errorf("containerd does not listen: %w", limit.Err())
		}
	}
	return nil
}

// Clone makes to a copy of the template from, with hard links for everything that is never written
// again. Where the two are on different file systems everything is copied.
func Clone(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return cloneDir(info, target)
		case info.Mode().IsRegular() && strings.HasSuffix(path, ".db"):
			return copyFile(path, target, info)
		}
		err = os.Link(path, target)
		if errors.Is(err, unix.EXDEV) && info.Mode().IsRegular() {
			return copyFile(path, target, info)
		}
		return err
	})
}

func cloneDir(info fs.FileInfo, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(target, int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(target, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := out.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}
