package kind

import (
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// Parallel says how many nodes the steps of a plan change at once, and what that puts at risk. A plan without it
// changes step.FewAtOnce nodes at once at most.
type Parallel struct {
	// Nodes is the bound: no step changes more nodes at once.
	Nodes int `json:"nodes"`
	// Label names failure domains, and Domains are the nodes of each; none if all nodes are in one. Nodes that are
	// changed at once are of one domain.
	Label   string              `json:"label,omitempty"`
	Domains map[string][]string `json:"domains,omitempty"`
	// Risks are what is changed at once, by wave: the most of all its groups. A wave that moves no pods has none.
	Risks map[string]Risk `json:"risks,omitempty"`
}

// Risk is what a fault of one group of nodes can hit.
type Risk struct {
	// Nodes are changed at once, with so many pods.
	Nodes int `json:"nodes"`
	Pods  int `json:"pods"`
	// Workload has the largest share of its pods on nodes of one group, Share of Of: among workloads with several pods.
	Workload string `json:"workload,omitempty"`
	Share    int    `json:"share,omitempty"`
	Of       int    `json:"of,omitempty"`
}

// AtOnce is the largest number of nodes that a step may change at once.
func (p *Plan) AtOnce() int {
	if p.Parallel.Nodes == 0 {
		return step.FewAtOnce
	}
	return p.Parallel.Nodes
}

// Domains are the failure domains by node; nil if the plan knows of one only.
func (p *Plan) Domains() map[string]string {
	if len(p.Parallel.Domains) == 0 {
		return nil
	}
	of := map[string]string{}
	for domain, nodes := range p.Parallel.Domains {
		for _, node := range nodes {
			of[node] = domain
		}
	}
	return of
}

// Larger has the larger number of nodes, of pods, and the larger share of a workload of two risks.
func (r Risk) Larger(other Risk) Risk {
	worse := Risk{Nodes: max(r.Nodes, other.Nodes), Pods: max(r.Pods, other.Pods),
		Workload: r.Workload, Share: r.Share, Of: r.Of}
	if r.Of == 0 || other.Share*r.Of > r.Share*other.Of {
		worse.Workload, worse.Share, worse.Of = other.Workload, other.Share, other.Of
	}
	return worse
}

// Worst is the largest risk of all waves.
func (p Parallel) Worst() Risk {
	var worst Risk
	for _, name := range slices.Sorted(maps.Keys(p.Risks)) {
		worst = worst.Larger(p.Risks[name])
	}
	return worst
}
