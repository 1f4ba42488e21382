package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	paths "github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// Build computes the report. It never fails: the verdict names what is missing.
func Build(in Input) Model {
	h := read(in.Plan, in.Records)
	if h.run.Outcome == Measuring && in.At.After(h.run.End) {
		h.run.End = in.At
		h.run.Millis = h.run.End.Sub(h.run.Begin).Milliseconds()
	}
	all := account(in.Paths, in.Reports)
	all.Leave(in.Left)
	m := Model{
		APIVersion: v1alpha1.APIVersion, Kind: Kind, MadeAt: in.At,
		Change: change(in.Plan, h), Limit: limit(in.Plan),
		Gaps:  h.gaps(all),
		Cells: cells(all), Classes: classes(all), Nodes: nodes(in, h, all),
		Workloads: workloads(in.Workloads), Moves: moves(in.Plan, in.Records), Traffic: slices.Clone(in.Traffic),
		Load:  load(in.Load),
		Gates: h.gates, Residue: residue(in.InventoriesBefore, in.InventoriesAfter), Journal: h.journal, BGP: in.BGP,
		PartRestarts: partRestarts(in.Reports), history: h,
		compared: in.Plan != nil && in.Plan.LossyBefore(), keeps: in.Plan != nil && in.Plan.Section() != nil,
	}
	m.Residue.Rules = in.Plan != nil && in.Plan.MovesRules()
	m.Incidents, m.Adopted = incidents(m.Gaps), adopted(in.Plan, m.Moves)
	m.Moments = moments(in, m.Gaps)
	m.Steps, m.Groups, m.Run = h.steps, h.groups(), h.run
	m.Run.Measured = measuredSpans(all)
	m.NewPods, m.Samples = newPods(in), sampledPairs(in)
	m.Elsewhere = elsewhere(in, m.Run.End)
	m.Totals = totals(in, &m, all)
	m.Verdict = judge(in, &m, all, h)
	m.Moments = m.judged(m.Moments)
	return m
}

// JSON is the whole model, indented, with a newline at its end.
func JSON(m Model) ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("report as JSON: %w", err)
	}
	return append(data, '\n'), nil
}

func change(p *plan.Plan, h *history) Change {
	c := Change{By: h.by, Theseus: h.theseus, PlanHash: h.planned}
	if p == nil {
		return c
	}
	c.Name, c.Strategy, c.Reason = p.Name, p.Strategy, p.Reason
	c.Flag = p.Setting()
	c.Source, c.Target = p.Ends()
	c.Cluster, c.Kubernetes = p.Cluster.UID, p.Cluster.Kubernetes
	if c.PlanHash == "" {
		c.PlanHash = p.Hash
	}
	if c.Theseus == "" {
		c.Theseus = p.Theseus
	}
	for _, f := range p.Findings {
		if f.Accepted != "" {
			c.Accepted = append(c.Accepted, Accepted{f.ID, f.Message, f.Accepted})
		}
	}
	return c
}

// limit is the longest gap that any gate after the baseline allows, in ms.
func limit(p *plan.Plan) float64 {
	if p == nil {
		return 0
	}
	longest := float64(p.Change.MaxGapMillis)
	for i := range p.Steps {
		if gate := p.Steps[i].Gate; gate != nil && !gate.Baseline {
			longest = max(longest, millis(time.Duration(gate.MaxGap)))
		}
	}
	return longest
}

func workloads(given []WorkloadOutcome) []WorkloadOutcome {
	list := slices.Clone(given)
	slices.SortFunc(list, func(a, b WorkloadOutcome) int {
		return slices.Compare([]string{a.Namespace, a.Kind, a.Name}, []string{b.Namespace, b.Kind, b.Name})
	})
	return list
}

func measuredSpans(all loss.Account) []Span {
	var spans []Span
	for _, path := range all {
		for _, result := range path.Results {
			spans = append(spans, Span{result.Since, result.Last})
		}
	}
	return unite(spans)
}

// leftOut is how many planned paths of each class a guard has left out, since they never answered. A note names them.
// A path between two nodes that joined counts once.
func leftOut(in Input) map[string]int {
	out := map[string]int{}
	if in.Plan == nil || !in.Plan.Foreign() {
		return out
	}
	r := result.Of(in.Plan, in.Records)
	for _, one := range slices.Concat(r.Silent, r.JoinedSilent()) {
		out[one.Class] += one.Paths - one.Shared
	}
	return out
}

// unmeasured is how many planned paths have no result, apart from those that the guard left out: only paths that a
// cluster may lack can be among these.
func unmeasured(in Input, results map[string]bool) (n int) {
	answers := func(id string) bool { return results[id] }
	out, left := leftOut(in), in.Paths
	if len(out) > 0 {
		var silent []paths.Silence
		left, silent = paths.Silent(in.Paths, answers)
		for _, one := range silent {
			n += max(0, one.Paths-out[one.Class])
		}
	}
	for i := range left {
		if !answers(left[i].ID) {
			n++
		}
	}
	return n
}

func totals(in Input, m *Model, all loss.Account) Totals {
	t := Totals{Nodes: len(m.Nodes), Gaps: len(m.Gaps)}
	for _, node := range m.Nodes {
		if node.State == StepDone {
			t.NodesSwitched++
		}
	}
	for _, w := range m.Workloads {
		t.Pods += w.Pods
		t.Evicted += w.Evicted
		t.Restarts += w.Restarts()
	}
	results := map[string]bool{}
	for _, path := range all {
		t.path(path)
		results[path.ID] = true
	}
	t.Unmeasured = unmeasured(in, results)
	t.ProbeGapMillis = all.Sum().LongestMillis
	for _, client := range m.Traffic {
		t.Requests += client.Requests
		t.Failed += client.Failed
		t.Leaked += client.Leaked
		t.LongestGapMillis = max(t.LongestGapMillis, client.LongestGapMillis)
	}
	t.LongestGapMillis = max(t.LongestGapMillis, t.ProbeGapMillis)
	return t
}

func (t *Totals) path(p *loss.PathAccount) {
	if p.Denied {
		t.Denied++
		t.DeniedSent += p.Sent
		t.Leaked += p.Leaked
		return
	}
	t.Paths++
	t.Sent += p.Sent
	t.Lost += p.Lost
	t.Excused += p.Excused
	if p.Class == paths.ClassOutside && p.Sent > 0 {
		t.OutsidePaths++
		t.OutsideSent += p.Sent
		t.OutsideLost += p.Lost
	}
}
