package preflight

import (
	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/check/agent"
	"github.com/theseus-cni/theseus/internal/check/api"
	"github.com/theseus-cni/theseus/internal/check/bgp"
	"github.com/theseus-cni/theseus/internal/check/calico"
	"github.com/theseus-cni/theseus/internal/check/cidr"
	"github.com/theseus-cni/theseus/internal/check/cni"
	"github.com/theseus-cni/theseus/internal/check/felix"
	"github.com/theseus-cni/theseus/internal/check/ipam"
	"github.com/theseus-cni/theseus/internal/check/kubeproxy"
	"github.com/theseus-cni/theseus/internal/check/labels"
	"github.com/theseus-cni/theseus/internal/check/mtu"
	"github.com/theseus-cni/theseus/internal/check/node"
	"github.com/theseus-cni/theseus/internal/check/pdb"
	"github.com/theseus-cni/theseus/internal/check/policy"
	"github.com/theseus-cni/theseus/internal/check/taints"
	"github.com/theseus-cni/theseus/internal/check/typha"
	"github.com/theseus-cni/theseus/internal/check/vxlan"
	"github.com/theseus-cni/theseus/internal/check/webhook"
	"github.com/theseus-cni/theseus/internal/check/workload"
)

// All is the catalogue, by id.
func All() []check.Check {
	return []check.Check{
		agent.Image(),
		api.Aggregated(),
		api.Certificates(),
		api.Removed(),
		api.Rights(),
		bgp.ClusterID(),
		bgp.NotStarted(),
		bgp.Partition(),
		bgp.PeerSelectorEmpty(),
		bgp.SessionsDown(),
		bgp.SingleReflector(),
		calico.Unowned(),
		cidr.Family(),
		cidr.Overlap(),
		cni.Autodetection(),
		cni.ConfPresent(),
		cni.Leftover(),
		felix.EnvOverrides(),
		felix.InvalidValue(),
		felix.KubeProxyMode(),
		ipam.Exhaustion(),
		kubeproxy.ClusterCIDR(),
		labels.RemovedInUse(),
		mtu.TooBig(),
		node.Capacity(),
		node.Forwarding(),
		node.ImageAbsent(),
		node.NotReady(),
		pdb.Blocks(),
		policy.AgentSharesTables(),
		policy.VerdictChanges(),
		taints.RemovedInUse(),
		typha.Skew(),
		vxlan.Clash(),
		webhook.Deadlock(),
		workload.BarePod(),
		workload.GracePeriod(),
		workload.HostPort(),
		workload.LocalStorage(),
		workload.Monitoring(),
		workload.NetworkAnnotations(),
		workload.Readiness(),
		workload.SingleReplica(),
		workload.Unready(),
	}
}
