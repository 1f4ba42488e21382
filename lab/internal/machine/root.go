package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/cgroup"
)

// mountStep is one mount. Target is below the new root.
type mountStep struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// buildRoot assembles the machine's root at c.Root and moves into it. The host's root is its
// read-only lower layer, so every program of the host is there; nothing that is written reaches the host.
func buildRoot(c Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	upper, work := filepath.Join(c.Disk, "upper"), filepath.Join(c.Disk, "work")
	if err := mkdirs(c.Root, upper, work); err != nil {
		return err
	}
	overlay := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", upper, work)
	if err := unix.Mount("overlay", c.Root, "overlay", 0, overlay); err != nil {
		return fmt.Errorf("mount overlay root: %w", err)
	}
	steps := []mountStep{
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/dev", "/dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "size=256m"},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=256m"},
		{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777,size=512m"},
	}
	for _, dir := range private() {
		own := filepath.Join(c.Disk, "private", strings.ReplaceAll(dir[1:], "/", "-"))
		steps = append(steps, mountStep{own, dir, "", unix.MS_BIND, ""})
	}
	steps = append(steps,
		mountStep{c.Containerd, "/var/lib/containerd", "", unix.MS_BIND, ""},
		mountStep{c.Logs, logDir, "", unix.MS_BIND, ""},
	)
	for _, s := range steps {
		if err := s.mount(c.Root); err != nil {
			return err
		}
	}
	if err := bindFiles(c); err != nil {
		return err
	}
	if err := pivot(c.Root); err != nil {
		return err
	}
	return afterPivot(c)
}

func (s mountStep) mount(root string) error {
	target := filepath.Join(root, s.target)
	if err := mkdirs(target); err != nil {
		return err
	}
	if s.flags&unix.MS_BIND != 0 {
		if err := mkdirs(s.source); err != nil {
			return err
		}
	}
	if err := unix.Mount(s.source, target, s.fstype, s.flags, s.data); err != nil {
		return fmt.Errorf("mount %s: %w", s.target, err)
	}
	return nil
}

// bindFiles makes the programs and the image archives visible; they may lie where the machine has
// a file system of its own.
func bindFiles(c Config) error {
	files := map[string]string{
		binDir + "/theseus-lab": c.LabBinary,
		binDir + "/kube":        c.KubeBinary,
	}
	for name, program := range c.Programs {
		files[filepath.Join(binDir, name)] = program
	}
	for i, img := range c.Images {
		files[imagePath(i)] = img.Tar
	}
	for target, source := range files {
		if err := bindFile(source, filepath.Join(c.Root, target)); err != nil {
			return err
		}
	}
	return nil
}

func imagePath(i int) string { return fmt.Sprintf("%s/images/%d.tar", runDir, i) }

func bindFile(source, target string) error {
	if err := mkdirs(filepath.Dir(target)); err != nil {
		return err
	}
	if err := os.WriteFile(target, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	return nil
}

func pivot(root string) error {
	old := filepath.Join(root, "run/old-root")
	if err := mkdirs(old); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/run/old-root", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return os.Remove("/run/old-root")
}

func afterPivot(c Config) error {
	if err := cgroup.Mount(c.Hierarchies, "/sys/fs/cgroup"); err != nil {
		return err
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=700"); err != nil {
		return fmt.Errorf("mount bpf: %w", err)
	}
	for name, value := range sysctls() {
		file := filepath.Join(runDir, "sysctl", name)
		if err := mkdirs(filepath.Dir(file)); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil && err != unix.ENOENT {
			return fmt.Errorf("cover sysctl %s: %w", name, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return writeFiles(c)
}

func writeFiles(c Config) error {
	for _, name := range []string{"kubelet", "kube-proxy", "kubectl"} {
		link := filepath.Join(binDir, name)
		_ = os.Remove(link)
		if err := os.Symlink("kube", link); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		if err := mkdirs(filepath.Dir(f.Path)); err != nil {
			return err
		}
		if !c.First && filepath.Dir(f.Path) == c.ConfDir {
			continue // a reboot finds the CNI configuration that was there before
		}
		_ = os.Remove(f.Path) // it may be a link to where the host keeps it
		if err := os.WriteFile(f.Path, f.Content, os.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	return copyPlugins(c.BinDir)
}

// copyPlugins gives the machine the CNI plugins that every distribution of Kubernetes brings. They
// are copies, since a CNI's own installer may replace them.
func copyPlugins(dir string) error {
	for _, name := range []string{"loopback", "bridge", "ptp", "host-local", "portmap", "bandwidth"} {
		target := filepath.Join(dir, name)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		raw, err := os.ReadFile("/usr/lib/cni/" + name)
		if err != nil {
			return fmt.Errorf("CNI plugin of the package containernetworking-plugins: %w", err)
		}
		if err := mkdirs(dir); err != nil {
			return err
		}
		if err := os.WriteFile(target, raw, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func mkdirs(dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}
