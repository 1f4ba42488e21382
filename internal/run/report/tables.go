package report

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// take adds one path to a tally. Worst is over gaps of paths that should answer.
func (t *Tally) take(m *measured) {
	t.Paths++
	t.Sent += m.sent
	t.Lost += m.lost()
	t.Leaked += m.leaked()
	t.Gaps += len(m.gaps)
	for _, gap := range m.gaps {
		if !gap.Denied {
			t.Worst = max(t.Worst, gap.Millis)
		}
	}
}

// cells makes the squares of the matrix. Ends are named by node and network, or by class where the
// target is no node's (a Service, DNS, the outside).
func cells(all []*measured) []Cell {
	byEnds := map[[2]v1alpha1.Endpoint]*Cell{}
	for _, m := range all {
		source, target := ends(m)
		key := [2]v1alpha1.Endpoint{source, target}
		cell := byEnds[key]
		if cell == nil {
			cell = &Cell{Source: source, Target: target}
			byEnds[key] = cell
		}
		cell.take(m)
	}
	list := make([]Cell, 0, len(byEnds))
	for _, cell := range byEnds {
		list = append(list, *cell)
	}
	slices.SortFunc(list, func(a, b Cell) int {
		return cmp.Or(compareEnds(a.Source, b.Source), compareEnds(a.Target, b.Target))
	})
	return list
}

func ends(m *measured) (source, target v1alpha1.Endpoint) {
	source = v1alpha1.Endpoint{Node: m.Source.Node, Network: m.Source.Network}
	target = v1alpha1.Endpoint{Node: m.Target.Node, Network: m.Target.Network}
	if target.Node == "" {
		target.Address = m.Class
	}
	return source, target
}

// compareEnds sorts nodes by name, then what is no node's; within a node old, new, host.
func compareEnds(a, b v1alpha1.Endpoint) int {
	if (a.Node == "") != (b.Node == "") {
		return -cmp.Compare(a.Node, b.Node)
	}
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Address, b.Address),
		cmp.Compare(networkRank(a.Network), networkRank(b.Network)), cmp.Compare(a.Network, b.Network))
}

func networkRank(network string) int {
	if i := slices.Index([]string{"old", "new", "host"}, network); i >= 0 {
		return i
	}
	return 3
}

// classes sums up by class; paths that policy must deny are classes of their own.
func classes(all []*measured) []Class {
	type key struct {
		name   string
		denied bool
	}
	byKey := map[key]*Class{}
	members := map[key][]*measured{}
	for _, m := range all {
		k := key{m.Class, m.Denied}
		if byKey[k] == nil {
			byKey[k] = &Class{Name: m.Class, Denied: m.Denied}
		}
		byKey[k].take(m)
		members[k] = append(members[k], m)
	}
	list := make([]Class, 0, len(byKey))
	for k, class := range byKey {
		class.figures(members[k])
		list = append(list, *class)
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Denied != list[j].Denied {
			return list[j].Denied
		}
		return list[i].Name < list[j].Name
	})
	return list
}

// figures adds the quantiles over a class's paths.
func (c *Class) figures(members []*measured) {
	var gaps []float64
	var medians []int64
	for _, m := range members {
		for _, gap := range m.gaps {
			gaps = append(gaps, gap.Millis)
		}
		if m.answered > 0 {
			medians = append(medians, m.rtt[0])
		}
		c.RTTMicros[1] = max(c.RTTMicros[1], m.rtt[1])
		c.RTTMicros[2] = max(c.RTTMicros[2], m.rtt[2])
	}
	c.P99 = quantile(gaps, 0.99)
	c.RTTMicros[0] = quantile(medians, 0.5)
}

// quantile is the nearest-rank quantile; 0 of nothing.
func quantile[T cmp.Ordered](values []T, q float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
}

