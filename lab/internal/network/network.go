package network

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Params are the facts about a cluster that manifests depend on.
type Params struct {
	PodCIDR     netip.Prefix // addresses of the network's pods
	NodePodCIDR netip.Prefix // the part of them that one node hands out; NodeFiles only
	ServiceCIDR netip.Prefix // cluster addresses of Services
	DNS         netip.Addr   // cluster address of the DNS Service
	Calico      string       // component of the Calico that is wanted; "calico" where empty
	Kubernetes  string       // version of Kubernetes that a chart is rendered for; Helm's own where empty
	Values      []string     // values of the network's chart, each as `helm --set` takes it

	ConfDir, BinDir string // where nodes have CNI configurations and plugins; the usual ones where empty
	Applied         bool   // the lab applies the manifest itself, so it has to be complete

	WithoutProxy bool           // no kube-proxy runs
	APIServer    netip.AddrPort // of the nodes; WithoutProxy only

	// Modules returns the directory that holds the source of a Go module, at the version that a
	// component pins: build.Cache.ModuleDir does.
	Modules func(component, module string) (dir string, err error)
	// Program returns the path of a program that a manifest is made with: build.Cache.Binary does.
	Program func(name string) (path string, err error)
}

// File is a file of a node's disk.
type File struct {
	Path    string // absolute
	Mode    fs.FileMode
	Content []byte
}

// Names lists the networks that a cluster can start on.
func Names() []string {
	return []string{"flannel", "calico", CalicoBGP, CalicoTypha, Cilium, "weave", "bridge", Kindnet, KubeRouter, Canal,
		"none"}
}

// Usual lists those that most tests need. Cilium is built on demand alone: that takes 15 minutes of CPU time.
func Usual() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return name == CalicoTypha || name == Cilium })
}

// Manifest returns the documents to apply for a network, or for one of the parts "coredns",
// Firewall, "flannel-alone" (without that), Peers, Operator, OperatorCRDs, OperatorObjects, and
// "flannel-migration" and "flannel-migration-job", which are how Calico itself takes a cluster over from flannel. It is
// empty for networks that live on the nodes' disks alone.
func Manifest(network string, params Params) ([]byte, error) {
	text, err := manifest(network, params)
	return inFolders(text, params), err
}

// hostFolder is a volume's folder of CNI files on the node.
var hostFolder = regexp.MustCompile(`(?m)^( +path: +)(/etc/cni/net\.d|/opt/cni/bin)$`)

// installerConf is the first variable of Calico's installer.
var installerConf = regexp.MustCompile(`(?m)^( +)- name: CNI_CONF_NAME$`)

// inFolders writes the nodes' folders of CNI files into a manifest, as a user has to.
func inFolders(text []byte, params Params) []byte {
	if params.ConfDir != "" && params.Applied { // Theseus does this itself
		text = installerConf.ReplaceAll(text, []byte("${1}- name: CNI_NET_DIR\n${1}  value: "+params.ConfDir+
			"\n${1}- name: CNI_CONF_NAME"))
	}
	return hostFolder.ReplaceAllFunc(text, func(line []byte) []byte {
		parts := hostFolder.FindSubmatch(line)
		folder := cmp.Or(params.ConfDir, string(parts[2]))
		if string(parts[2]) == spec.DefaultBinDir {
			folder = cmp.Or(params.BinDir, spec.DefaultBinDir)
		}
		return append(parts[1], folder...)
	})
}

func manifest(network string, params Params) ([]byte, error) {
	switch network {
	case "flannel":
		return flannelWithPolicy(params)
	case "flannel-alone":
		return flannel(params)
	case "calico":
		return calico(params)
	case Cilium:
		return cilium(params)
	case "weave":
		return weave(params)
	case "flannel-migration":
		return calicoAfterFlannel(params)
	case "flannel-migration-job":
		return calicoUpstream(params, "flannel-migration/migration-job.yaml", nil)
	case CalicoBGP:
		return calicoBGP(params)
	case CalicoTypha:
		return calicoTypha(params)
	case Operator:
		return calicoOperator(params)
	case OperatorCRDs, OperatorObjects:
		return calicoUpstream(params, network+".yaml", nil)
	case Peers:
		return own(Peers + ".yaml")
	case "coredns":
		return coreDNS(params)
	case Firewall:
		return firewall(params)
	case KubeRouter:
		return kubeRouter(params)
	case Kindnet:
		return kindnet(params)
	case Canal:
		return canal(params)
	case "bridge", "none":
		return nil, nil
	}
	return nil, unknown(network)
}

// NodeFiles returns the files that a node's disk holds before its kubelet starts.
func NodeFiles(network string, params Params) []File {
	if network == "bridge" {
		return bridge(params)
	}
	return nil
}

func unknown(network string) error {
	return fmt.Errorf("there is no network %q", network)
}
