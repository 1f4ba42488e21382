// Package cgroup gives each node a cgroup of its own in every hierarchy of the machine, below the one that the caller
// is in, so that a lab stays inside whatever limit its caller has. Version 1 limits and counts. Version 2, if it is
// mounted next to it, holds the nodes' processes apart for BPF programs, which Cilium attaches to its root.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Hierarchy is one mounted hierarchy and the caller's place in it.
type Hierarchy struct {
	Mount   string // where it is mounted, /sys/fs/cgroup/memory
	Options string // what to mount it with, "memory" or "none,name=systemd"; version 2 has none
	Own     string // the caller's cgroup, an absolute path below Mount
}

// Hierarchies lists the version 1 hierarchies, and that of version 2 if it is mounted. mountinfo and own are the
// contents of /proc/self/mountinfo and /proc/self/cgroup.
func Hierarchies(mountinfo, own string) ([]Hierarchy, error) {
	paths := map[string]string{} // controller list -> path
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			paths[f[1]] = f[2]
		}
	}
	unified, two := paths[""]
	delete(paths, "")
	var out []Hierarchy
	v1 := 0
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		if r[0] == "cgroup2" && two {
			out, two = append(out, Hierarchy{Mount: l[4], Own: place(l[4], l[3], unified)}), false
		}
		if r[0] != "cgroup" {
			continue
		}
		for controllers, path := range paths {
			if !hasOptions(r[2], controllers) {
				continue
			}
			options := controllers
			if strings.HasPrefix(controllers, "name=") {
				options = "none," + controllers
			}
			out = append(out, Hierarchy{Mount: l[4], Options: options, Own: place(l[4], l[3], path)})
			v1++
		}
	}
	if v1 == 0 {
		return nil, errors.New("no cgroup version 1 hierarchy is mounted: the lab cannot run on a machine " +
			"with cgroup version 2 alone yet")
	}
	slices.SortFunc(out, func(a, b Hierarchy) int { return strings.Compare(a.Mount, b.Mount) })
	return out, nil
}

// place is where a cgroup is below a mount of the cgroup root.
func place(mount, root, path string) string {
	return filepath.Join(mount, strings.TrimPrefix(path, strings.TrimSuffix(root, "/")))
}

func hasOptions(super, controllers string) bool {
	have := strings.Split(super, ",")
	for c := range strings.SplitSeq(controllers, ",") {
		if !slices.Contains(have, c) {
			return false
		}
	}
	return true
}

// Read lists the hierarchies of this process.
func Read() ([]Hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return Hierarchies(string(mounts), string(own))
}

// weight is the CPU share of a lab. By default, a group weighs as much as one process of its parent (1024),
// and a single compiler outside of the lab would then take half of the machine from a
// whole cluster, whose timeouts would expire.
const weight = "16384"

// Make makes the cgroup rel in every hierarchy and moves the process there. In cpuset a child
// starts without a single CPU, so the parent's are copied at each level.
func Make(hs []Hierarchy, rel string, pid int) error {
	for _, h := range hs {
		dir := h.Own
		first := filepath.Join(dir, strings.SplitN(rel, "/", 2)[0])
		for part := range strings.SplitSeq(rel, "/") {
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if dir == first && hasOptions(h.Options, "cpu") {
				if err := os.WriteFile(filepath.Join(dir, "cpu.shares"), []byte(weight), 0o644); err != nil {
					return fmt.Errorf("weigh cgroup: %w", err)
				}
			}
			if h.Options == "cpuset" {
				if err := copyCPUs(parent, dir); err != nil {
					return err
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0o644); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

func copyCPUs(parent, dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, f))
		if err != nil {
			return fmt.Errorf("read %s: %w", f, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", f, err)
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644)
}

// Remove removes the cgroup rel and all below it from every hierarchy. Their processes must have
// ended; the kernel may still be busy with the last of them, so it tries again until the deadline.
func Remove(hs []Hierarchy, rel string, deadline time.Duration) error {
	end := time.Now().Add(deadline)
	for _, h := range hs {
		dir := filepath.Join(h.Own, rel)
		forget(dir)
		for {
			err := removeTree(dir)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// forget frees the page cache of files that the processes of a cgroup, and of its removed children, have read. As long
// as one such page exists, the kernel keeps the cgroup, and thousands of cgroups slow it down. Only the memory
// hierarchy has this file.
func forget(dir string) {
	if file, err := os.OpenFile(filepath.Join(dir, "memory.force_empty"), os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteString("0")
		_ = file.Close()
	}
}

// removeTree removes directories only, deepest first: the files of a cgroup cannot be removed.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// Mount mounts every version 1 hierarchy below dir, as the calling thread's cgroup namespace sees them. Version 2 is
// left to those who use it: next to version 1, runc would put pods into it too.
func Mount(hs []Hierarchy, dir string) error {
	if err := unix.Mount("cgroup", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	for _, h := range hs {
		if h.Options == "" {
			continue
		}
		at := filepath.Join(dir, filepath.Base(h.Mount))
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", at, "cgroup", 0, h.Options); err != nil {
			return fmt.Errorf("mount cgroup %s: %w", h.Options, err)
		}
	}
	return nil
}
