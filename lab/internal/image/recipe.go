package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/phrase"
	"github.com/theseus-cni/theseus/release/layer"
)

// Names of the images, as the manifests of their projects call them.
const (
	Pause           = "registry.k8s.io/pause:3.10"
	CoreDNS         = "registry.k8s.io/coredns/coredns:v1.15.0"
	Workload        = "theseus.dev/workload:lab"
	Agent           = "localhost:1/theseus-agent:dev"
	Controller      = "localhost:1/theseus-controller:dev"
	Flannel         = "ghcr.io/flannel-io/flannel:v0.28.4"
	FlannelCNI      = "ghcr.io/flannel-io/flannel-cni-plugin:v0.9.1"
	Kindnetd        = "docker.io/kindest/kindnetd:v20240513-cd2ac642" // a stand-in
	KubeRouter      = "docker.io/cloudnativelabs/kube-router:v1.5.1"
	WeaveKube       = "docker.io/weaveworks/weave-kube:2.6.5"
	WeaveNPC        = "docker.io/weaveworks/weave-npc:2.6.5"
	CalicoMigration = "quay.io/calico/flannel-migration-controller:v3.31.0"
)

// calicoImage is one of Calico's.
func calicoImage(version, name string) string {
	if version < "v3.31" {
		return "docker.io/calico/" + name + ":" + version
	}
	return "quay.io/calico/" + name + ":" + version
}

// recipe says what is in an image.
type recipe struct {
	name     string
	userland bool               // stands on the shared layer
	binaries map[string]string  // path in the image to the name of a program of the build cache
	shipped  map[string]shipped // path in the image to a file that comes with a project's source
	trees    map[string]tree    // and to a folder
	tools    []string           // more programs of this machine
	files    []layer.File       // and whatever else
	set      settings
}

// shipped is a file of a project's own, at the version that the lab builds.
type shipped struct {
	component, module string
	path              string // in the module
	edits             []phrase.Edit
}

// recipes lists the images that a lab on the given network needs. A flannel, a Canal, a Weave, a kindnet, a kube-router
// or a bridge lab gets Calico's too, and a flannel lab its migration controller and Typha: Calico is what it is changed
// to.
func recipes(network, calico, source string) ([]recipe, error) {
	list := always()
	if _, err := os.Stat(filepath.Join(source, "cmd", "theseus-agent")); err == nil {
		list = append(list, agent(), controller())
	}
	var own []recipe
	var err error
	switch network {
	case "none":
		return list, nil
	case "bridge", "kube-router":
		own = []recipe{kubeRouter()}
	case "kindnet":
		own = []recipe{kindnetd(), kubeRouter()}
	case "canal":
		own = flannelImages()[:1]
	case "calico", "calico-bgp", "calico-typha":
	case "flannel":
		own = append(flannelImages(), calicoMigration())
	case "weave":
		own, err = weaveImages()
	case "cilium":
		own, err = ciliumImages()
	default:
		err = fmt.Errorf("no images are known for the network %q", network)
	}
	if err != nil {
		return nil, err
	}
	versions := build.CalicoVersions()[:1]
	for version := range strings.SplitSeq(calico, ",") {
		if version != "" && version != versions[0] {
			versions = append(versions, version)
		}
	}
	list = append(list, own...)
	for _, version := range versions {
		images, err := calicoImages(version)
		if err != nil {
			return nil, err
		}
		list = append(list, images...)
		if network == "calico-typha" || network == "flannel" {
			list = append(list, calicoTypha(version))
		}
	}
	return list, nil
}

func always() []recipe {
	return []recipe{
		{name: Pause, binaries: map[string]string{"/pause": "pause"},
			set: settings{Entrypoint: []string{"/pause"}, User: "65535:65535"}},
		{name: CoreDNS, binaries: map[string]string{"/coredns": "coredns"},
			set: settings{Entrypoint: []string{"/coredns"}}},
		{name: Workload, binaries: map[string]string{"/workload": "workload"},
			set: settings{Entrypoint: []string{"/workload"}}},
	}
}

func agent() recipe {
	return recipe{
		name: Agent, userland: true,
		binaries: map[string]string{"/theseus-agent": "theseus-agent"},
		set:      settings{Entrypoint: []string{"/theseus-agent"}},
	}
}

func controller() recipe {
	return recipe{
		name:     Controller,
		binaries: map[string]string{"/theseus-controller": "theseus-controller"},
		files:    []layer.File{layer.Directory("/tmp", 0o777|os.ModeSticky)},
		set:      settings{Entrypoint: []string{"/theseus-controller"}, User: "65532:65532"},
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
		kubeRouter(),
	}
}

// kindnetd is the lab's stand-in.
func kindnetd() recipe {
	return recipe{
		name: Kindnetd, userland: true,
		binaries: map[string]string{"/bin/kindnetd": "kindnet"},
		set:      settings{Entrypoint: []string{"/bin/kindnetd"}},
	}
}

