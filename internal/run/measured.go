package run

import (
	"net"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// headers are what a probe's payload leaves of the MTU to IPv4 and UDP, in bytes.
const headers = 28

// nodesOutside reports whether a network treats the addresses of other nodes like addresses outside of the cluster.
// Cilium knows the nodes and treats them differently.
func nodesOutside(i cni.Installation) bool {
	return slices.Contains([]string{"bridge", "calico", "canal", "flannel", "kindnet", "kube-router", "weave"}, i.CNI)
}

// MeasuredBy says which paths can be measured with the networks of a plan.
func MeasuredBy(p *plan.Plan) kube.Measured {
	enforced := func(i cni.Installation) bool {
		return i.Capabilities.Policy != cni.PolicyNone && i.Capabilities.Policy != "" || i.PolicyAgent != nil
	}
	m := kube.Measured{Compared: slices.ContainsFunc(p.Steps, compares),
		Denied:       map[string]bool{path.Old: enforced(p.Source), path.New: enforced(p.Target)},
		Interval:     time.Duration(p.Change.ProbeIntervalMillis) * time.Millisecond,
		NodesOutside: map[string]bool{path.Old: nodesOutside(p.Source), path.New: nodesOutside(p.Target)}}
	if m.Local, m.HostPorts, m.LocalDNS = p.Local(); m.LocalDNS != "" {
		m.LocalDNS = net.JoinHostPort(m.LocalDNS, "53")
	}
	if p.Change.OutsideRate > 0 {
		m.OutsideEvery = time.Second / time.Duration(p.Change.OutsideRate)
	}
	for _, text := range p.Change.Outside {
		if responder, err := path.ParseResponder(text); err == nil { // the planner has refused others
			m.Outside = append(m.Outside, responder)
		}
	}
	for _, mtu := range []int{p.Source.Capabilities.MTU, p.Target.Capabilities.MTU} {
		if mtu > 0 && (m.FullSize == 0 || mtu-headers < m.FullSize) {
			m.FullSize = mtu - headers
		}
	}
	return m
}
