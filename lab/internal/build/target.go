package build

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// target says how one program is built.
type target struct {
	module  string // directory of its Go module, relative to the source directory
	modfile string // go.mod of that module where it has several; go.sum next to it
	pkg     string // package to build, relative to that module or by its import path
	patched *patch // changes to a third party's source
	cgo     bool   // only where the program does not build without
	tags    string // build tags, with commas between
	stamp   string // -X flags that carry its version
	ownCode bool   // built from this repository: always hand it to go build
}

const (
	components = "lab/components/"
	calico     = "github.com/projectcalico/calico"

	kubeRouterStamp = "-X github.com/cloudnativelabs/kube-router/pkg/version.Version=v1.5.1"
	flannelStamp    = "-X github.com/flannel-io/flannel/pkg/version.Version=v0.28.4"
	weaveStamp      = "-X main.version=2.6.5"
)

// CiliumVersion is the version of Cilium that is built, and CiliumComponent the component that pins it.
const (
	CiliumVersion   = "v1.20.2"
	CiliumComponent = "cilium-" + CiliumVersion
	CiliumModule    = "github.com/cilium/cilium"
)

// ciliumPrograms are those of Cilium's two images. They panic at a version without a commit and a date.
func ciliumPrograms() map[string]target {
	program := func(pkg, tags string) target {
		return target{
			module: components + CiliumComponent, pkg: CiliumModule + pkg, tags: tags,
			stamp: "-X '" + CiliumModule + "/pkg/version.ciliumVersion=" + strings.TrimPrefix(CiliumVersion, "v") +
				" 0 2026-09-15T20:03:11Z'",
		}
	}
	return map[string]target{
		"cilium-agent":            program("/daemon", "osusergo"),
		"cilium-cni":              program("/plugins/cilium-cni", "osusergo"),
		"cilium-dbg":              program("/cilium-dbg", "osusergo"),
		"cilium-mount":            program("/tools/mount", "osusergo"),
		"cilium-sysctlfix":        program("/tools/sysctlfix", "osusergo"),
		"cilium-operator-generic": program("/operator", "osusergo,ipam_provider_operator"),
	}
}

// KubernetesVersions lists the versions of Kubernetes that can be built, the default first.
func KubernetesVersions() []string { return []string{"v1.36.3", "v1.34.4"} }

// Kube is the name of the program that is Kubernetes at one of those versions.
func Kube(version string) string {
	if version == KubernetesVersions()[0] {
		return "kube"
	}
	return "kube-" + version
}

// Runtimes lists the container runtimes of nodes, the default first. The second is Debian's package, which this machine
// has.
func Runtimes() []string { return []string{"containerd-2.3", "containerd-1.6"} }

// RuntimePrograms are the names of the programs of a runtime that have to be built.
func RuntimePrograms(runtime string) []string {
	if runtime != Runtimes()[0] {
		return nil
	}
	return []string{"containerd", "containerd-shim-runc-v2", "ctr"}
}

// containerd is a program of containerd 2.
func containerd(program string) target {
	const module = "github.com/containerd/containerd/v2"
	return target{module: components + "containerd", pkg: module + "/cmd/" + program,
		stamp: "-X " + module + "/version.Version=v2.3.7"}
}

// targets lists every program by the name that Binary takes.
func targets() map[string]target {
	all := map[string]target{
		"coredns": {module: components + "coredns", pkg: "."},
		"flanneld": {module: components + "flannel", pkg: "github.com/flannel-io/flannel",
			cgo: true, stamp: flannelStamp},
		"flannel-cni": {module: components + "flannel-cni",
			pkg: "github.com/containernetworking/plugins/plugins/meta/flannel"},
		"weaver":           weave("weaver"),
		"weaveutil":        weave("weaveutil"),
		"weave-kube-utils": weave("kube-utils"),
		"weave-npc":        weave("weave-npc"),
		"kube-router": {module: components + "kube-router",
			pkg: "github.com/cloudnativelabs/kube-router/cmd/kube-router", stamp: kubeRouterStamp},
		"cilium-says": {module: components + "cilium", pkg: "."},
		"helm": {module: "test/chart", pkg: "helm.sh/helm/v3/cmd/helm",
			stamp: "-X helm.sh/helm/v3/internal/version.version=v3.21.4"},
		"gobgp":  {module: components + "gobgp", pkg: "github.com/osrg/gobgp/v4/cmd/gobgp"},
		"gobgpd": {module: components + "gobgp", pkg: "github.com/osrg/gobgp/v4/cmd/gobgpd"},

		"workload":     {module: "lab", pkg: "./cmd/workload", ownCode: true},
		"pause":        {module: "lab", pkg: "./cmd/pause", ownCode: true},
		"kindnet":      {module: "lab", pkg: "./cmd/kindnet", ownCode: true},
		"calico-entry": {module: "lab", pkg: "./cmd/calico-entry", ownCode: true},

		"theseus":            {module: ".", pkg: "./cmd/theseus", ownCode: true},
		"theseus-agent":      {module: ".", pkg: "./cmd/theseus-agent", ownCode: true},
		"theseus-controller": {module: ".", pkg: "./cmd/theseus-controller", ownCode: true},
		"swarm":              {module: ".", pkg: "./test/swarm", ownCode: true},
	}
	for _, program := range RuntimePrograms(Runtimes()[0]) {
		all[program] = containerd(program)
	}
	for _, version := range KubernetesVersions() {
		all[Kube(version)] = kube(version)
	}
	maps.Copy(all, ciliumPrograms())
	for _, version := range CalicoVersions() {
		for program, t := range calicoPrograms(version) {
			all[Calico(version, program)] = t
		}
	}
	return all
}

