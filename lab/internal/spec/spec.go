// Package spec is the description of one lab: which slot of the fabric it has, how many nodes,
// which networks and binaries. It is plain data, written once by `up` and read by every process of
// the lab, and it owns the addressing plan, so that no other package computes addresses.
package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
)

// MaxLabs is how many labs can live side by side on one fabric.
const MaxLabs = 8

// MaxNodes is how many nodes a lab can have: the pod range is a /20 and a node takes a /24.
const MaxNodes = 16

// Lab describes one lab. All paths are absolute paths of the host.
type Lab struct {
	Name       string // at most six letters and digits: it is part of interface names
	Index      int    // slot on the fabric, 0 to MaxLabs-1
	Nodes      int    // number of nodes, 1 to MaxNodes, with those that were removed: no number is used twice
	Removed    []int  // numbers of nodes that were removed
	Network    string // the CNI of the pods: one of network.Names
	Policy     string // an extra policy agent, or empty
	Kubernetes string // version, v1.36.3
	// version of Calico where it is not the default: one of build.CalicoVersions, and after commas those whose images
	// nodes hold too
	Calico     string
	Runtime    string   // container runtime of the nodes: one of build.Runtimes
	ConfDir    string   // where containerd reads CNI configurations; empty means DefaultConfDir
	BinDir     string   // where it searches CNI plugins; empty means DefaultBinDir
	Values     []string // values of the network's chart, each as `helm --set` takes it
	ProxyMode  string   // kube-proxy's mode: iptables, nftables, or NoProxy
	DiskMiB    int      // size of each node's root in MiB
	Dir        string   // state directory of this lab
	LabBinary  string   // this program
	KubeBinary string   // Kubernetes and etcd as one binary
	Template   string   // containerd's directory as every node has it from the start
	Images     []Image  // what every node imports at its first start beyond the template
	RelayPort  int      // port on the host's loopback that reaches the API server

	Programs map[string]string // paths of the runtime's programs by their names; empty where nodes run this machine's
}

// The folders of CNI configurations and plugins that containerd reads by default.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultBinDir  = "/opt/cni/bin"
)

// CNIDirs are the folders of CNI configurations and plugins.
func (l Lab) CNIDirs() (conf, bin string) {
	return cmp.Or(l.ConfDir, DefaultConfDir), cmp.Or(l.BinDir, DefaultBinDir)
}

// folder reports whether a folder of CNI files can be made on a node: a clean absolute path below another folder, of
// characters that manifests and scripts take as they are.
func folder(name string) bool {
	return name == "" || path.Clean(name) == name && folderPattern.MatchString(name)
}

var folderPattern = regexp.MustCompile(`^(/[A-Za-z0-9._-]+){2,}$`)

// NoProxy is the mode of a kube-proxy that does not run.
const NoProxy = "none"

// Image is an image archive on the host.
type Image struct {
	Name string // reference as manifests have it
	Tar  string // path of a docker or OCI archive
}

// File is a file placed in a node's root before anything runs there.
type File struct {
	Path    string
	Mode    uint32
	Content []byte
}

