package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/theseus-cni/theseus/lab/internal/build"
)

// Names of the images, as the manifests of their projects call them.
const (
	Pause             = "registry.k8s.io/pause:3.10"
	CoreDNS           = "registry.k8s.io/coredns/coredns:v1.15.0"
	Workload          = "theseus.dev/workload:lab"
	Agent             = "theseus.dev/agent:dev"
	Flannel           = "ghcr.io/flannel-io/flannel:v0.28.4"
	FlannelCNI        = "ghcr.io/flannel-io/flannel-cni-plugin:v0.9.1"
	KubeRouter        = "docker.io/cloudnativelabs/kube-router:v1.5.1"
	CalicoNode        = "quay.io/calico/node:v3.31.0"
	CalicoCNI         = "quay.io/calico/cni:v3.31.0"
	CalicoControllers = "quay.io/calico/kube-controllers:v3.31.0"
)

// recipe says what is in an image.
type recipe struct {
	name     string
	userland bool              // stands on the shared layer
	binaries map[string]string // path in the image to the name of a program of the build cache
	files    []file            // and whatever else
	set      settings
}

// recipes lists the images that a lab on the given network needs. A flannel lab gets Calico's too:
// Calico is what it is changed to.
func recipes(network, source string) ([]recipe, error) {
	list := always()
	if _, err := os.Stat(filepath.Join(source, "cmd", "theseus-agent")); err == nil {
		list = append(list, agent())
	}
	switch network {
	case "none", "bridge":
		return list, nil
	case "calico":
		return append(list, calicoImages()...), nil
	case "flannel":
		return append(append(list, flannelImages()...), calicoImages()...), nil
	}
	return nil, fmt.Errorf("no images are known for the network %q", network)
}

func always() []recipe {
	return []recipe{
		{name: Pause, binaries: map[string]string{"/pause": "pause"}, set: settings{Entrypoint: []string{"/pause"}, User: "65535:65535"}},
		{name: CoreDNS, binaries: map[string]string{"/coredns": "coredns"}, set: settings{Entrypoint: []string{"/coredns"}}},
		{name: Workload, binaries: map[string]string{"/workload": "workload"}, set: settings{Entrypoint: []string{"/workload"}}},
	}
}

func agent() recipe {
	return recipe{
		name: Agent, userland: true,
		binaries: map[string]string{"/theseus-agent": "theseus-agent"},
		set:      settings{Entrypoint: []string{"/theseus-agent"}},
	}
}

func flannelImages() []recipe {
	return []recipe{
		{
			name: Flannel, userland: true,
			binaries: map[string]string{"/opt/bin/flanneld": "flanneld"},
			set:      settings{Entrypoint: []string{"/opt/bin/flanneld"}},
		},
		{name: FlannelCNI, userland: true, binaries: map[string]string{"/flannel": "flannel-cni"}},
		{
			name: KubeRouter, userland: true,
			binaries: map[string]string{"/usr/local/bin/kube-router": "kube-router"},
			set:      settings{Entrypoint: []string{"/usr/local/bin/kube-router"}},
		},
	}
}

func calicoImages() []recipe {
	const (
		bin      = "/opt/cni/bin/"
		nobody   = 999 // the user that Calico's controllers run as
		packaged = "/usr/lib/cni/"
	)
	cni := recipe{
		name:     CalicoCNI,
		binaries: map[string]string{bin + "calico": "calico-cni", bin + "install": "calico-cni-install"},
		files:    []file{{path: bin + "calico-ipam", mode: 0o755, hard: bin + "calico"}},
		set:      settings{Cmd: []string{bin + "install"}, WorkingDir: "/opt/cni/bin"},
	}
	for _, plugin := range []string{"bandwidth", "host-local", "loopback", "portmap", "tuning"} {
		cni.files = append(cni.files, program(bin+plugin, packaged+plugin))
	}
	return []recipe{
		cni,
		{
			name: CalicoNode, userland: true,
			binaries: map[string]string{"/usr/bin/calico-node": "calico-node", "/usr/sbin/start_runit": "calico-entry"},
			files:    []file{directory("/etc/calico", 0o755), {path: "/etc/calico/felix.cfg", mode: 0o644, content: "[global]\n"}},
			set:      settings{Cmd: []string{"start_runit"}},
		},
		{
			name: CalicoControllers,
			binaries: map[string]string{
				"/usr/bin/kube-controllers": "calico-kube-controllers",
				"/usr/bin/check-status":     "calico-check-status",
				"/usr/bin/wrapper":          "calico-wrapper",
			},
			files: []file{
				{path: "/status", mode: 0o755 | os.ModeDir, owner: nobody},
				{path: "/status/status.json", mode: 0o644, owner: nobody},
				{path: "/profiles", mode: 0o755 | os.ModeDir, owner: nobody},
				directory("/tmp", 0o777|os.ModeSticky),
			},
			set: settings{Entrypoint: []string{"/usr/bin/wrapper", "/usr/bin/kube-controllers"}, User: fmt.Sprint(nobody)},
		},
	}
}

// gather builds what the recipe names and returns all files of the image's own layer.
func (r recipe) gather(ctx context.Context, cache *build.Cache) ([]file, error) {
	files := append([]file(nil), r.files...)
	for path, name := range r.binaries {
		binary, err := cache.Binary(ctx, name)
		if err != nil {
			return nil, err
		}
		files = append(files, program(path, binary))
	}
	return files, nil
}
