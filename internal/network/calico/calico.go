// Package calico is the driver of Calico as its own manifests deploy it (calico.yaml, calico-vxlan.yaml,
// calico-typha.yaml), with the Kubernetes datastore: the DaemonSet calico-node, the ConfigMap calico-config and IPPools
// as custom resources; and of Calico installed by its operator, as far as the operator's own object has the necessary
// settings. Installations with etcd or the BPF data plane are detected and refused.
package calico

import (
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names of Calico's parts.
const (
	agentName  = "calico-node"
	configName = "calico-config"
	typhaName  = "calico-typha"
	// controllersName is the Deployment of the controllers; webhooksName is another Deployment, if the objects are
	// stored with the CRDs of projectcalico.org.
	controllersName = "calico-kube-controllers"
	webhooksName    = "calico-webhooks"
	defaultConf     = "10-calico.conflist"
	poolCIDR        = "CALICO_IPV4POOL_CIDR"
	confNameVar     = "CNI_CONF_NAME"
	confFolderVar   = "CNI_NET_DIR"
)

// Driver implements cni.Driver.
type Driver struct{}

var _ cni.Driver = Driver{}

// Name implements cni.Driver.
func (Driver) Name() string { return "calico" }

// Detect implements cni.Driver.
func (Driver) Detect(snapshot *cluster.Snapshot) *cni.Installation {
	if agent := agentIn(snapshot); agent != nil {
		return describe(snapshot, agent)
	}
	if pools := snapshot.Calico("IPPool"); len(pools) > 0 && !elsewhere(snapshot) {
		found := &cni.Installation{
			CNI:          "calico",
			Agent:        step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: agentName},
			Selector:     "k8s-app=" + agentName,
			Capabilities: capabilities(defaultConf),
			Problems: []string{"IPPool " + pools[0].GetName() + " exists, but no DaemonSet " + agentName +
				": Calico was removed, or is only partly installed"},
		}
		for _, p := range readPools(snapshot) {
			found.PodCIDRs = append(found.PodCIDRs, p.cidr)
		}
		return found
	}
	return nil
}

// vxlanLink is the name of the VXLAN interface on nodes.
const vxlanLink = "vxlan.calico"

// capabilities of Calico over VXLAN with its defaults: VNI 4096 on UDP port 4789.
func capabilities(confName string) cni.Capabilities {
	return cni.Capabilities{
		CIDRSource:        "pool",
		Encapsulation:     "vxlan",
		VNI:               4096,
		Port:              4789,
		Overhead:          50,
		HostLinks:         []string{vxlanLink, "cali*"},
		ConfName:          confName,
		Policy:            cni.PolicyCalico,
		CanRequestAddress: true,
		SwitchedPerNode:   true,
		Sessions:          true,
		// Its notes stay on a pod that has left it.
		Orders: &step.Orders{Network: "Calico", Prefix: "cni.projectcalico.org/",
			Notes: []string{"containerID", "podIP", "podIPs"}},
	}
}

// Residue implements cni.Driver.
func (Driver) Residue(found *cni.Installation) step.Residue {
	conf := found.Capabilities.ConfName
	return step.Residue{
		Links:        []string{"cali*", vxlanLink},
		Chains:       []string{"cali-*"},
		RuleComments: []string{"cali:*"},
		NFTables:     []string{"ip calico", "ip6 calico"},
		IPSets:       []string{"cali40*", "cali60*"},
		Routes:       found.PodCIDRs,
		ConfFiles:    []string{conf, conf + cni.StagedSuffix, "calico-kubeconfig", "calico-tls"},
		Binaries:     []string{"calico", "calico-ipam"},
		Paths: []string{"/var/lib/calico", "/run/calico", "/run/nodeagent", "/var/log/calico",
			cni.Remembered("k8s-pod-network")},
		Annotations: []string{"projectcalico.org/*"},
		Farewells:   []string{"CalicoIsDown"}, // node/pkg/lifecycle/utils/utils.go of projectcalico/calico
	}
}
