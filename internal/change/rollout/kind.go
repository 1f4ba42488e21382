package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Kind rolls a flag of the network in place out, node by node.
func Kind() kind.Kind {
	return kind.Kind{
		Name:     Name,
		Asked:    func(r *kind.Request) bool { return kind.RollsOut(r.Change) },
		Of:       func(p *kind.Plan) bool { return p.Rollout != nil },
		Make:     propose,
		Possible: func(_ *kind.Request, source *cni.Installation) error { return flagsOn(source) },
		Untried:  true,
		Comes:    kind.Stays,
		Rules:    rules,
		Reach: func(p *kind.Plan, reach *kind.Reach) {
			if p.Rollout.Origin != nil {
				kind.Once(&reach.Uses, "flags of "+p.Rollout.Origin.Source+
					", which gets THESEUS_FLAGS_TOKEN where it is a server")
			}
		},
		Words: kind.Words{
			Summary: func(p *kind.Plan) string {
				return fmt.Sprintf("%s on %s, strategy %s: %s.\n", p.Rollout,
					kind.Named(p.Source), p.Strategy, p.Reason)
			},
			Notes:    notes,
			Chapters: map[string]string{"fold": "Set the value for the whole cluster"},
			Chapter: func(s *step.Step) string {
				if s.Does == "switch" && s.Gate != nil && s.Gate.Compares() {
					return "Switch"
				}
				return ""
			},
		},
	}
}

// notes are what a flag set says about nodes.
func notes(p *kind.Plan) string {
	origin := p.Rollout.Origin
	if origin == nil {
		return ""
	}
	b := &strings.Builder{}
	gets, changes := map[string]int{}, map[string]int{}
	for _, turn := range origin.Turns {
		gets[turn.Value]++
		if turn.Changes() {
			changes[turn.Value]++
		}
	}
	fmt.Fprintf(b, "Values of the flag %s, evaluated for every node when the plan was made (%s) and kept in the "+
		"plan:\n", origin.Flag, p.Flags.Algorithm)
	for _, value := range slices.Sorted(maps.Keys(gets)) {
		fmt.Fprintf(b, "  %s=%s on %d of %d nodes; changed on %d\n",
			p.Rollout.Flag, value, gets[value], len(origin.Turns), changes[value])
	}
	if p.Rollout.Value == "" {
		b.WriteString("Nodes that differ from the cluster's value keep a value of their own. When the flag has the " +
			"same value for all nodes, a later plan makes it the cluster's value.\n")
	}
	return b.String()
}
