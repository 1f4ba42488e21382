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
	return fmt.Sprintf("Nodes come by %q and go by %q, which the program that applies the plan runs on its own machine, without a shell.\n"+
		"A node that is removed does not come back: %s/remove is the point of no return. What fails after it stops for a person, both\n"+
		"networks joined and every pod on one of them; what failed is mended and `theseus resume` goes on.\n",
		p.Surge.AddHook, p.Surge.RemoveHook, p.Surge.Waves[0].Name)
}

// Reach adds the user's commands.
func Reach(p *kind.Plan, r *kind.Reach) {
	if p.Surge != nil {
		r.Command(p.Surge.AddHook)
		r.Command(p.Surge.RemoveHook)
	}
}
