package rigtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// ImagesOf builds the images of Calico or Cilium, for nodes of a network that do not have them, from the sources in a
// folder. It returns their files for `theseus-lab image load`.
func ImagesOf(t *testing.T, source, network string) []string {
	t.Helper()
	source, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	cache := os.Getenv("THESEUS_LAB_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, "theseus-lab")
	}
	files, err := scenario.ImagesOf(t.Context(), build.New(source, cache, os.Stderr), network)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// InKernel lists every BPF program, map and link in the kernel, by its kind and ID.
func InKernel(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for kind, command := range map[string]uintptr{
		"program": unix.BPF_PROG_GET_NEXT_ID, "map": unix.BPF_MAP_GET_NEXT_ID, "link": unix.BPF_LINK_GET_NEXT_ID,
	} {
		var attr struct{ start, next, flags uint32 }
		for {
			_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			if errno == unix.ENOENT {
				break
			}
			if errno != 0 {
				t.Fatalf("list every BPF %s: %v", kind, errno)
			}
			found[fmt.Sprintf("%s %d", kind, attr.next)] = true
			attr.start = attr.next
		}
	}
	return found
}

// NewInKernel lists the BPF programs, maps and links that were not there before.
func NewInKernel(t *testing.T, before map[string]bool) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(InKernel(t))), func(id string) bool { return before[id] })
}