// MaxName is how long a lab's name may be: names of links are made of it, which have 15 letters.
const MaxName = 6

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9]{0,5}$`)

// Validate reports the first thing that cannot be built as described.
func (l Lab) Validate() error {
	switch {
	case !namePattern.MatchString(l.Name):
		return fmt.Errorf("lab name %q is not 1 to 6 lower-case letters and digits", l.Name)
	case l.Index < 0 || l.Index >= MaxLabs:
		return fmt.Errorf("lab index %d is not 0 to %d", l.Index, MaxLabs-1)
	case l.Nodes < 1 || l.Nodes > MaxNodes:
		return fmt.Errorf("%d nodes: a lab has 1 to %d", l.Nodes, MaxNodes)
	case !folder(l.ConfDir) || !folder(l.BinDir):
		return fmt.Errorf("the folders %q and %q: a folder of CNI files is an absolute path of two or more parts",
			l.ConfDir, l.BinDir)
	case (l.ConfDir != "" || l.BinDir != "") && l.Network == "weave":
		return fmt.Errorf("the network %s writes to %s and %s alone", l.Network, DefaultConfDir, DefaultBinDir)
	case l.ProxyMode != "iptables" && l.ProxyMode != "nftables" && l.ProxyMode != NoProxy:
		return fmt.Errorf("proxy mode %q is none of iptables, nftables and none", l.ProxyMode)
	case l.ProxyMode == NoProxy && l.Network != "cilium" && l.Network != "none":
		return fmt.Errorf("the network %s does not replace kube-proxy: without one, no Service works", l.Network)
	case len(l.Values) > 0 && l.Network != "cilium":
		return fmt.Errorf("the network %s has no chart whose values could be set", l.Network)
	}
	return nil
}

// Cgroup is the lab's cgroup in every hierarchy, relative to that of the process that made the lab.
func (l Lab) Cgroup() string { return "theseus-lab-" + l.Name }

// NodeName is the name of node n, which counts from 1.
func (l Lab) NodeName(n int) string { return fmt.Sprintf("%s-node-%d", l.Name, n) }

// Numbers are those of the nodes that the lab has, in order.
func (l Lab) Numbers() []int {
	var numbers []int
	for n := 1; n <= l.Nodes; n++ {
		if !slices.Contains(l.Removed, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// NodeNumber is the inverse of NodeName; it also takes the bare number. It reports whether the lab has such a node.
func (l Lab) NodeNumber(name string) (int, bool) {
	for _, n := range l.Numbers() {
		if name == l.NodeName(n) || name == fmt.Sprint(n) || name == fmt.Sprintf("node-%d", n) {
			return n, true
		}
	}
	return 0, false
}

// NodeIP is the address of node n on the fabric.
func (l Lab) NodeIP(n int) netip.Addr { return addr(18, 8*l.Index, 10+n) }

// ControlPlaneIP is the address of the API server on the fabric.
func (l Lab) ControlPlaneIP() netip.Addr { return addr(18, 8*l.Index, 10) }

// GatewayIP is the fabric bridge's own address: the default route of this lab's nodes. It forwards nothing.
func (l Lab) GatewayIP() netip.Addr { return addr(18, 8*l.Index, 1) }

// FabricBits is the prefix length of the fabric, the same for all labs so that they reach one another.
const FabricBits = 18

// ServiceCIDR is the range of cluster IPs.
func (l Lab) ServiceCIDR() netip.Prefix { return netip.PrefixFrom(addr(18, 64+8*l.Index, 0), 21) }

// KubernetesServiceIP is the cluster IP of the API server: the first of the range.
func (l Lab) KubernetesServiceIP() netip.Addr { return addr(18, 64+8*l.Index, 1) }

// DNSIP is the cluster IP of CoreDNS.
func (l Lab) DNSIP() netip.Addr { return addr(18, 64+8*l.Index, 10) }

// PodCIDR is the range of the first pod network; node n owns its n-th /24.
func (l Lab) PodCIDR() netip.Prefix { return netip.PrefixFrom(addr(19, 32*l.Index, 0), 20) }

// NewPodCIDR is the room left for a second pod network.
func (l Lab) NewPodCIDR() netip.Prefix { return netip.PrefixFrom(addr(19, 32*l.Index+16, 0), 20) }

// AllPods covers both pod networks: what kube-proxy takes for inside.
func (l Lab) AllPods() netip.Prefix { return netip.PrefixFrom(addr(19, 32*l.Index, 0), 19) }

// NodePodCIDR is the pod range of node n in the first network.
func (l Lab) NodePodCIDR(n int) netip.Prefix {
	return netip.PrefixFrom(addr(19, 32*l.Index+n-1, 0), 24)
}

// APIServer is the URL of the API server inside the fabric.
func (l Lab) APIServer() string { return fmt.Sprintf("https://%s:6443", l.ControlPlaneIP()) }

// APIEndpoint is where the API server listens inside the fabric.
func (l Lab) APIEndpoint() netip.AddrPort { return netip.AddrPortFrom(l.ControlPlaneIP(), 6443) }

// HostAPIServer is the URL of the API server for programs on the host.
func (l Lab) HostAPIServer() string { return fmt.Sprintf("https://127.0.0.1:%d", l.RelayPort) }

func addr(b, c, d int) netip.Addr { return netip.AddrFrom4([4]byte{198, byte(b), byte(c), byte(d)}) }
