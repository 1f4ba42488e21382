package cilium

import (
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// The releases whose endpoint program (bpf/bpf_lxc.c, TAIL_CT_LOOKUP4) stores the result of a conntrack lookup in a
// per-CPU buffer without clearing it first. v1.16.0 to v1.19.6 clear it. Releases after lastStale were not examined.
var firstStale, lastStale = version.MustParseSemantic("v1.20.0"), version.MustParseSemantic("v1.20.2")

// stale is the defect of these releases: a lookup that finds no entry (CT_NEW) leaves ct_state.loopback as an earlier
// packet set it, and ipv4_policy then skips ingress policy. The buffer is not pinned, so each endpoint has its own:
// only pods that connect to themselves through a Service are affected. The egress path takes the flag from the
// packet's own metadata instead. The branch exists only with ENABLE_PER_PACKET_LB; IPv6 has the same code.
func (s settings) stale(release string) *cni.Defect {
	v, err := version.ParseSemantic(release)
	if err != nil || v.LessThan(firstStale) || v.GreaterThan(lastStale) || !s.perPacket() {
		return nil
	}
	return &cni.Defect{
		Says: "a pod that connects to itself through a Service can receive the first packet of a flow that its " +
			"ingress policy denies",
		Source: "bpf/bpf_lxc.c of Cilium v1.20.2 (TAIL_CT_LOOKUP4, ipv4_policy); reproduced in the lab",
		Fix: "set socketLB.enabled=true in the chart's values. This does not help with socketLB.hostNamespaceOnly " +
			"(as for Istio, KubeVirt, Kata and gVisor), sctp.enabled, Gateway API, Ingress or Envoy " +
			"configurations. On a running cluster, open connections from pods to Services may break. Otherwise " +
			"install a release with both cilium/cilium pull requests 48521 and 48300",
	}
}

// perPacket reports whether the agent defines ENABLE_PER_PACKET_LB: Service addresses of pods' traffic are translated
// in packets, not only by socket load balancing. The chart sets enable-envoy-config for Gateway API and Ingress too.
func (s settings) perPacket() bool {
	inSockets := s.on("bpf-lb-sock") || s.replaces()
	return !inSockets || s.on("bpf-lb-sock-hostns-only") || s.on("enable-sctp") || s.on("enable-envoy-config") ||
		s.on("enable-gateway-api") || s.on("enable-ingress-controller")
}
