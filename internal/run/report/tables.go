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
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// tally sums up paths for a row. Worst is over gaps of paths that should answer.
func tally(s loss.Sum) Tally {
	return Tally{Paths: s.Paths, Sent: s.Sent, Lost: s.Lost, Leaked: s.Leaked, Gaps: s.Gaps, Worst: s.LongestMillis}
}

// cells makes the squares of the matrix. Ends are named by node and network, or by class if the
// target is on no node (a Service, DNS, the outside).
func cells(all loss.Account) []Cell {
	byEnds := map[[2]v1alpha1.Endpoint]loss.Account{}
	for _, p := range all {
		source, target := ends(p)
		key := [2]v1alpha1.Endpoint{source, target}
		byEnds[key] = append(byEnds[key], p)
	}
	list := make([]Cell, 0, len(byEnds))
	for between, members := range byEnds {
		list = append(list, Cell{Source: between[0], Target: between[1], Tally: tally(members.Sum())})
	}
	slices.SortFunc(list, func(a, b Cell) int {
		return cmp.Or(compareEnds(a.Source, b.Source), compareEnds(a.Target, b.Target))
	})
	return list
}

func ends(p *loss.PathAccount) (source, target v1alpha1.Endpoint) {
	source = v1alpha1.Endpoint{Node: p.Source.Node, Network: p.Source.Network}
	target = v1alpha1.Endpoint{Node: p.Target.Node, Network: p.Target.Network}
	if target.Node == "" {
		target.Address = p.Class
	}
	return source, target
}

// compareEnds sorts nodes by name, then ends on no node; within a node old, new, host.
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
func classes(all loss.Account) []Class {
	type key struct {
		name   string
		denied bool
	}
	members := map[key]loss.Account{}
	for _, p := range all {
		k := key{p.Class, p.Denied}
		members[k] = append(members[k], p)
	}
	list := make([]Class, 0, len(members))
	for k, paths := range members {
		class := Class{Name: k.name, Denied: k.denied, Tally: tally(paths.Sum())}
		class.figures(paths)
		list = append(list, class)
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Denied != list[j].Denied {
			return list[j].Denied
		}
		return list[i].Name < list[j].Name
	})
	return list
}

// figures computes the quantiles over a class's paths.
func (c *Class) figures(members loss.Account) {
	var gaps []float64
	var medians []int64
	for _, p := range members {
		for _, gap := range p.Gaps {
			gaps = append(gaps, gap.Millis)
		}
		rtt := roundTrips(p)
		if p.Answered > 0 {
			medians = append(medians, rtt[0])
		}
		c.RTTMicros[1], c.RTTMicros[2] = max(c.RTTMicros[1], rtt[1]), max(c.RTTMicros[2], rtt[2])
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
func nodes(in Input, h *history, all loss.Account) []Node {
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
	for name, sum := range all.Nodes() {
		node := get(name)
		node.Tally, node.Excused = tally(sum), sum.Late
		node.Stalls, node.LongestStallMillis = sum.Stalls, sum.LongestStallMillis
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

// came finds the nodes that joined in the course of a change: the journal names them, and their state is that of the
// step that opened them for pods.
func (h *history) came(in Input, get func(string) *Node) {
	if in.Plan == nil {
		return
	}
	wave, opens := map[string]string{}, map[string]string{}
	for _, s := range in.Plan.Steps {
		if s.Does == "open" {
			opens[s.Wave] = s.ID
		}
		for _, action := range s.Actions {
			if do, is := action.Do.(step.Hook); is && do.Verb == step.VerbAdd {
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
			if i, ok := h.index[opens[name]]; ok {
				node.State = h.steps[i].State
			}
		}
	}
}

// fates sets each node's state from the steps in its own wave; the worst state wins.
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
		{"link", r.Links}, {"route", r.Routes}, {"routing rule", r.Rules}, {"iptables chain", r.Chains},
		{"iptables rule", r.RuleComments},
		{"iptables rules on link", r.RuleLinks}, {"iptables rules on ipset", r.RuleSets},
		{"nft table", r.NFTables}, {"ipset", r.IPSets},
		{"CNI configuration", r.ConfFiles}, {"CNI binary", r.Binaries}, {"path", r.Paths},
		{"node annotation", r.Annotations}, {"node label", r.NodeLabels}, {"taint", r.Taints},
		{"network unavailable", r.Farewells},
	}
}
