package cilium

import (
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// The releases whose policy program (bpf/bpf_lxc.c, TAIL_CT_LOOKUP4) looks connections up in a buffer of the CPU that
// it does not clear. v1.16.0 to v1.19.6 clear it. Of releases after lastStale nothing is known.
var firstStale, lastStale = version.MustParseSemantic("v1.20.0"), version.MustParseSemantic("v1.20.2")

// stale is the defect of these releases: for the first packet of a flow the lookup leaves the flag "loopback" as the
// packet before it on that CPU set it. If that packet belonged to a pod that reached itself through a Service, policy
// is not asked. The program has that branch only where it translates Services packet by packet (ENABLE_PER_PACKET_LB);
// IPv6 has the same code.
func (s settings) stale(release string) *cni.Defect {
	v, err := version.ParseSemantic(release)
	if err != nil || v.LessThan(firstStale) || v.GreaterThan(lastStale) || !s.perPacket() {
		return nil
	}
	return &cni.Defect{
		Says: "the first packet of a flow passes a policy that denies it, if the packet before it on that CPU was " +
			"of a pod that reaches itself through a Service",
		Source: "bpf/bpf_lxc.c of v1.20.2, and the lab",
		Fix: "install a release with cilium/cilium pull request 48521, which clears that state; or set " +
			"socketLB.enabled=true in the chart's values, without socketLB.hostNamespaceOnly, sctp.enabled and Envoy " +
			"configurations: connections to Services that pods have open then may end",
	}
}

// perPacket reports whether Services are translated packet by packet, and not, or not only, when a pod connects.
func (s settings) perPacket() bool {
	inSockets := s.on("bpf-lb-sock") || s.replaces()
	return !inSockets || s.on("bpf-lb-sock-hostns-only") || s.on("enable-sctp") || s.on("enable-envoy-config") ||
		s.on("enable-gateway-api") || s.on("enable-ingress-controller")
}
