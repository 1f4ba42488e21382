package preflight

import (
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/preflight/check/agent"
	"github.com/theseus-cni/theseus/internal/preflight/check/api"
	"github.com/theseus-cni/theseus/internal/preflight/check/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check/calico"
	"github.com/theseus-cni/theseus/internal/preflight/check/cidr"
	"github.com/theseus-cni/theseus/internal/preflight/check/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check/felix"
	"github.com/theseus-cni/theseus/internal/preflight/check/gitops"
	"github.com/theseus-cni/theseus/internal/preflight/check/ipam"
	"github.com/theseus-cni/theseus/internal/preflight/check/kubeproxy"
	"github.com/theseus-cni/theseus/internal/preflight/check/labels"
	"github.com/theseus-cni/theseus/internal/preflight/check/load"
	"github.com/theseus-cni/theseus/internal/preflight/check/mtu"
	"github.com/theseus-cni/theseus/internal/preflight/check/node"
	"github.com/theseus-cni/theseus/internal/preflight/check/pdb"
	"github.com/theseus-cni/theseus/internal/preflight/check/policy"
	"github.com/theseus-cni/theseus/internal/preflight/check/taints"
	"github.com/theseus-cni/theseus/internal/preflight/check/typha"
	"github.com/theseus-cni/theseus/internal/preflight/check/vxlan"
	"github.com/theseus-cni/theseus/internal/preflight/check/webhook"
	"github.com/theseus-cni/theseus/internal/preflight/check/workload"
)

// All returns the catalogue, sorted by ID.
func All() []check.Check {
	return []check.Check{
		agent.Image(),
		agent.OneNode(),
		api.Aggregated(),
		api.Certificates(),
		api.Removed(),
		api.Rights(),
		bgp.ClusterID(),
		bgp.NotStarted(),
		bgp.Partition(),
		bgp.PeerSelectorEmpty(),
		bgp.SessionsDown(),
		bgp.SessionsReset(),
		bgp.SingleReflector(),
		calico.Operator(),
		calico.Unowned(),
		cidr.Family(),
		cidr.Masquerade(),
		cidr.Overlap(),
		cni.Autodetection(),
		cni.Clash(),
		cni.ConfPresent(),
		cni.Folders(),
		cni.HalfWay(),
		cni.Leftover(),
		cni.Never(),
		cni.Traces(),
		cni.Unknown(),
		felix.EnvOverrides(),
		felix.InvalidValue(),
		felix.KubeProxyMode(),
		felix.ShadowedConfig(),
		gitops.Owner(),
		ipam.Exhaustion(),
		ipam.StaleHandles(),
		kubeproxy.ClusterCIDR(),
		labels.NodeNamed(),
		labels.RemovedInUse(),
		load.Conntrack(),
		load.Drops(),
		load.Felix(),
		load.Softirq(),
		load.Weave(),
		mtu.Path(),
		mtu.TooBig(),
		node.Capacity(),
		node.ClockSkew(),
		node.Forwarding(),
		node.ImageAbsent(),
		node.IPTablesMixed(),
		node.Kernel(),
		node.LinkManagers(),
		node.NotReady(),
		node.Ports(),
		node.Versions(),
		pdb.Blocks(),
		policy.AgentSharesTables(),
		policy.KnownDefect(),
		policy.VerdictChanges(),
		taints.RemovedInUse(),
		typha.Skew(),
		vxlan.Clash(),
		vxlan.Untracked(),
		webhook.Deadlock(),
		workload.BarePod(),
		workload.GracePeriod(),
		workload.HostNetwork(),
		workload.HostPort(),
		workload.LocalStorage(),
		workload.Monitoring(),
		workload.NetworkAnnotations(),
		workload.Readiness(),
		workload.SingleReplica(),
		workload.Unready(),
	}
}

// Named returns the check with this ID, for a command that runs one check. It panics if there is none.
func Named(id string) []check.Check {
	chosen := Options{Only: []string{id}}.Choose(All())
	if len(chosen) != 1 {
		panic("there is no check " + id)
	}
	return chosen
}
