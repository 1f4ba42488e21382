package preflight

import (
	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/check/agent"
	"github.com/theseus-cni/theseus/internal/check/api"
	"github.com/theseus-cni/theseus/internal/check/bgp"
	"github.com/theseus-cni/theseus/internal/check/cidr"
	"github.com/theseus-cni/theseus/internal/check/cni"
	"github.com/theseus-cni/theseus/internal/check/kubeproxy"
	"github.com/theseus-cni/theseus/internal/check/labels"
	"github.com/theseus-cni/theseus/internal/check/mtu"
	"github.com/theseus-cni/theseus/internal/check/node"
	"github.com/theseus-cni/theseus/internal/check/pdb"
	"github.com/theseus-cni/theseus/internal/check/policy"
	"github.com/theseus-cni/theseus/internal/check/taints"
	"github.com/theseus-cni/theseus/internal/check/vxlan"
	"github.com/theseus-cni/theseus/internal/check/workload"
)

// All is the catalogue, by id.
func All() []check.Check {
	return []check.Check{
		agent.Image(),
		api.Rights(),
		bgp.ClusterID(),
		bgp.NotStarted(),
		bgp.Partition(),
		bgp.PeerSelectorEmpty(),
		bgp.SessionsDown(),
		bgp.SingleReflector(),
		cidr.Overlap(),
		cni.Autodetection(),
		cni.ConfPresent(),
		cni.Leftover(),
		kubeproxy.ClusterCIDR(),
		labels.RemovedInUse(),
		mtu.TooBig(),
		node.NotReady(),
		pdb.Blocks(),
		policy.VerdictChanges(),
		taints.RemovedInUse(),
		vxlan.Clash(),
		workload.BarePod(),
		workload.HostPort(),
		workload.SingleReplica(),
	}
}
