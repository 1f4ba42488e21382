package propose

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// Learn takes what the parts of an earlier run took, for the estimate of a plan for the same cluster by the same
// version of Theseus. It returns why the run says nothing about such a plan: its journal is damaged, for example.
func Learn(from *estimate.Learnt, p *plan.Plan, records []engine.Record) error {
	if _, err := engine.Chained(records); err != nil {
		return err
	}
	state, err := engine.Replay(records)
	if err != nil {
		return err
	}
	switch {
	case state.Start.Plan != p.Hash:
		return errors.New("its journal belongs to another plan")
	case !state.Over():
		return errors.New("it has not ended")
	}
	parts := timed(p, records)
	if len(parts) == 0 {
		return errors.New("it completed no step")
	}
	from.Add(p.Name, parts)
	return nil
}

// span is when a step did what.
type span struct {
	began, answered time.Time
	acted           map[string]time.Time // by action
	epoch           int64
	// cut is set if the step was not done in one go: the run was paused in it, or another process continued it.
	cut, done bool
}

// spans are the steps of a run, without the way back.
func spans(records []engine.Record) map[string]*span {
	steps, now := map[string]*span{}, (*span)(nil)
	for _, r := range records {
		switch r.Event {
		case engine.StepBegan:
			now = &span{began: r.At, acted: map[string]time.Time{}, epoch: r.Epoch}
			steps[r.Step] = now
			continue
		case engine.RollingBack, engine.TakingBack:
			now = nil // what follows is the way back
		}
		if now == nil {
			continue
		}
		now.cut = now.cut || r.Event == engine.Paused || r.Event == engine.Resumed || r.Epoch != now.epoch
		switch r.Event {
		case engine.Acted:
			if r.Result == engine.ResultDone && !r.Undo {
				now.acted[r.Action] = r.At
			}
		case engine.GateAnswer:
			if r.Verdict != nil && r.Verdict.Pass {
				now.answered = r.At
			}
		case engine.StepDone:
			now.done, now = true, nil
		}
	}
	return steps
}

// timed are the parts of the steps that were done in one go. A part ends with its last action, and begins where the one
// before it ended. Parts of which an action found nothing to do are left out.
func timed(p *plan.Plan, records []engine.Record) (parts []estimate.Timed) {
	steps := spans(records)
	for i, all := range estimate.Parts(p.Steps, len(p.Cluster.Nodes), moved(p.Steps, records)) {
		s := &p.Steps[i]
		did := steps[s.ID]
		if did == nil || !did.done || did.cut {
			continue
		}
		before, n := did.began, 0
		for _, part := range all {
			end, whole := did.answered, !did.answered.IsZero()
			if part.Kind != "gate" {
				for first := true; n < len(s.Actions) && (first || s.Actions[n].Together); n, first = n+1, false {
					at, acted := did.acted[s.Actions[n].ID]
					if whole = acted && (first || whole); first || at.After(end) {
						end = at
					}
				}
			}
			if whole && !end.Before(before) {
				parts = append(parts, estimate.Timed{Part: part, Took: end.Sub(before)})
			}
			if end.After(before) {
				before = end
			}
		}
	}
	return parts
}

// moved are the pods of each node that a run moved, by the answers of its actions.
func moved(steps []step.Step, records []engine.Record) map[string][]estimate.Pod {
	of := map[string][]estimate.Pod{} // by action
	for _, r := range records {
		var did struct {
			Pods []struct{ State, Namespace, Name, Workload string }
		}
		if r.Event != engine.Acted || r.Undo || json.Unmarshal(r.Data, &did) != nil {
			continue
		}
		for _, pod := range did.Pods {
			if owner := strings.Split(pod.Workload, "/"); len(owner) == 3 { // evicted
				of[r.Action] = append(of[r.Action], estimate.Pod{Name: pod.Name,
					Owner: cluster.Owner{Kind: owner[0], Namespace: owner[1], Name: owner[2]}})
			} else if pod.State == "moved" { // adopted
				of[r.Action] = append(of[r.Action],
					estimate.Pod{Name: pod.Name, Owner: cluster.Owner{Namespace: pod.Namespace}})
			}
		}
	}
	pods := map[string][]estimate.Pod{}
	for i := range steps {
		for _, a := range steps[i].Actions {
			evict, evicts := a.Do.(step.Evict)
			switch {
			case evicts && (evict.Pods.LeaveEnding || len(evict.Pods.Names) > 0):
				// the others wait for those that are ending
				pods[evict.Pods.Node] = append(pods[evict.Pods.Node], of[a.ID]...)
			case a.Op() == step.OpNode && a.Verb() == step.VerbAdopt && len(of[a.ID]) > len(pods[a.Node()]):
				pods[a.Node()] = of[a.ID]
			}
		}
	}
	return pods
}