func kubeRouter() recipe {
	return recipe{
		name: KubeRouter, userland: true,
		binaries: map[string]string{"/usr/local/bin/kube-router": "kube-router"},
		tools:    []string{"mv", "rm"}, // for its manifest
		files: []layer.File{{Path: "/etc/iproute2/rt_tables", Mode: 0o644, // which it adds its own table to
			Content: "255 local\n254 main\n253 default\n"}},
		set: settings{Entrypoint: []string{"/usr/local/bin/kube-router"}},
	}
}

// weaveImages are Weave Net's, with its own scripts. Their tools are Debian's where upstream's are Alpine's.
func weaveImages() ([]recipe, error) {
	const (
		home    = "/home/weave/"
		version = "2.6.5"
	)
	logger, err := ulogd()
	from := func(path string, edits ...phrase.Edit) shipped {
		return shipped{component: "weave", module: "github.com/weaveworks/weave", path: path, edits: edits}
	}
	return []recipe{
		{
			name: WeaveKube, userland: true,
			binaries: map[string]string{
				home + "weaver": "weaver", home + "kube-utils": "weave-kube-utils", "/usr/bin/weaveutil": "weaveutil",
			},
			shipped: map[string]shipped{
				home + "launch.sh": from("prog/weave-kube/launch.sh"),
				home + "weave": from("weave",
					phrase.Edit{From: `SCRIPT_VERSION="unreleased"`, To: `SCRIPT_VERSION="` + version + `"`}),
				"/weavedb/weavedata.db": from("prog/weaver/weavedata.db"),
			},
			tools: []string{"curl", "cut", "grep", "id", "ln", "mkdir", "mv", "readlink",
				"rm", "sed", "tr", "uname", "wc"},
			set: settings{Entrypoint: []string{home + "launch.sh"}, WorkingDir: home},
		},
		{
			name: WeaveNPC, userland: true,
			binaries: map[string]string{"/usr/bin/weave-npc": "weave-npc"},
			shipped: map[string]shipped{
				"/usr/bin/launch.sh": from("prog/weave-npc/launch.sh"),
				"/etc/ulogd.conf":    from("prog/weave-npc/ulogd.conf"),
			},
			tools: []string{"grep", "ln", "rm", "wc"},
			files: logger,
			set:   settings{Entrypoint: []string{"/usr/bin/launch.sh"}},
		},
	}, err
}

// nobody is the user that Calico's controllers run as.
const nobody = 999

// calicoMigration is upstream's docker-image/flannel-migration: the controllers' program and kubectl, which it
// calls to drain nodes.
func calicoMigration() recipe {
	return recipe{
		name: CalicoMigration,
		binaries: map[string]string{
			"/usr/bin/kube-controllers": "calico-kube-controllers",
			"/usr/bin/check-status":     "calico-check-status",
			"/usr/bin/kubectl":          "kube",
		},
		files: []layer.File{
			{Path: "/status", Mode: 0o755 | os.ModeDir, Owner: nobody},
			{Path: "/status/status.json", Mode: 0o644, Owner: nobody},
			layer.Directory("/tmp", 0o777|os.ModeSticky),
		},
		set: settings{Entrypoint: []string{"/usr/bin/kube-controllers"}, User: fmt.Sprint(nobody)},
	}
}

// calicoTypha is upstream's typha/docker-image.
func calicoTypha(version string) recipe {
	return recipe{
		name:     calicoImage(version, "typha"),
		binaries: map[string]string{"/usr/bin/calico-typha": build.Calico(version, "calico-typha")},
		files: []layer.File{{Path: "/etc/calico/typha.cfg", Mode: 0o644,
			Content: "[global]\nMetadataAddr = None\nLogFilePath = None\nLogSeverityFile = None\n"}},
		set: settings{Cmd: []string{"/usr/bin/calico-typha"}, User: fmt.Sprint(nobody)},
	}
}

