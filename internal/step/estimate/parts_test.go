package estimate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// adopt moves the pods of a node, or the named ones.
func adopt(t *testing.T, node string, args step.AdoptArgs) step.Action {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return step.Action{Do: step.Node{Verb: step.VerbAdopt, NodeName: node, Args: text}}
}

func beside(a step.Action) step.Action {
	a.Together = true
	return a
}

// running are as many pods of a workload.
func running(n int, kind, name string) []estimate.Pod {
	pods := make([]estimate.Pod, n)
	for i := range pods {
		pods[i] = estimate.Pod{Name: fmt.Sprint(name, "-", i),
			Owner: cluster.Owner{Kind: kind, Namespace: "shop", Name: name}}
	}
	return pods
}

// TestParts: what is done together is one part, and every pod of a node is moved once.
func TestParts(t *testing.T) {
	every := step.PathSet{Old: []string{step.EveryNode}, New: []string{step.EveryNode}}
	steps := []step.Step{
		{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Pods: []string{"own/probe"}}),
			{Do: step.Probe{Paths: every}}}},
		{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Skip: []string{"shop/apart-0"}, Parallel: 1}),
			beside(adopt(t, "b", step.AdoptArgs{}))},
			Gate: &step.Gate{Bake: step.Duration(5 * time.Second)}},
		{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Skip: []string{"shop/apart-0"}})}},
		{Actions: []step.Action{{Do: step.Evict{Pods: step.PodSet{Node: "a", Names: []string{"shop/apart-0"}}}},
			{Do: step.Evict{Pods: step.PodSet{Node: "a"}}}, {Do: step.Probe{Paths: step.PathSet{New: every.New}}}}},
	}
	want := [][]estimate.Part{
		{{Kind: "node/adopt", N: 1, Pods: 1, Most: 1, Turns: 1}, {Kind: "probe", N: 3}},
		{{Kind: "node/adopt", N: 2, Pods: 9, Most: 5, Turns: 4},
			{Kind: "gate", N: 3, Bake: step.Duration(5 * time.Second)}},
		{{Kind: "node/adopt", N: 1}},
		{{Kind: "evict", N: 1, Pods: 1, Most: 1, Chain: 1, Ending: 1, Ended: 1}, {Kind: "evict/rest", N: 1},
			{Kind: "probe/fewer", N: 3}},
	}
	pods := map[string][]estimate.Pod{"a": append(running(4, "Deployment", "web"),
		running(1, "StatefulSet", "apart")...), "b": running(5, "Deployment", "web")}
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

// TestTurns: pods of a node move side by side, and a node without pods to move takes no longer than any other action.
func TestTurns(t *testing.T) {
	takes := func(pods, parallel int) time.Duration {
		steps := []step.Step{{Actions: []step.Action{adopt(t, "a", step.AdoptArgs{Parallel: parallel})}}}
		estimate.Steps(steps, 3, map[string][]estimate.Pod{"a": running(pods, "Deployment", "web")})
		return time.Duration(steps[0].Estimate)
	}
	if one, same, next := takes(1, 4), takes(4, 4), takes(5, 4); one != same || next <= same || takes(8, 4) != next {
		t.Errorf("1 pod takes %s, 4 %s, and 5 %s", one, same, next)
	}
	if unset, serial := takes(20, 0), takes(20, 1); unset != takes(20, 4) || serial < 3*unset {
		t.Errorf("20 pods take %s, and one at a time %s", unset, serial)
	}
	if none, other := takes(0, 4), (estimate.Part{Kind: "node/clean", N: 1}).Takes(); none != other {
		t.Errorf("no pods take %s, and another verb %s", none, other)
	}
}

// TestChains: the pods of one workload are a chain over all nodes of a part; those of a DaemonSet that are left are in
// none.
func TestChains(t *testing.T) {
	pods := map[string][]estimate.Pod{
		"a": slices.Concat(running(2, "Deployment", "web"), running(1, "StatefulSet", "db"),
			running(1, "DaemonSet", "log")),
		"b": slices.Concat(running(1, "Deployment", "web"), running(1, "StatefulSet", "db"),
			running(1, "StatefulSet", "queue")),
	}
	evict := func(node string) step.Action {
		return step.Action{Do: step.Evict{Pods: step.PodSet{Node: node, LeaveEnding: true, LeaveDaemons: true}}}
	}
	parts := estimate.Parts([]step.Step{{Actions: []step.Action{evict("a"), beside(evict("b"))}}}, 2, pods)
	want := estimate.Part{Kind: "evict", N: 2, Pods: 6, Most: 3, Chain: 3, Ending: 2, Ended: 3}
	if len(parts[0]) != 1 || parts[0][0] != want {
		t.Errorf("%+v, want %+v", parts[0], want)
	}
}

