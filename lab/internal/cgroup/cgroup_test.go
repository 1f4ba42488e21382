package cgroup

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestHierarchies(t *testing.T) {
	const mounts = `22 27 0:21 / /proc rw - proc proc rw
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	const own = "4:memory:/limits/job\n1:cpu,cpuacct:/\n9:name=systemd:/\n0::/limits\n"
	got, err := Hierarchies(mounts, own)
	if err != nil {
		t.Fatal(err)
	}
	want := []Hierarchy{
		{Mount: "/sys/fs/cgroup/cpu,cpuacct", Options: "cpu,cpuacct", Own: "/sys/fs/cgroup/cpu,cpuacct"},
		{Mount: "/sys/fs/cgroup/memory", Options: "memory", Own: "/sys/fs/cgroup/memory/limits/job"},
		{Mount: "/sys/fs/cgroup/systemd", Options: "none,name=systemd", Own: "/sys/fs/cgroup/systemd"},
		{Mount: "/sys/fs/cgroup/unified", Own: "/sys/fs/cgroup/unified/limits"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// In a container the hierarchy's mount may show a subtree, and the paths begin at the real root.
func TestHierarchiesOfSubtree(t *testing.T) {
	got, err := Hierarchies("35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
		"4:memory:/docker/x/y\n")
	if err != nil || len(got) != 1 || got[0].Own != "/sys/fs/cgroup/memory/y" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestVersion2AloneIsRefused(t *testing.T) {
	if _, err := Hierarchies("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/user\n"); err == nil {
		t.Error("a machine without version 1 was taken")
	}
}

func TestRemove(t *testing.T) {
	h := Hierarchy{Own: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(h.Own, "lab/node/kubepods/pod"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // removing what is gone is no error
		if err := Remove([]Hierarchy{h}, "lab", time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(h.Own, "lab")); err == nil {
		t.Error("the cgroup is still there")
	}
}