// calicoImages are Calico's. BIRD is Debian's where upstream's is a fork of the same version.
func calicoImages(version string) ([]recipe, error) {
	const (
		bin      = "/opt/cni/bin/"
		packaged = "/usr/lib/cni/"
	)
	daemons, err := bird()
	of := func(program string) string { return build.Calico(version, program) }
	cni := recipe{
		name:     calicoImage(version, "cni"),
		binaries: map[string]string{bin + "calico": of("calico-cni"), bin + "install": of("calico-cni-install")},
		files:    []layer.File{{Path: bin + "calico-ipam", Mode: 0o755, Hard: bin + "calico"}},
		set:      settings{Cmd: []string{bin + "install"}, WorkingDir: "/opt/cni/bin"},
	}
	for _, plugin := range []string{"bandwidth", "host-local", "loopback", "portmap", "tuning"} {
		cni.files = append(cni.files, layer.Program(bin+plugin, packaged+plugin))
	}
	controllers := recipe{
		name: calicoImage(version, "kube-controllers"),
		binaries: map[string]string{
			"/usr/bin/kube-controllers": of("calico-kube-controllers"),
			"/usr/bin/check-status":     of("calico-check-status"),
		},
		files: []layer.File{
			{Path: "/status", Mode: 0o755 | os.ModeDir, Owner: nobody},
			{Path: "/status/status.json", Mode: 0o644, Owner: nobody},
			{Path: "/profiles", Mode: 0o755 | os.ModeDir, Owner: nobody},
			layer.Directory("/tmp", 0o777|os.ModeSticky),
		},
		set: settings{Entrypoint: []string{"/usr/bin/kube-controllers"}, User: fmt.Sprint(nobody)},
	}
	entry := []string{"start_runit"}
	if version != "v3.28.5" {
		controllers.binaries["/usr/bin/wrapper"] = of("calico-wrapper")
		controllers.set.Entrypoint = slices.Insert(controllers.set.Entrypoint, 0, "/usr/bin/wrapper")
	} else {
		entry = append(entry, "-without=complete-startup") // which came with v3.29
	}
	return []recipe{
		cni,
		{
			name: calicoImage(version, "node"), userland: true,
			binaries: map[string]string{"/usr/bin/calico-node": of("calico-node"),
				"/usr/sbin/start_runit": "calico-entry"},
			shipped: confdFiles(build.CalicoComponent(version)),
			files: append(daemons,
				layer.File{Path: "/etc/calico/felix.cfg", Mode: 0o644, Content: "[global]\n"},
				layer.Directory("/etc/calico/confd/config", 0o755),
				layer.Symlink("/usr/bin/sv", "../sbin/start_runit")),
			set: settings{Cmd: entry},
		},
		controllers,
	}, err
}

// confdFiles are what Calico's confd renders BIRD's configuration from. Its pools name a tunnel for their
// routes, none at all included, by an attribute that only Calico's fork of BIRD has: here they do so only
// where there is a tunnel.
func confdFiles(component string) map[string]shipped {
	const (
		tunnel = `krt_tunnel = "{{$data.ipip}}";`
		before = "         {{- /* Destination in ipPool, mode "
	)
	only := func(when string) phrase.Edit {
		return phrase.Edit{From: tunnel + before + when, To: "{{if $data.ipip}}" + tunnel + "{{end}}" + before + when}
	}
	files := map[string]shipped{}
	add := func(path string, edits ...phrase.Edit) {
		files["/etc/calico/confd/"+path] = shipped{
			component: component, module: "github.com/projectcalico/calico",
			path: "confd/etc/calico/confd/" + path, edits: edits,
		}
	}
	for _, name := range []string{"bird", "bird_aggr", "bird_ipam", "bird6", "bird6_aggr", "bird6_ipam"} {
		add("conf.d/" + name + ".toml")
		add("templates/" + name + ".cfg.template")
	}
	add("templates/bird_ipam.cfg.template", only("not cross sub-net"), only("field is not present"))
	return files
}

// gather builds what the recipe names and returns all files of the image's own layer.
func (r recipe) gather(ctx context.Context, cache *build.Cache) ([]layer.File, error) {
	files := append([]layer.File(nil), r.files...)
	for path, name := range r.binaries {
		binary, err := cache.Binary(ctx, name)
		if err != nil {
			return nil, err
		}
		files = append(files, layer.Program(path, binary))
	}
	for path, s := range r.shipped {
		f, err := s.file(ctx, cache, path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	for path, t := range r.trees {
		list, err := t.list(ctx, cache, path)
		if err != nil {
			return nil, err
		}
		files = append(files, list...)
	}
	more, err := programs(r.tools)
	return append(files, more...), err
}

// file finds the file in its project's source, and adapts it.
func (s shipped) file(ctx context.Context, cache *build.Cache, path string) (layer.File, error) {
	dir, err := cache.ModuleDir(ctx, s.component, s.module)
	if err != nil {
		return layer.File{}, err
	}
	source := filepath.Join(dir, filepath.FromSlash(s.path))
	if len(s.edits) == 0 {
		return layer.Program(path, source), nil
	}
	text, err := os.ReadFile(source)
	if err != nil {
		return layer.File{}, err
	}
	adapted, err := phrase.Apply(string(text), s.edits)
	if err != nil {
		return layer.File{}, fmt.Errorf("adapt %s: %w", s.path, err)
	}
	return layer.File{Path: path, Mode: 0o755, Content: adapted}, nil
}

// ControllerOf writes an image of the controller with another program to path, under the name of the lab's own image
// but for its tag.
func ControllerOf(path, program, tag string) error {
	r := controller()
	own, err := saveLayer(path+".layer", append(r.files, layer.Program("/theseus-controller", program)))
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	defer out.Close()
	name, _, _ := strings.Cut(Controller, ":dev")
	return writeImage(out, name+":"+tag, r.set, []packed{own})
}