// TestEvictions: they take what the longest chain does, or what all do that are moved five at a time.
func TestEvictions(t *testing.T) {
	takes := func(pods, chain, ending, ended int) time.Duration {
		return estimate.Part{Kind: "evict", N: 1, Pods: pods, Most: pods, Chain: chain,
			Ending: ending, Ended: ended}.Takes()
	}
	for _, c := range []struct {
		name             string
		quicker, as, one time.Duration
	}{
		{"one pod of each of 20 workloads, and four of one", takes(19, 1, 0, 0), takes(20, 1, 0, 0), takes(4, 4, 0, 0)},
		{"pods of others beside a chain", takes(3, 3, 0, 0), takes(20, 4, 0, 0), takes(4, 4, 0, 0)},
		{"a chain of a StatefulSet, and the same beside a shorter one",
			takes(3, 3, 0, 0), takes(3, 3, 3, 3), takes(5, 3, 3, 5)},
		{"one pod of each of 10 StatefulSets, and two of one",
			takes(10, 1, 0, 0), takes(10, 1, 1, 10), takes(2, 2, 2, 2)},
	} {
		if c.as != c.one || c.quicker >= c.as {
			t.Errorf("%s: %s and %s, and fewer %s", c.name, c.as, c.one, c.quicker)
		}
	}
}

// TestEvictionsOnManyNodes: one pod of each node is missing at a time, where that is more than of a few nodes.
func TestEvictionsOnManyNodes(t *testing.T) {
	takes := func(nodes int) time.Duration {
		return estimate.Part{Kind: "evict", N: nodes, Pods: 500, Chain: 1}.Takes()
	}
	if few, same, many := takes(1), takes(step.SideBySide), takes(10*step.SideBySide); few != same || many*9 > few {
		t.Errorf("500 pods take %s on one node, %s on %d and %s on ten times as many", few, same, step.SideBySide, many)
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
	}{{3, 0, 2 * time.Second}, {3, 30 * time.Second, 30 * time.Second}, {5000, 5 * time.Second, 15 * time.Second}} {
		if got := takes(c.nodes, c.bake); got != c.want {
			t.Errorf("%d nodes, watched for %s: %s, want %s", c.nodes, c.bake, got, c.want)
		}
	}
	asked := func(nodes, asked int, bake time.Duration) time.Duration {
		return estimate.Part{Kind: "gate", N: nodes, Asked: asked, Bake: step.Duration(bake)}.Takes()
	}
	for _, c := range []struct {
		nodes, asked int
		bake, want   time.Duration
	}{
		{500, 0, 0, 5800 * time.Millisecond},                        // 2.5 s, and answers within as long
		{500, 0, 10 * time.Second, 13300 * time.Millisecond},        // the bake, and answers
		{500, 100, 0, 3800 * time.Millisecond},                      // 200 answers a second
		{5000, 300, 0, 3900 * time.Millisecond},                     // all would answer within 10 s
		{2500, 0, 0, 13300 * time.Millisecond},                      // all answer within 10 s
		{49, 0, 0, 2*49*40*time.Millisecond + 800*time.Millisecond}, // nobody is asked
	} {
		if got := asked(c.nodes, c.asked, c.bake); got != c.want {
			t.Errorf("%d of %d nodes, watched for %s: %s, want %s", c.asked, c.nodes, c.bake, got, c.want)
		}
	}
}

// TestGateNear: a gate that asks some nodes asks those of its step, their peers and a sample, if that is not most.
func TestGateNear(t *testing.T) {
	near := step.Step{Group: "wave-3", Wave: "wave-3", Gate: &step.Gate{Near: true},
		Actions: []step.Action{{Do: step.Node{NodeName: "a"}}, {Do: step.Node{NodeName: "b"}, Together: true}}}
	for nodes, want := range map[int]int{500: 2*5 + 32, 84: 42, 83: 0} {
		parts := estimate.Parts([]step.Step{near}, nodes, nil)[0]
		if got := parts[len(parts)-1]; got.Kind != "gate" || got.Asked != want {
			t.Errorf("of %d nodes: %+v, want %d asked", nodes, got, want)
		}
	}
}
