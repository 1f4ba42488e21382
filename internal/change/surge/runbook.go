package surge

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/kind"
)

// Describe says how nodes come and go in a plan, where they do.
func Describe(p *kind.Plan) string {
	if p.Surge == nil {
		return ""
	}
	return fmt.Sprintf("The program that applies the plan adds nodes with %q and removes them with %q, on its own "+
		"machine and without a shell. The cluster has at most %d nodes meanwhile.\n"+
		"A removed node does not come back: %s/remove is the point of no return. If a step fails after it, Theseus "+
		"stops. Both networks stay\n"+
		"joined, and every pod has a working network. Fix the cause, then continue with `theseus resume`.\n",
		p.Surge.AddHook, p.Surge.RemoveHook, peak(p), p.Surge.Waves[0].Name)
}

// peak is how many nodes there are at most: each wave's nodes come before its former ones go.
func peak(p *kind.Plan) int {
	now := len(p.Cluster.Nodes)
	most := now
	for _, wave := range p.Surge.Waves {
		now += len(wave.New)
		most = max(most, now)
		now -= len(wave.Old)
	}
	return most
}

// Reach adds the user's commands.
func Reach(p *kind.Plan, r *kind.Reach) {
	if p.Surge != nil {
		r.Command(p.Surge.AddHook)
		r.Command(p.Surge.RemoveHook)
	}
}