// CalicoVersions lists the versions of Calico that can be built, the default first.
func CalicoVersions() []string { return []string{"v3.31.0", "v3.30.1", "v3.28.5"} }

// Calico is the name of a program of Calico, such as "calico-node", at one of those versions.
func Calico(version, program string) string {
	if version == CalicoVersions()[0] {
		return program
	}
	return program + "-" + version
}

// CalicoComponent is the component that pins a version of Calico, the first of several.
func CalicoComponent(version string) string {
	version, _, _ = strings.Cut(version, ",")
	if version == "" {
		version = CalicoVersions()[0]
	}
	return Calico(version, "calico")
}

// calicoPrograms are Calico's at a version.
func calicoPrograms(version string) map[string]target {
	program := func(pkg, stamp string) target {
		return target{module: components + CalicoComponent(version), pkg: calico + pkg, stamp: stamp}
	}
	stamp := "-X github.com/projectcalico/calico/pkg/buildinfo.Version=" + version
	typha := program("/typha/cmd/calico-typha", stamp)
	if version != "v3.28.5" {
		typha.patched = typhaPatch()
	}
	return map[string]target{
		"calico-cni":              program("/cni-plugin/cmd/calico", stamp),
		"calico-cni-install":      program("/cni-plugin/cmd/install", "-X main.VERSION="+version),
		"calico-node":             program("/node/cmd/calico-node", stamp),
		"calico-kube-controllers": program("/kube-controllers/cmd/kube-controllers", stamp),
		"calico-check-status":     program("/kube-controllers/cmd/check-status", ""),
		"calico-wrapper":          program("/kube-controllers/cmd/wrapper", ""), // not in v3.28
		"calico-typha":            typha,
	}
}

// kube is Kubernetes at a version: the default's go.mod is the module's own, another's is named for it.
func kube(version string) target {
	t := target{module: components + "kubernetes", pkg: ".", stamp: kubeStamp(version)}
	if version != KubernetesVersions()[0] {
		t.modfile = version + ".mod"
	}
	return t
}

// weave is a program of Weave Net, which is the only network whose source has to be changed.
func weave(program string) target {
	return target{
		module: components + "weave", pkg: weaveModule + "/prog/" + program,
		patched: weavePatch(), cgo: true, stamp: weaveStamp,
	}
}

// kubeStamp sets the version that Kubernetes reports; without it every component would report
// v0.0.0-master and kubectl would warn about the skew.
func kubeStamp(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	major, minor := parts[0], parts[1]
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+pkg+".gitVersion="+version,
			"-X "+pkg+".gitMajor="+major,
			"-X "+pkg+".gitMinor="+minor)
	}
	return strings.Join(flags, " ")
}

// args are the arguments of go build that writes to out. Apart from out, they are the same for
// everyone, so that one build cache serves all.
func (t target) args(out string) []string {
	args := []string{
		"build", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-ldflags", strings.TrimSpace("-s -w " + t.stamp), "-o", out, t.pkg,
	}
	if t.tags != "" {
		args = slices.Insert(args, 1, "-tags="+t.tags)
	}
	if t.modfile != "" {
		args = slices.Insert(args, 1, "-modfile="+t.modfile)
	}
	return args
}

// requirements are the go.mod and go.sum that the program is built with.
func (t target) requirements(dir string) (mod, sum string) {
	name := t.modfile
	if name == "" {
		name = "go.mod"
	}
	mod = filepath.Join(dir, name)
	return mod, strings.TrimSuffix(mod, ".mod") + ".sum"
}

// env are the environment variables that affect the result of go build.
func (t target) env() []string {
	if t.cgo {
		return []string{"CGO_ENABLED=1"}
	}
	return []string{"CGO_ENABLED=0"}
}
