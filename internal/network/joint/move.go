package joint

import (
	"github.com/theseus-cni/theseus/internal/step"
)

// MovedAtOnce is the number of nodes of a wave whose pods are moved in one step. A run can be paused between two steps.
const MovedAtOnce = 4

// Move evicts the pods of some nodes of a wave, so that they are recreated; from and to name the networks. It does not wait for
// terminating pods, because both networks still carry their traffic; only after the very last node it waits for all pods that
// are still terminating. The actions in then come before the gate.
func (b *Builder) Move(wave Wave, nodes []string, from, to string, lastOfWave, lastWave bool, then ...step.Action) {
	pods := 0
	for _, node := range nodes {
		pods += len(b.Outlook.PerNode[node])
	}
	names := List(nodes)
	s := step.Step{
		ID: wave.Name + "/" + nodes[0] + "/move", Group: wave.Name, Does: "move",
		Title: "Move the pods of " + names + " to " + to,
		Why:   "Pods are evicted within their budgets, of each workload one at a time, and the next goes when the workload is whole again.",
		Wave:  wave.Name,
		Actions: OnEach(nodes, func(node string) step.Action {
			evict := Evict(node, from, b.Join.Old, pods)
			evict.Pods.LeaveEnding = true
			return evict
		}),
		Gate: b.Gate(to+" carries the pods of "+names, lastOfWave),
	}
	if len(nodes) == 1 {
		s.Node = nodes[0]
	}
	for _, node := range nodes {
		s.Before = append(s.Before, ProbePodReady(node, "new"))
		s.After = append(s.After, step.Condition{Kind: step.NoPods, Node: node, CIDRs: b.Join.Old, LeaveEnding: true})
	}
	switch {
	case lastOfWave && lastWave:
		s.Why += " Then the last pods that are ending are waited for."
		s.Actions = append(s.Actions, OnEach(b.Nodes(), func(node string) step.Action {
			rest := Evict(node, from, b.Join.Old, 0)
			rest.Title = "see that no pod is left on " + from + " on " + node
			return rest
		})...)
		s.After = []step.Condition{{Kind: step.NoPods, CIDRs: b.Join.Old}}
		s.Gate.Title = "everything runs on " + to + " and nothing was lost"
	case lastOfWave:
		s.Gate.Title = wave.Name + " is moved and nothing was lost"
	}
	s.Actions = append(s.Actions, then...)
	b.Add(s)
}
