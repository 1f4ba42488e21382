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
		return kind.Refuse("let this user read it", "whether BGP carries the routes here is not known: %s", in.Unknown)
	}
	want := &step.Sessions{}
	speaks := false
	for _, six := range []bool{false, true} {
		graph := bgp.Build(in, six)
		if graph == nil {
			return kind.Refuse("give nodes a few reflectors as their peers, rather than one another",
				"the BGPPeers multiply to more than %d peerings, which no gate can hold", bgp.MaxPeerings)
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
