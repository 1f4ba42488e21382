package run

import (
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// Cost says in one line what a plan that guards a change installs, how much it sends, and which gaps it sees. It
// follows from the plan's own actions: the objects that they create, and the paths that they measure.
func Cost(p *plan.Plan) string {
	nodes, pods, more := p.Cluster.Nodes, 0, ""
	var rate path.Rate
	for i := range p.Steps {
		for _, action := range p.Steps[i].Actions {
			switch do := action.Do.(type) {
			case step.Probe:
				if asked := path.RateOf(MeasuredBy(p).Foreseen(nodes, do.Paths)); asked.All > rate.All {
					rate = asked
				}
			case step.NewPods:
				more = "; and new pods, at most two at once on a node: one or two on each before the change, as many " +
					"after it"
				if every, meanwhile := p.NewPods(); meanwhile {
					more += fmt.Sprintf(", and every %s one on each of %s while the command runs", every,
						cluster.Count(min(len(nodes), result.NewPodsRound), "node"))
				}
			case step.Sample:
				more += sampling(p)
			case step.Apply:
				switch do.Object.GetKind() {
				case "Pod":
					pods++
				case "DaemonSet":
					pods += len(nodes)
				}
			}
		}
	}
	return fmt.Sprintf("cost: %s on %s in namespace %s, removed at the end; %s%s", cluster.Count(pods, "pod"),
		cluster.Count(len(nodes), "node"), v1alpha1.Namespace, rate, more)
}

// sampling says what connecting the pairs of a plan costs.
func sampling(p *plan.Plan) string {
	denied := 0
	for _, pair := range p.Pairs() {
		if pair.Denied {
			denied++
		}
	}
	meanwhile := ", "
	if every, while := p.NewPods(); while {
		meanwhile = fmt.Sprintf(", every %s while the command runs and ", every)
	}
	return fmt.Sprintf("; and %s between pods of yours (%d allowed and %d denied by policy), opened from within the "+
		"pods' network namespaces and closed at once, one at a time, without data: before the change%swhile the "+
		"network is watched after it",
		cluster.Count(len(p.Pairs()), "connection"), len(p.Pairs())-denied, denied, meanwhile)
}
