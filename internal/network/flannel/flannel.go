// Package flannel is the driver of flannel as its own manifest and its Helm chart deploy it: one DaemonSet that reads
// its network from the ConfigMap kube-flannel-cfg and each node's range from Node.spec.podCIDR, often together with a
// kube-router that only enforces NetworkPolicy. As a target, it is supported only with VXLAN.
package flannel

import (
	"path"
	"slices"
	"strings"

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
	if nodes := embeddedOn(snapshot); len(nodes) > 0 {
		return embedded(snapshot, nodes)
	}
	return nil
}

// embedded is the flannel of k3s, which has no object in the cluster.
func embedded(snapshot *cluster.Snapshot, nodes []string) *cni.Installation {
	found := leftover("", "")
	found.Problems = nil
	found.As, found.PodCIDRs = "flannel inside k3s", cni.NodeRanges(snapshot)
	found.Untried = "flannel runs inside the process of k3s (" + cluster.Count(len(nodes), "node") + ": " +
		strings.Join(nodes[:min(len(nodes), 3)], ", ") + "), where no object of the cluster controls it: Theseus can " +
		"neither stop it node by node nor remove it"
	found.Instead = cni.Elsewhere + "; to replace it in place, k3s itself has to turn it off (flannel-backend: none " +
		"and disable-network-policy: true in /etc/rancher/k3s/config.yaml of each server), and pods lose their " +
		"network meanwhile: theseus guard start before, theseus guard stop after, measure for how long"
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
