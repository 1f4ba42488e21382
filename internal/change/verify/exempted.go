package verify

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// Exempting says whether an action keeps connections off a port on a node, or no longer does, and nothing else. Where
// two networks are joined that is part of another action.
func Exempting(a *step.Action) bool { return exempting(a, step.Reader[step.JoinArgs]{}) }

// exempting is Exempting of many actions, whose arguments are read once.
func exempting(a *step.Action, read step.Reader[step.JoinArgs]) bool {
	do, is := a.Do.(step.Node)
	if !is || do.Verb != step.VerbJoin && do.Verb != step.VerbPart {
		return false
	}
	args, err := read.Read(do.Args)
	return err == nil && len(args.Old)+len(args.New) == 0
}

// exempted proves of what is exempting: where a network that exempts a port stays, it comes on every node before
// anything of the network is touched; when measuring is proven, in a step that is gated and whose undo takes it back;
// and before Theseus' agents go it is taken back on every node.
func exempted(p *kind.Plan) kind.Rule {
	section := p.Section()
	stays := section != nil && section.Exempts()
	port := cmp.Or(p.Target.Capabilities.Untracked, p.Source.Capabilities.Untracked)
	exempted, now, measured := map[string]bool{}, map[string]bool{}, false
	read := step.Reader[step.JoinArgs]{}
	pass := func(s *step.Step) error {
		now = map[string]bool{}
		for j := range s.Actions {
			switch a := &s.Actions[j]; {
			case a.Op() == step.OpDelete && a.Ref() == AgentRef() && len(exempted) > 0:
				return fmt.Errorf("the agents are deleted while connections are still kept off a port on %d nodes, "+
					"and only the agents can undo that", len(exempted))
			case stays && port != nil && Foreign(a) && len(exempted) < len(p.Cluster.Nodes):
				return fmt.Errorf("connections are kept off UDP port %d on %d of %d nodes",
					port.Port, len(exempted), len(p.Cluster.Nodes))
			case !exempting(a, read):
			case a.Verb() == step.VerbPart:
				delete(exempted, a.Node())
			default:
				exempted[a.Node()], now[a.Node()] = true, true
			}
		}
		if len(now) > 0 && (!measured || s.Gate == nil) {
			return errors.New("connections are kept off a port before measuring is proven, or without a gate")
		}
		measured = measured || s.Gate != nil && s.Gate.Baseline
		return nil
	}
	undo := func(s *step.Step) error {
		for j := range s.Undo {
			if a := &s.Undo[j]; exempting(a, read) && a.Verb() == step.VerbPart {
				delete(now, a.Node())
			}
		}
		if len(now) > 0 {
			return fmt.Errorf("connections are kept off a port on %d nodes", len(now))
		}
		return nil
	}
	return kind.Rule{Before: pass, Undo: undo}
}
