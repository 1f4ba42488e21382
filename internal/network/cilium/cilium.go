// Package cilium is the driver of Cilium as its Helm chart deploys it (releases 1.12 to 1.20): the DaemonSet cilium,
// its settings in the ConfigMap cilium-config, and settings of individual nodes in CiliumNodeConfigs. The facts come
// from the project's publications and from runs in the lab (docs/networks.md#cilium). As a target it replaces flannel
// with kube-router, and Calico, both over VXLAN; as a source it is not supported.
package cilium

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	// pluginDir is the mount path of the folder of plugins in an init container.
	pluginDir = "/host/opt/cni/bin"
	// installScript writes the CNI configuration in releases before 1.14, as the agent starts.
	installScript = "/cni-install.sh"
)

// untried says why Theseus makes no plan from Cilium.
const untried = "Theseus does not change the network of a cluster from Cilium yet: that was never " +
	"run (docs/networks.md#cilium)"

// untriedFrom says why Theseus makes no plan from a network to Cilium; empty if such a plan was run.
func untriedFrom(source *cni.Installation) string {
	if source == nil {
		return ""
	}
	caps := source.Capabilities
	tunnelled := caps.Encapsulation == "vxlan" && source.Maker == nil
	switch {
	case tunnelled && caps.Policy == cni.PolicyKubernetes && caps.PolicyMarks != 0:
		return ""
	case tunnelled && ownPolicies(source) && caps.PolicyMarks&markMask != 0:
		return fmt.Sprintf("%s marks packets in the bits %#x (iptablesMarkMask or nftablesMarkMask). Cilium uses "+
			"%#x of these bits for its own marks, so each agent would misread the other's", source.Title(),
			caps.PolicyMarks, caps.PolicyMarks&markMask)
	case tunnelled && ownPolicies(source):
		return ""
	}
	return "Theseus changes a cluster to Cilium only from flannel over VXLAN with kube-router, or from Calico over " +
		"VXLAN by its own manifests (docs/networks.md#cilium); a change from " + source.Title() +
		" in this configuration was never run"
}

// ownPolicies reports whether a network other than Cilium reads policies of kinds of its own: that is Calico. That
// its Felix goes with Cilium's agent is read from the source of both.
func ownPolicies(source *cni.Installation) bool {
	policy := source.Capabilities.Policy
	return policy.Own() && policy != cni.PolicyCilium
}

// operatorName is the container and the Deployment of Cilium's operator.
const operatorName = "cilium-operator"

// definitions are the CRDs that the operator creates (releases 1.14 to 1.20, pkg/k8s/apis/cilium.io/client).
var definitions = []string{"ciliumbgpadvertisements", "ciliumbgpclusterconfigs",
	"ciliumbgpnodeconfigoverrides", "ciliumbgpnodeconfigs", "ciliumbgppeerconfigs", "ciliumbgppeeringpolicies",
	"ciliumcidrgroups", "ciliumclusterwideenvoyconfigs", "ciliumclusterwidenetworkpolicies",
	"ciliumdatapathplugins", "ciliumegressgatewaypolicies", "ciliumendpoints", "ciliumendpointslices",
	"ciliumenvoyconfigs", "ciliumexternalworkloads", "ciliumgatewayclassconfigs", "ciliumidentities",
	"ciliuml2announcementpolicies", "ciliumloadbalancerippools", "ciliumlocalredirectpolicies", "ciliumnetworkpolicies",
	"ciliumnodeconfigs", "ciliumnodes", "ciliumpodippools"}

// defines are those that are not in a manifest.
func defines(given []unstructured.Unstructured) []step.Ref {
	var all []step.Ref
	for _, name := range definitions {
		name += "." + group
		if !slices.ContainsFunc(given, func(o unstructured.Unstructured) bool { return o.GetName() == name }) {
			all = append(all,
				step.Ref{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: name})
		}
	}
	return all
}

// undefined refuses a cluster that has CRDs that Cilium creates: a rollback would delete what is in them. Other
// projects have CRDs of the same group, such as Tetragon.
func undefined(defined []string, created []step.Ref) error {
	var found []string
	for _, name := range defined {
		if slices.ContainsFunc(created, func(ref step.Ref) bool { return ref.Name == name }) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return refuse(fmt.Sprintf("the cluster already has %s of Cilium (%s): it was installed before, and a rollback "+
		"would delete the objects in them",
		cluster.Count(len(found), "CRD"), strings.Join(found[:min(len(found), 3)], ", ")),
		"keep the objects that you need in a file, then kubectl delete crd "+strings.Join(found, " "))
}

// Marks that Cilium gives packets (bpf/lib/common.h): the upper 16 bits of one with identity are the identity of its
// sender.
const (
	markMask     = 0xf00
	markIdentity = 0xf00
	markHost     = 0xc00
)

// marks keep Cilium from taking packets of the node for those of strangers where the source's policy agent has accepted
// them before Cilium's own rule is asked (CILIUM_OUTPUT, in a later table). kube-router also takes a part of an
// identity for its own mark. Felix does not: it clears its bits before it reads them (cali-PREROUTING of the table
// raw).
func marks(source *cni.Installation) []step.Mark {
	if source == nil {
		return nil
	}
	caps := source.Capabilities
	sent := step.Mark{Hook: step.Sent, IsNot: []step.Bits{{Value: 0xd00, Mask: markMask},
		{Value: 0xe00, Mask: markMask}, {Value: 0x400, Mask: markMask},
		{Value: 0xa00, Mask: 0xe00}, {Value: 0x800, Mask: 0xe00}}, Set: step.Bits{Value: markHost, Mask: markMask}}
	switch {
	case ownPolicies(source):
		return []step.Mark{sent}
	case caps.PolicyMarks == 0:
		return nil
	}
	return []step.Mark{{Hook: step.Forwarded, Is: []step.Bits{{Value: markIdentity, Mask: markMask}},
		Set: step.Bits{Mask: caps.PolicyMarks}}, sent}
}

// tables are Cilium's routing tables for packets to and from its proxy (pkg/datapath/linux/linux_defaults); 200 is for
// IPsec.
var tables = []int{2004, 2005}

const tableIPsec = 200

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "cilium" }

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
		problem = "ConfigMap kube-system/" + configName +
			" exists, but no DaemonSet runs Cilium: it was removed, or is only partly installed"
	case len(nodes) > 0:
		problem = "CiliumNode " + nodes[0].GetName() +
			" exists, but no DaemonSet runs Cilium: it was removed, or is only partly installed"
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

// Residue implements cni.Driver. Programs that Cilium attaches to the node's own interfaces end with the links that are
// pinned below /sys/fs/bpf/cilium, on kernels with TCX (Linux 6.6 and later); on older kernels they stay.
func (Driver) Residue(found *cni.Installation) step.Residue {
	conf := found.Capabilities.ConfName
	return step.Residue{
		Links:     found.Capabilities.HostLinks,
		Chains:    []string{"CILIUM_*", "OLD_CILIUM_*"},
		IPSets:    []string{"cilium_*"},
		Routes:    found.PodCIDRs,
		ConfFiles: slices.Compact([]string{conf, conf + cni.StagedSuffix, "05-cilium.conf"}),
		Binaries:  []string{"cilium-cni"},
		Paths: []string{"/run/cilium", "/var/lib/cilium", "/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals/cilium_*",
			"/etc/sysctl.d/99-zzz-override_cilium.conf"},
		Annotations: []string{"network.cilium.io/*", "io.cilium.network.*"},
		Taints:      []string{"node.cilium.io/agent-not-ready"},
	}
}
