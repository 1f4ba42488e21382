package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/release/layer"
)

// Names of Cilium's images, as its chart calls them.
const (
	Cilium         = "quay.io/cilium/cilium:" + build.CiliumVersion
	CiliumOperator = "quay.io/cilium/operator-generic:" + build.CiliumVersion
)

// clang is Debian's package of the compiler that Cilium's agent calls, at the release that Cilium's own image has.
const (
	clang     = "/usr/lib/llvm-19/bin/clang"
	clangHint = "the images need Debian's clang-19, which Cilium compiles its programs with: apt-get install " +
		"--no-install-recommends clang-19"
)

// ciliumImages are Cilium's, without Envoy, Hubble and health checks.
func ciliumImages() ([]recipe, error) {
	if _, err := os.Stat(clang); err != nil {
		return nil, fmt.Errorf("%s: %w", clangHint, err)
	}
	from := func(path string) shipped {
		return shipped{component: build.CiliumComponent, module: build.CiliumModule, path: path}
	}
	return []recipe{
		{
			name: Cilium, userland: true,
			binaries: map[string]string{
				"/usr/bin/cilium-agent":     "cilium-agent",
				"/usr/bin/cilium-dbg":       "cilium-dbg",
				"/usr/bin/cilium-mount":     "cilium-mount",
				"/usr/bin/cilium-sysctlfix": "cilium-sysctlfix",
				"/opt/cni/bin/cilium-cni":   "cilium-cni",
			},
			shipped: map[string]shipped{
				"/init-container.sh": from("images/cilium/init-container.sh"),
				"/install-plugin.sh": from("plugins/cilium-cni/install-plugin.sh"),
				"/cni-uninstall.sh":  from("plugins/cilium-cni/cni-uninstall.sh"),
			},
			trees: map[string]tree{"/var/lib/cilium/bpf": {shipped: from("bpf"),
				but: []string{"tests", "complexity-tests"}}},
			tools: []string{"basename", "bash", "find", "grep", "mkdir", "mount", "mv", "nsenter", "rm"},
			files: []layer.File{
				layer.Program("/usr/bin/clang", clang),
				layer.Program("/cni/loopback", "/usr/lib/cni/loopback"),
				layer.Directory("/home/cilium", 0o755),
				// the chart mounts by the one name what the agent looks for by the other
				layer.Symlink("/var/run", "../run"),
			},
			set: settings{Cmd: []string{"/usr/bin/cilium-dbg"}, WorkingDir: "/home/cilium"},
		},
		{
			name:     CiliumOperator,
			binaries: map[string]string{"/usr/bin/cilium-operator-generic": "cilium-operator-generic"},
			files:    []layer.File{layer.Directory("/tmp", 0o777|os.ModeSticky)},
		},
	}, nil
}

// tree is a folder of a project's own, but for some folders below it.
type tree struct {
	shipped
	but []string
}

// list finds the tree's files, for the path that the tree has in the image.
func (t tree) list(ctx context.Context, cache *build.Cache, at string) ([]layer.File, error) {
	dir, err := cache.ModuleDir(ctx, t.component, t.module)
	if err != nil {
		return nil, err
	}
	top := filepath.Join(dir, filepath.FromSlash(t.path))
	var files []layer.File
	err = filepath.WalkDir(top, func(source string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(source, top))
		for _, name := range t.but {
			if rel == "/"+name {
				return fs.SkipDir
			}
		}
		if entry.IsDir() {
			files = append(files, layer.Directory(path.Join(at, rel), 0o755))
		} else {
			files = append(files, layer.File{Path: path.Join(at, rel), Mode: 0o644, Source: source})
		}
		return nil
	})
	return files, err
}
