package plan

import (
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/step"
)

// holdSessions gives the gates of a plan the network's BGP to hold, where it carries routes: all of them when the
// network stays, and else those before the source goes.
func holdSessions(snapshot *cluster.Snapshot, p *Plan) error {
	if snapshot.DaemonSet(p.Source.Agent.Namespace, p.Source.Agent.Name) == nil || !p.Source.Capabilities.Sessions {
		return nil
	}
	in := bgp.FromSnapshot(snapshot)
	if in.Unknown != "" {
		return kind.Refuse("give this user the permission to read it", "Theseus cannot tell whether BGP "+
			"distributes the "+
			"routes: %s", in.Unknown)
	}
	want := &step.Sessions{}
	speaks := false
	for _, six := range []bool{false, true} {
		graph := bgp.Build(in, six)
		if graph == nil {
			return kind.Refuse("let nodes peer with a few reflectors instead of with each other",
				"the BGPPeers make more than %d peerings, too many for a gate", bgp.MaxPeerings)
		}
		speaks = speaks || in.Started() && len(graph.Speakers()) > 1
		want.Unreached += graph.Routes().Missing()
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.NoReturn && p.Source.CNI != p.Target.CNI {
			return nil
		}
		if speaks && s.Gate != nil {
			s.Gate.Sessions = want
		}
	}
	return nil
}
