package joint

import (
	"github.com/theseus-cni/theseus/internal/step"
)

// Evicted says how pods are evicted.
const Evicted = "Pods are evicted within their PodDisruptionBudgets, one at a time per workload. The next pod goes " +
	"when the workload is fully ready again."

// Move evicts the pods of some nodes of a wave, so that they are recreated; from and to name the networks. It does not
// wait for terminating pods, because both networks still carry their traffic; only after the very last node it waits
// for all pods that are still terminating. The actions in then come before the gate.
func (b *Builder) Move(wave Wave, nodes []string, from, to string, lastOfWave, lastWave bool, then ...step.Action) {
	pods := 0
	for _, node := range nodes {
		pods += len(b.Outlook.PerNode[node])
	}
	names := List(nodes)
	s := step.Step{
		ID: wave.Name + "/" + nodes[0] + "/move", Group: wave.Name, Does: "move",
		Title: "Move the pods of " + names + " to " + to,
		Why:   Evicted,
		Wave:  wave.Name,
		Actions: OnEach(nodes, func(node string) step.Action {
			evict := Evict(node, from, b.Join.Old, pods)
			step.Edit(&evict, func(do *step.Evict) { do.Pods.LeaveEnding = true })
			return evict
		}),
		Gate: b.Gate(to+" carries the pods of "+names, lastOfWave),
	}
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	for _, node := range nodes {
		s.Before = append(s.Before, ProbePodReady(node, "new"))
		s.After = append(s.After, step.Condition{Is: step.NoPods{Node: node, CIDRs: b.Join.Old, LeaveEnding: true}})
	}
	s.Before = append(s.Before, b.Introduced()...)
	switch {
	case lastOfWave && lastWave:
		s.Why += " At the end, Theseus waits for the last terminating pods."
		s.Actions = append(s.Actions, OnEach(b.Nodes(), func(node string) step.Action {
			rest := Evict(node, from, b.Join.Old, 0)
			rest.Title = "wait until no pod of " + node + " is left on " + from
			return rest
		})...)
		s.After = []step.Condition{{Is: step.NoPods{CIDRs: b.Join.Old}}}
		s.Gate.Title = "all pods are on " + to
	case lastOfWave:
		s.Gate.Title = "all pods of " + wave.Name + " are on " + to
	}
	s.Actions = append(s.Actions, then...)
	b.Add(s)
}
