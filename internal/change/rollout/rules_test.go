package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestRulesNaive: of plans, and of plans in which something is missing, doubled or in another place, the rules say what
// rules say that look at all nodes at each step.
func TestRulesNaive(t *testing.T) {
	for name, test := range map[string]struct {
		snapshot *cluster.Snapshot
		change   v1alpha1.ChangeSpec
	}{
		"data plane": {calico(t), v1alpha1.ChangeSpec{Dataplane: "nftables"}},
		"other flag": {calico(t), v1alpha1.ChangeSpec{Flag: "iptablesRefreshInterval=60s"}},
		"environment": {calico(t, corev1.EnvVar{Name: "FELIX_IPTABLESREFRESHINTERVAL", Value: "90"}),
			v1alpha1.ChangeSpec{Flag: "iptablesRefreshInterval=60s"}},
		"Cilium": {cnitest.Snapshot(t, cnitest.Cilium(t, "v1.16.5")),
			v1alpha1.ChangeSpec{Flag: "bpf-lb-acceleration=native"}},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := test.snapshot
			like := snapshot.Nodes[0]
			for i := range 3 {
				node := *like.DeepCopy()
				node.Name = fmt.Sprintf("more-%d", i)
				node.Labels[corev1.LabelHostname] = node.Name
				snapshot.Nodes = append(snapshot.Nodes, node)
			}
			test.change.AgentImage = "theseus.dev/agent:dev"
			p, err := plan.Make(snapshot, test.change, drivers.All(), nil,
				plan.Options{Version: "v0", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
			if err != nil {
				t.Fatal(err)
			}
			said := map[string]int{}
			random := rand.New(rand.NewPCG(1, 2))
			for n := range 2000 {
				mutant := *p
				mutant.Steps = slices.Clone(p.Steps)
				for range min(n, 1+random.IntN(3)) {
					mutate(random, &mutant)
				}
				want := hold(t, &mutant, rollout.Naive)
				if got := hold(t, &mutant, rollout.Rules); got != want {
					t.Fatalf("mutant %d: %q, want %q", n, got, want)
				}
				said[want]++
			}
			if said[""] < 2 || len(said) < 30 {
				t.Errorf("few cases: %d, %d of them allowed", len(said), said[""])
			}
		})
	}
}

// calico is a cluster on Calico whose agents have variables in their environment.
func calico(t *testing.T, variables ...corev1.EnvVar) *cluster.Snapshot {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
	container := &snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
	container.Env = append(container.Env, variables...)
	return snapshot
}

func hold(t *testing.T, p *plan.Plan, of func(*kind.Plan) ([]kind.Rule, error)) string {
	t.Helper()
	rules, err := of(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify.Hold(p, rules); err != nil {
		return err.Error()
	}
	return ""
}

// mutate changes something in the steps of a plan.
func mutate(random *rand.Rand, p *plan.Plan) {
	i := random.IntN(len(p.Steps))
	s := p.Steps[i]
	switch random.IntN(8) {
	case 0:
		p.Steps = slices.Delete(p.Steps, i, i+1)
	case 1:
		j := random.IntN(len(p.Steps))
		p.Steps[i], p.Steps[j] = p.Steps[j], p.Steps[i]
	case 2:
		p.Steps[i].NoReturn = !s.NoReturn
	case 3, 4:
		p.Steps[i].Actions = shuffled(random, s.Actions)
	case 5, 6:
		p.Steps[i].Undo = shuffled(random, s.Undo)
	case 7: // an action comes into another step
		if other := p.Steps[random.IntN(len(p.Steps))]; len(other.Actions) > 0 {
			p.Steps[i].Actions = append(slices.Clone(s.Actions), other.Actions[random.IntN(len(other.Actions))])
		}
	}
}

// shuffled is a list without one action, with one twice, or with two in each other's place.
func shuffled(random *rand.Rand, actions []step.Action) []step.Action {
	if actions = slices.Clone(actions); len(actions) == 0 {
		return nil
	}
	i, j := random.IntN(len(actions)), random.IntN(len(actions))
	switch random.IntN(3) {
	case 0:
		return slices.Delete(actions, i, i+1)
	case 1:
		return slices.Insert(actions, j, actions[i])
	}
	actions[i], actions[j] = actions[j], actions[i]
	return actions
}
