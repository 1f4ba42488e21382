package estimate_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/estimate"
	"github.com/theseus-cni/theseus/internal/step"
)

// adopt moves the pods of a node, or the named ones.
func adopt(t *testing.T, node string, args step.AdoptArgs) step.Action {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return step.Action{Op: step.Node, Verb: step.VerbAdopt, NodeName: node, Args: text}
}

func beside(a step.Action) step.Action {
	a.Beside = true
	return a
}

// TestParts: what is done together is one part, and every pod of a node is moved once.
func TestParts(t *testing.T) {
	every := step.PathSet{Old: []string{step.EveryNode}, New: []string{step.EveryNode}}
	steps := []step.Step{
		{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Pods: []string{"own/probe"}}), {Op: step.Probe, Paths: &every}}},
		{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Skip: []string{"shop/apart"}}), beside(adopt(t, "b", step.AdoptArgs{}))},
			Gate: &step.Gate{Bake: step.Duration(5 * time.Second)}},
		{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Skip: []string{"shop/apart"}})}},
		{Actions: []step.Action{{Op: step.Evict, Pods: &step.PodSet{Node: "a", Names: []string{"shop/apart"}}},
			{Op: step.Evict, Pods: &step.PodSet{Node: "a"}}, {Op: step.Probe, Paths: &step.PathSet{New: every.New}}}},
	}
	want := [][]estimate.Part{
		{{Kind: "node/adopt", N: 1, Pods: 1, Most: 1}, {Kind: "probe", N: 3}},
		{{Kind: "node/adopt", N: 2, Pods: 9, Most: 5}, {Kind: "gate", N: 3, Bake: step.Duration(5 * time.Second)}},
		{{Kind: "node/adopt", N: 1}},
		{{Kind: "evict", N: 1, Pods: 1, Most: 1}, {Kind: "evict/rest", N: 1}, {Kind: "probe/fewer", N: 3}},
	}
	pods := map[string]int{"a": 5, "b": 5}
	for i, got := range estimate.Parts(steps, 3, pods) {
		if !slices.Equal(got, want[i]) {
			t.Errorf("step %d:\n%+v, want\n%+v", i+1, got, want[i])
		}
	}
	estimate.Steps(steps, 3, pods)
	for i, s := range steps {
		var sum time.Duration
		for _, part := range want[i] {
			sum += part.Takes()
		}
		if time.Duration(s.Estimate) != sum.Round(time.Second/10) || sum <= 0 {
			t.Errorf("step %d is said to take %s, and its parts take %s", i+1, time.Duration(s.Estimate), sum)
		}
	}
}

// TestGate: it waits for its bake, or for two reports of many nodes, which come seldom.
func TestGate(t *testing.T) {
	takes := func(nodes int, bake time.Duration) time.Duration {
		return estimate.Part{Kind: "gate", N: nodes, Bake: step.Duration(bake)}.Takes().Truncate(time.Second)
	}
	for _, c := range []struct {
		nodes      int
		bake, want time.Duration
	}{{3, 0, 2 * time.Second}, {3, 30 * time.Second, 30 * time.Second}, {5000, 5 * time.Second, 20 * time.Second}} {
		if got := takes(c.nodes, c.bake); got != c.want {
			t.Errorf("%d nodes, watched for %s: %s, want %s", c.nodes, c.bake, got, c.want)
		}
	}
}
