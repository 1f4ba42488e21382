package run

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	probes "github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestCostOfSamples: the line says how many connections between pods of the user are opened, and when.
func TestCostOfSamples(t *testing.T) {
	guarded := kind.Guard{NewPods: step.Duration(30 * time.Second), Pairs: make([]step.Pair, 5)}
	guarded.Pairs[1].Denied, guarded.Pairs[2].Denied = true, true
	p := &plan.Plan{Guarded: &guarded, Steps: []step.Step{{Actions: []step.Action{{Do: step.Sample{}}}}}}
	const says = "; and 5 connections between pods of yours (3 allowed and 2 denied by policy), opened from within " +
		"the pods' network namespaces and closed at once, one at a time, without data: before the change, "
	const after = "while the network is watched after it"
	if got := Cost(p); !strings.HasSuffix(got, says+"every 30s while the command runs and "+after) {
		t.Error(got)
	}
	guarded.Others = true
	if got := Cost(p); !strings.HasSuffix(got, says+after) {
		t.Error(got)
	}
}

// TestCost: the line counts every pod that the plan creates, and says what the paths of its networks send, with each
// budget, on networks that are known (Calico on one node) and on one that is not.
func TestCost(t *testing.T) {
	for network, test := range map[string]struct{ sends, sees [3]string }{
		"flannel": {[3]string{"243 probes a second in all and 81", "1,131 probes a second in all and 377",
			"2,244 probes a second in all and 748"}, [3]string{"50 ms on the fastest paths, from 500 ms",
			"10 ms on the fastest paths, from 100 ms", "5 ms on the fastest paths, from 50 ms"}},
		"calico": {[3]string{"30 probes a second in all and 30", "134 probes a second in all and 134",
			"264 probes a second in all and 264"}, [3]string{"250 ms on the fastest paths, from 500 ms",
			"50 ms on the fastest paths, from 100 ms", "25 ms on the fastest paths, from 50 ms"}},
		"unknown": {[3]string{"216 probes a second in all and 72", "1,032 probes a second in all and 344",
			"2,052 probes a second in all and 684"}, [3]string{"50 ms on the fastest paths, from 500 ms",
			"10 ms on the fastest paths, from 100 ms", "5 ms on the fastest paths, from 50 ms"}},
	} {
		for at, budget := range []string{"small", "normal", "fine"} {
			fixture := network
			if network == "unknown" {
				fixture = "flannel"
			}
			snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, fixture+".yaml"))
			snapshot.Sources = append(snapshot.Sources, cluster.Source{Resource: "pods"})
			if network == "unknown" {
				snapshot.DaemonSets, snapshot.ConfigMaps = nil, nil
				for i := range snapshot.Nodes {
					snapshot.Nodes[i].Annotations = nil
				}
			}
			fast, _ := probes.Budget(budget)
			draft, err := guard.Propose(&kind.Request{Snapshot: snapshot, Drivers: drivers.All(),
				Change:  v1alpha1.ChangeSpec{AgentImage: "a", ProbeIntervalMillis: int(fast.Milliseconds())},
				Options: plan.Options{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
				kind.Guard{Command: []string{"true"}, Quiet: step.Duration(time.Second),
					AtMost: step.Duration(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Seal(snapshot, draft)
			if err != nil {
				t.Fatal(err)
			}
			nodes := len(p.Cluster.Nodes)
			first := fmt.Sprintf("cost: %d pods on %s in namespace theseus-system, removed at the end; up to %s from "+
				"one node, ", 3*nodes, cluster.Count(nodes, "node"), test.sends[at])
			last := fmt.Sprintf("; sees gaps from %s on every path within the cluster; and new pods, at most two "+
				"at once on a node: one or two on each before the change, as many after it, and every %s one on "+
				"each of %s while the command runs", test.sees[at], []string{"1m0s", "30s", "15s"}[at],
				cluster.Count(nodes, "node"))
			if got := Cost(p); !strings.HasPrefix(got, first) || !strings.HasSuffix(got, last) ||
				strings.Contains(got, "\n") {
				t.Errorf("%s, %s: %s\nwant %s ... %s", network, budget, got, first, last)
			}
			// a probe pod that the plan does not create is not counted
			for i := range p.Steps {
				if s := &p.Steps[i]; s.ID == guard.StepProbes {
					pod := slices.IndexFunc(s.Actions, func(a step.Action) bool {
						return a.Op() == step.OpApply && a.Object().GetKind() == "Pod"
					})
					s.Actions = slices.Delete(s.Actions, pod, pod+1)
				}
			}
			if fewer := fmt.Sprintf("cost: %d pods on", 3*nodes-1); !strings.HasPrefix(Cost(p), fewer) {
				t.Errorf("with a pod less: %s", Cost(p))
			}
		}
	}
}
