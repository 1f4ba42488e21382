package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// unmount unmounts views of the machine's cgroups at or below a path of the node, given below its root: what is in them
// are the cgroups of everything that runs there. Other file systems stay, as the administrator may have mounted them.
func (n *Node) unmount(name string) error {
	mounts, err := cgroupMounts(n.Root)
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) { // the last mounted is on top of the others
		if at != name && !strings.HasPrefix(at, name+"/") {
			continue
		}
		if err := n.unmountAt(at); err != nil {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
	return nil
}

// cgroupMounts are the mount points of cgroup2 below a folder, in the order in which they were mounted, as paths below
// that folder.
func cgroupMounts(root string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		front, back, found := strings.Cut(line, " - ")
		fields := strings.Fields(front)
		if !found || len(fields) < 5 || !strings.HasPrefix(back, "cgroup2 ") {
			continue
		}
		if at, err := filepath.Rel(root, fields[4]); err == nil && at != ".." && !strings.HasPrefix(at, "../") {
			all = append(all, path.Join("/", at))
		}
	}
	return all, nil
}

// unmountAt unmounts what is at a path of the node, in the node's own mount namespace, from which it goes in all others
// too.
func (n *Node) unmountAt(name string) error {
	if n.Mounts == "" {
		return unix.Unmount(filepath.Join(n.Root, name), unix.UMOUNT_NOFOLLOW)
	}
	namespace, err := os.Open(n.Mounts)
	if err != nil {
		return err
	}
	defer namespace.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine, as it is in another namespace
		if err := errors.Join(unix.Unshare(unix.CLONE_FS),
			unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)); err != nil {
			done <- err
			return
		}
		err := unix.Unmount(name, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			err = nil // it is not mounted there any more
		}
		done <- err
	}()
	return <-done
}
