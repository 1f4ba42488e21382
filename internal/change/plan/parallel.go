package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// parallel says how many nodes a plan changes at once, and what is at risk then; nothing where that is as in a small
// cluster, or it changes no nodes at once.
func parallel(snapshot *cluster.Snapshot, p *Plan, pods map[string][]estimate.Pod) kind.Parallel {
	limits := joint.LimitsOf(snapshot, p.Change)
	if limits.Most == step.FewAtOnce && limits.Domains == nil && p.Change.MaxParallel == 0 {
		return kind.Parallel{}
	}
	found := kind.Parallel{Nodes: limits.Most, Risks: map[string]kind.Risk{}}
	if limits.Domains != nil {
		found.Label, found.Domains = joint.DomainLabel(p.Change.DomainLabel), map[string][]string{}
		for _, node := range p.Cluster.Nodes {
			domain := limits.Domains[node]
			found.Domains[domain] = append(found.Domains[domain], node)
		}
	}
	follow, all, largest := verify.NewAbreast(p), owners(pods), 0
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, group := range follow.Next(s) {
			largest = max(largest, len(group))
			if s.Wave != "" {
				found.Risks[s.Wave] = found.Risks[s.Wave].Larger(risk(group, pods, all))
			}
		}
	}
	if largest < 2 && p.Change.MaxParallel == 0 {
		return kind.Parallel{}
	}
	return found
}

// owners counts the pods of each workload.
func owners(pods map[string][]estimate.Pod) map[cluster.Owner]int {
	count := map[cluster.Owner]int{}
	for _, some := range pods {
		for _, pod := range some {
			count[pod.Owner]++
		}
	}
	return count
}

// risk is what a fault of some nodes can hit. Of workloads with equal shares, the one with the most pods counts, then
// the first by name.
func risk(nodes []string, pods map[string][]estimate.Pod, all map[cluster.Owner]int) kind.Risk {
	here, r := map[cluster.Owner]int{}, kind.Risk{Nodes: len(nodes)}
	for _, node := range nodes {
		r.Pods += len(pods[node])
		for _, pod := range pods[node] {
			here[pod.Owner]++
		}
	}
	for owner, n := range here {
		name, of := owner.Kind+" "+owner.Namespace+"/"+owner.Name, all[owner]
		if more := n*r.Of - r.Share*of; of > 1 &&
			(r.Of == 0 || more > 0 || more == 0 && (of > r.Of || of == r.Of && name < r.Workload)) {
			r.Workload, r.Share, r.Of = name, n, of
		}
	}
	return r
}

// atOnce is the line about all waves: how many nodes are changed at once, and what the worst fault of a group would
// hit.
func atOnce(p *Plan) string {
	if p.Parallel.Nodes == 0 {
		return ""
	}
	worst := p.Parallel.Worst()
	text := fmt.Sprintf("Pods move, or agents restart, on at most %s at once",
		cluster.Count(cmp.Or(worst.Nodes, p.Parallel.Nodes), "node"))
	if n := len(p.Parallel.Domains); n > 0 {
		text += fmt.Sprintf(", all of one of %d failure domains (%s)", n, p.Parallel.Label)
	}
	if worst.Pods > 0 {
		text += ". The worst fault of a group would hit " + hit(worst)
	}
	return text + ".\n"
}

// hit says what is at risk.
func hit(r kind.Risk) string {
	text := fmt.Sprintf("%s with %s", cluster.Count(r.Nodes, "node"), cluster.Count(r.Pods, "pod"))
	if r.Of > 0 {
		text += fmt.Sprintf(", among them %d of the %d pods of %s", r.Share, r.Of, r.Workload)
	}
	return text
}

// atOnceIn is the end of the line about a wave, which names its failure domain.
func atOnceIn(p *Plan, wave kind.Wave, domains map[string]string) string {
	if p.Parallel.Risks[wave.Name].Pods == 0 {
		return ""
	}
	text := "; at once " + hit(p.Parallel.Risks[wave.Name])
	var in []string
	seen := map[string]bool{}
	for _, node := range wave.Nodes {
		if domain := domains[node]; domains != nil && !seen[domain] {
			seen[domain] = true
			if domain == "" {
				domain = "none"
			}
			in = append(in, domain)
		}
	}
	if len(in) > 0 {
		text += "; failure domain " + strings.Join(in, ", ")
	}
	return text
}
