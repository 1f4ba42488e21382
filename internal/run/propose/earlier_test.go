package propose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// planned is a plan, made with what was learnt.
func planned(t *testing.T, learnt *estimate.Learnt) *plan.Plan {
	t.Helper()
	in := Input{Snapshot: cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		Manifest: cnitest.Fixture(t, "calico-manifest.yaml"),
		Change: v1alpha1.ChangeSpec{To: "calico", PodCIDR: "10.96.0.0/16", Strategy: "recreate",
			AgentImage: "registry.example.com/agent:1"}}
	in.Options, in.Snapshot.UID = Options(in.Change, noon), "here"
	checked, err := Check(in)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Plan(checked, in.Change, plan.Options{Version: "v1", Now: noon, Learnt: learnt})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// journalOf is the journal of a run in which every part takes as long as the function says; edit may change it before
// it is chained.
func journalOf(t *testing.T, p *plan.Plan, takes func(estimate.Part) time.Duration,
	edit func([]engine.Record) []engine.Record) []engine.Record {
	t.Helper()
	start, err := json.Marshal(engine.Start{Plan: p.Hash, Theseus: p.Theseus, Steps: len(p.Steps)})
	if err != nil {
		t.Fatal(err)
	}
	records, now := []engine.Record{{Event: engine.Started, Data: start, At: noon}}, noon
	add := func(r engine.Record) { r.At = now; records = append(records, r) }
	for i, parts := range estimate.Parts(p.Steps, len(p.Cluster.Nodes), nil) {
		s, n := &p.Steps[i], 0
		add(engine.Record{Event: engine.StepBegan, Step: s.ID})
		for _, part := range parts {
			if part.Kind == "gate" {
				add(engine.Record{Event: engine.GateAsked, Step: s.ID})
				now = now.Add(takes(part))
				add(engine.Record{Event: engine.GateAnswer, Step: s.ID, Verdict: &engine.Verdict{Pass: true}})
				continue
			}
			from := n
			for n++; n < len(s.Actions) && s.Actions[n].Together; n++ {
			}
			for _, a := range s.Actions[from:n] {
				add(engine.Record{Event: engine.Intended, Step: s.ID, Action: a.ID})
			}
			now = now.Add(takes(part))
			for _, a := range s.Actions[from:n] {
				add(engine.Record{Event: engine.Acted, Step: s.ID, Action: a.ID, Result: engine.ResultDone})
			}
		}
		add(engine.Record{Event: engine.StepDone, Step: s.ID})
	}
	add(engine.Record{Event: engine.Finished, Result: engine.ResultDone})
	if edit != nil {
		records = edit(records)
	}
	head := p.Hash
	for i := range records {
		records[i].Seq = i + 1
		if head, err = engine.Link(head, records[i]); err != nil {
			t.Fatal(err)
		}
		records[i].Chain = head
	}
	return records
}

// thrice takes three times as long as the table says, for pods that no journal names.
func thrice(p estimate.Part) time.Duration { return 3 * p.Takes() }

// TestLearn: a plan made after a run that took three times as long says more, and on what it stands; the estimates of
// a run as the lab's table has it stay.
func TestLearn(t *testing.T) {
	first := planned(t, nil)
	for name, test := range map[string]struct {
		takes    func(estimate.Part) time.Duration
		edit     func([]engine.Record) []engine.Record
		from, to float64 // of the estimate
	}{
		"as the table":  {estimate.Part.Takes, nil, 0.99, 1.01},
		"slower":        {thrice, nil, 1.3, 3},
		"a part undone": {thrice, undone, 1.0001, 3},
		"paused in every step": {thrice, func(records []engine.Record) []engine.Record {
			var all []engine.Record
			for _, r := range records {
				if r.Event == engine.GateAsked {
					all = append(all, engine.Record{Event: engine.Paused, At: r.At},
						engine.Record{Event: engine.Resumed, At: r.At})
				}
				all = append(all, r)
			}
			return all
		}, 1, 2.9},
	} {
		learnt := &estimate.Learnt{}
		if err := Learn(learnt, first, journalOf(t, first, test.takes, test.edit)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		second := planned(t, learnt)
		ratio := float64(second.Estimate) / float64(first.Estimate)
		if ratio < test.from || ratio > test.to {
			t.Errorf("%s: the estimate was %s, and is %s (%.2f)", name, first.Estimate.About(),
				second.Estimate.About(), ratio)
		}
		if !slices.Equal(second.EstimatedFrom, []string{first.Name}) || second.Hash == first.Hash ||
			!strings.Contains(plan.Runbook(second), "(estimated from 1 earlier run of this cluster)") {
			t.Errorf("%s: the plan does not say on what it stands: %v", name, second.EstimatedFrom)
		}
	}
	if first.EstimatedFrom != nil || !strings.Contains(plan.Runbook(first), "(estimated from lab runs)") {
		t.Error("the first plan does not stand on the lab")
	}
}

// undone ends the run after half of its records, with a rollback in which the clock runs on for a day.
func undone(records []engine.Record) []engine.Record {
	half := slices.IndexFunc(records, func(r engine.Record) bool { return r.Event == engine.StepDone })
	half += 1 + slices.IndexFunc(records[half+1:], func(r engine.Record) bool { return r.Event == engine.StepDone })
	records = records[:half+1]
	var back []engine.Record
	seen := map[string]bool{}
	for i := len(records) - 1; i > 0; i-- {
		if id := records[i].Step; !seen[id] {
			seen[id] = true
			back = append(back, engine.Record{Event: engine.StepUndone, Step: id})
		}
	}
	at := records[half].At.Add(24 * time.Hour)
	records = append(records, engine.Record{Event: engine.RollingBack, Result: engine.ResultAsked})
	records = append(append(records, back...), engine.Record{Event: engine.Finished, Result: engine.ResultRolledBack})
	for i := half + 1; i < len(records); i++ {
		records[i].At = at
	}
	return records
}

// TestLearnNot: runs that say nothing of the next one are left out, each with its reason.
func TestLearnNot(t *testing.T) {
	p := planned(t, nil)
	whole := journalOf(t, p, thrice, nil)
	for name, test := range map[string]struct {
		change func(p *plan.Plan, records []engine.Record) []engine.Record
		says   string
	}{
		"an edited record": {func(_ *plan.Plan, records []engine.Record) []engine.Record {
			records[7].At = records[7].At.Add(time.Hour)
			return records
		}, "does not follow from the record before it"},
		"a lost record": {func(_ *plan.Plan, records []engine.Record) []engine.Record {
			return slices.Delete(records, 7, 8)
		}, "does not follow from the record before it"},
		"no record": {func(*plan.Plan, []engine.Record) []engine.Record { return nil },
			"its journal belongs to another plan"},
		"another plan": {func(p *plan.Plan, records []engine.Record) []engine.Record {
			p.Hash = "0000"
			return records
		}, "its journal belongs to another plan"},
		"not ended": {func(_ *plan.Plan, records []engine.Record) []engine.Record {
			return records[:len(records)-1]
		}, "it has not ended"},
		"no step": {func(p *plan.Plan, _ []engine.Record) []engine.Record {
			return journalOf(t, p, thrice, func(records []engine.Record) []engine.Record {
				return []engine.Record{records[0], {Event: engine.RollingBack, Result: engine.ResultAsked},
					{Event: engine.Finished, Result: engine.ResultRolledBack}}
			})
		}, "it completed no step"},
	} {
		with, records := *p, slices.Clone(whole)
		records = test.change(&with, records)
		learnt := &estimate.Learnt{}
		if err := Learn(learnt, &with, records); err == nil ||
			!strings.Contains(err.Error(), test.says) || len(learnt.Runs) != 0 {
			t.Errorf("%s: %v, runs %v", name, err, learnt.Runs)
		}
	}
}
