// Package machine is a node of the lab from inside: a set of namespaces (net, mount, uts, ipc, pid,
// cgroup) with a root of its own, whose process 1 is this program. The outer process starts it; it
// builds its root, configures its wire, and then runs containerd, the kubelet and kube-proxy and
// restarts them when they end. Killing process 1 is the power failure of a node: every process of the
// machine ends at once and only its disk remains.
package machine

import (
	"net/netip"

	"github.com/theseus-cni/theseus/lab/internal/cgroup"
	"github.com/theseus-cni/theseus/lab/internal/fabric"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// Config is a machine's configuration at its start. Paths are the host's unless noted otherwise.
type Config struct {
	Name        string
	Addr        netip.Prefix // on the fabric
	Routes      []fabric.Route
	Hierarchies []cgroup.Hierarchy
	Root        string // empty directory where the machine's root is assembled
	Disk        string // a file system that outlives the machine's power cuts: all that it writes
	Containerd  string // as Disk, but able to carry overlay mounts itself
	Logs        string // the machine's /var/log/theseus-lab
	LabBinary   string
	KubeBinary  string
	Programs    map[string]string // further programs by their names
	Images      []spec.Image
	Files       []spec.File // paths inside the machine
	ConfDir     string      // where containerd reads CNI configurations, inside the machine
	BinDir      string      // and plugins
	First       bool        // the first start: wait for the Node object before the kubelet starts
	APIServer   string      // URL

	WithoutProxy bool // no kube-proxy runs
}

// Paths inside a machine.
const (
	runDir     = "/run/theseus-lab"                // pid files, image archives, the configuration
	logDir     = "/var/log/theseus-lab"            // a file per component
	binDir     = "/usr/local/bin"                  // kube and its names, theseus-lab
	configFile = runDir + "/machine.json"          // the Config for the second stage
	Socket     = "/run/containerd/containerd.sock" // Socket is containerd's
)

// private lists directories that a machine has of its own, initially empty, instead of the host's.
func private() []string {
	return []string{
		"/etc/cni", "/opt/cni", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/cni",
		"/var/lib/calico", "/var/lib/kube-router", "/var/lib/etcd", "/var/log", "/root", "/home", "/mnt", "/srv",
	}
}

// sysctls lists kernel settings that are not per namespace and that the kubelet and Cilium's agent insist on: the
// machine sees files that already have the wanted values, and the host's stay unchanged. A kernel may lack some.
func sysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",

		"kernel/unprivileged_bpf_disabled": "1", // the kernel does not take this one back until it starts again
		"kernel/timer_migration":           "0",
	}
}
