// Package cilium is the driver of Cilium as its Helm chart deploys it (releases 1.12 to 1.20): the DaemonSet cilium, its settings
// in the ConfigMap cilium-config, and settings of individual nodes in CiliumNodeConfigs. The facts come from the project's
// publications and from runs in the lab, where it was also joined to another network by hand (docs/networks.md#cilium). Checks and
// rollouts of single flags use them, but Theseus makes no plan from or to Cilium.
package cilium

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names of Cilium's parts.
const (
	group      = "cilium.io"
	agentName  = "cilium"
	container  = "cilium-agent"
	configName = "cilium-config"
	// secretsName is the namespace for copies of Secrets that its proxy serves, in the charts of newer releases.
	secretsName = "cilium-secrets"
	rbac        = "rbac.authorization.k8s.io/v1"
	// confDir is the mount path of the folder of CNI configurations in the agent's container.
	confDir     = "/host/etc/cni/net.d/"
	defaultConf = "05-cilium.conflist"
	// installScript writes the CNI configuration in releases before 1.14, as the agent starts.
	installScript = "/cni-install.sh"
)

// untried says why Theseus makes no plan.
const untried = "Theseus does not change the network of a cluster from or to Cilium yet: in the lab, Cilium was joined to another one by hand only, " +
	"and some of what that needs (docs/networks.md#cilium) is not built"

// tables are Cilium's routing tables for packets to and from its proxy (pkg/datapath/linux/linux_defaults); 200 is for IPsec.
var tables = []int{2004, 2005}

const tableIPsec = 200

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "cilium" }

// NeverComes implements cni.Outgoing. Only checks use the result of Install.
func (Driver) NeverComes() *cni.Refusal {
	return &cni.Refusal{Message: untried, Hint: "docs/networks.md says what was run and what was not; " + cni.Elsewhere}
}

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	if agent := agentIn(snapshot); agent != nil {
		return describe(snapshot, agent)
	}
	config := snapshot.ConfigMap("kube-system", configName)
	nodes := snapshot.OtherOf(group, "CiliumNode")
	problem := ""
	switch {
	case config != nil:
		problem = "ConfigMap kube-system/" + configName + " is there, but no DaemonSet runs Cilium: it was removed, or only half installed"
	case len(nodes) > 0:
		problem = "CiliumNode " + nodes[0].GetName() + " is there, but no DaemonSet runs Cilium: it was removed, or only half installed"
	default:
		return nil
	}
	s := read(config)
	return &cni.Installation{
		CNI:          "cilium",
		Agent:        step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: agentName},
		Selector:     "k8s-app=" + agentName,
		PodCIDRs:     s.pools(),
		Capabilities: s.capabilities(),
		Problems:     []string{problem},
		Untried:      untried,
	}
}

// Residue implements cni.Driver. Programs that Cilium attaches to the node's own interfaces end with the links that are pinned below
// /sys/fs/bpf/cilium, on kernels with TCX (Linux 6.6 and later); on older kernels they stay. /run/cilium/cgroupv2 is a view of all cgroups
// of the machine, which must be unmounted before /run/cilium is deleted. Nothing does that yet, which is one reason why Theseus makes no plan.
func (Driver) Residue(found *cni.Installation) step.Residue {
	conf := found.Capabilities.ConfName
	return step.Residue{
		Links:       found.Capabilities.HostLinks,
		Chains:      []string{"CILIUM_*", "OLD_CILIUM_*"},
		IPSets:      []string{"cilium_*"},
		Routes:      found.PodCIDRs,
		ConfFiles:   slices.Compact([]string{conf, conf + cni.StagedSuffix, "05-cilium.conf"}),
		Binaries:    []string{"cilium-cni"},
		Paths:       []string{"/run/cilium", "/var/lib/cilium", "/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals/cilium_*", "/etc/sysctl.d/99-zzz-override_cilium.conf"},
		Annotations: []string{"network.cilium.io/*", "io.cilium.network.*"},
		Taints:      []string{"node.cilium.io/agent-not-ready"},
	}
}