// nodes sums up by node: those of the plan, and any other that reported.
func nodes(in Input, h *history, all []*measured) []Node {
	byName := map[string]*Node{}
	get := func(name string) *Node {
		if byName[name] == nil {
			byName[name] = &Node{Name: name, State: StepNotReached}
		}
		return byName[name]
	}
	waves(in.Plan, get)
	h.came(in, get)
	for _, report := range in.Reports {
		get(report.Name).Reported = true
	}
	for _, m := range all {
		tallyNode(m, get)
	}
	for name, inventory := range in.InventoriesBefore {
		get(name).ResidueBefore = inventory.Found.Count()
	}
	for name, inventory := range in.InventoriesAfter {
		node := get(name)
		node.ResidueAfter, node.Inventoried = inventory.Found.Count(), true
	}
	h.fates(byName)
	list := make([]Node, 0, len(byName))
	for _, node := range byName {
		list = append(list, *node)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

func waves(p *plan.Plan, get func(string) *Node) {
	if p == nil {
		return
	}
	for _, name := range p.Cluster.Nodes {
		get(name)
	}
	for _, wave := range p.Waves {
		for _, name := range wave.Nodes {
			get(name).Wave = wave.Name
		}
	}
}

// came finds the nodes that came in the course of a change: the journal says which, and their fate is that of the step
// that opened them for pods.
func (h *history) came(in Input, get func(string) *Node) {
	if in.Plan == nil || in.Plan.Surge == nil {
		return
	}
	wave := map[string]string{}
	for _, s := range in.Plan.Steps {
		for _, action := range s.Actions {
			if action.Op == step.Hook && action.Verb == step.VerbAdd {
				wave[action.ID] = s.Wave
			}
		}
	}
	for _, r := range in.Records {
		var one struct {
			Node string `json:"node"`
		}
		data := r.Data
		if r.Event == engine.Intended {
			data = r.Before
		}
		if name := wave[r.Action]; name != "" && json.Unmarshal(data, &one) == nil && one.Node != "" {
			node := get(one.Node)
			node.Wave = name
			if i, ok := h.index[name+"/open"]; ok {
				node.State = h.steps[i].State
			}
		}
	}
}

// tallyNode counts a path on both its ends, once where they are the same node.
func tallyNode(m *measured, get func(string) *Node) {
	if m.Source.Node != "" {
		node := get(m.Source.Node)
		node.take(m)
		node.Excused += m.excused
		for _, stall := range m.stalls {
			node.Stalls++
			node.LongestStallMillis = max(node.LongestStallMillis, stall.Millis)
		}
	}
	if m.Target.Node != "" && m.Target.Node != m.Source.Node {
		get(m.Target.Node).take(m)
	}
}

// fates tells each node what became of its steps in its own wave; the worst fate wins.
func (h *history) fates(byName map[string]*Node) {
	rank := []State{StepNotReached, StepDone, StepRunning, StepUndone, StepFailed}
	reached, whole := map[string]bool{}, map[string]bool{}
	for i := range h.steps {
		s := &h.steps[i]
		for _, name := range s.Nodes {
			node := byName[name]
			if node == nil || node.Wave == "" || s.Group != node.Wave {
				continue
			}
			if _, seen := whole[name]; !seen {
				whole[name] = true
			}
			whole[name] = whole[name] && s.State != StepNotReached
			reached[name] = reached[name] || s.State != StepNotReached
			if slices.Index(rank, s.State) > slices.Index(rank, node.State) {
				node.State = s.State
			}
			node.Begin, node.End = widen(node.Begin, node.End, s.Begin, h.endOf(s))
		}
	}
	for name, node := range byName {
		if node.State == StepDone && reached[name] && !whole[name] {
			node.State = StepRunning
		}
	}
}

func widen(begin, end, from, to time.Time) (time.Time, time.Time) {
	if from.IsZero() {
		return begin, end
	}
	if begin.IsZero() || from.Before(begin) {
		begin = from
	}
	if to.After(end) {
		end = to
	}
	return begin, end
}

// residueKinds lists a residue as kind and names, in the order in which people look for them.
func residueKinds(r step.Residue) []struct {
	kind  string
	names []string
} {
	return []struct {
		kind  string
		names []string
	}{
		{"link", r.Links}, {"route", r.Routes}, {"iptables chain", r.Chains}, {"iptables rule", r.RuleComments}, {"iptables rules on link", r.RuleLinks},
		{"nft table", r.NFTables}, {"ipset", r.IPSets}, {"CNI configuration", r.ConfFiles}, {"CNI binary", r.Binaries},
		{"path", r.Paths}, {"node annotation", r.Annotations}, {"node label", r.NodeLabels}, {"taint", r.Taints}, {"network unavailable", r.Farewells},
	}
}
