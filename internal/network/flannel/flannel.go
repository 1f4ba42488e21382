// Package flannel is the driver of flannel as its own manifest and its Helm chart deploy it: one DaemonSet that reads
// its network from the ConfigMap kube-flannel-cfg and each node's range from Node.spec.podCIDR, often together with a
// kube-router that only enforces NetworkPolicy. As a target, it is supported only with VXLAN.
package flannel

import (
	"path"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names that identify flannel's parts.
const (
	annotations = "flannel.alpha.coreos.com/"
	configMap   = "kube-flannel-cfg"
	ownSpace    = "kube-flannel"
	confName    = "10-flannel.conflist"
	network     = "cbr0"                  // to the plugins
	policies    = "kube-network-policies" // an option of flannel's chart: enforces NetworkPolicy in the same pod
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "flannel" }

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	agents := agentsOf(snapshot)
	if len(agents) > 0 {
		return describe(snapshot, agents)
	}
	if config := configOf(snapshot, ownSpace, "kube-system"); config != nil {
		return leftover(config.Namespace, "ConfigMap "+config.Namespace+"/"+config.Name+
			" exists, but no DaemonSet runs flannel: it was removed, or is only partly installed")
	}
	if node := embeddedOn(snapshot); node != "" {
		return embedded(node)
	}
	return nil
}

// embedded is the flannel of k3s, which has no object in the cluster.
func embedded(node string) *cni.Installation {
	found := leftover("", "")
	found.Problems = nil
	found.Untried = "flannel runs inside the process of k3s (node " + node +
		"), where no object of the cluster controls it: Theseus does not change it"
	return found
}

func leftover(namespace, problem string) *cni.Installation {
	pods, _ := readPodConf(nil)
	return &cni.Installation{
		CNI:          "flannel",
		Agent:        step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: namespace, Name: "kube-flannel-ds"},
		Capabilities: capabilities(netConf{Backend: backend{Type: "vxlan"}}, pods.bridge(), confName),
		Problems:     []string{problem},
	}
}

// Residue implements cni.Driver.
func (Driver) Residue(found *cni.Installation) step.Residue {
	data := reservations(network)
	if len(found.Data) > 0 {
		data = found.Data[0]
	}
	residue := step.Residue{
		Links:        slices.Sorted(slices.Values(found.Capabilities.HostLinks)),
		Chains:       []string{"FLANNEL-*"},
		RuleComments: []string{"flanneld masq", "flanneld forward"},
		NFTables:     []string{"ip flannel-ipv4", "ip6 flannel-ipv6"},
		Routes:       found.PodCIDRs,
		ConfFiles: []string{"10-flannel.conf", found.Capabilities.ConfName,
			found.Capabilities.ConfName + cni.StagedSuffix},
		Binaries:    []string{"flannel"},
		Paths:       []string{"/run/flannel", "/var/lib/cni/flannel", data, cni.Remembered(path.Base(data))},
		Annotations: []string{annotations + "*"},
	}
	cni.FirewallResidue(found, &residue)
	return residue
}
