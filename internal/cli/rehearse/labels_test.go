package rehearse

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/drivers"
)

// TestPiDay: in the snapshot of a cluster as Reddit's before Pi-Day, the check finds what the change breaks, and the
// copy has it: nodes that lose the label, and connections between nodes. A connection that is lost names
// the check.
func TestPiDay(t *testing.T) {
	w, empty := newWorld(t, "calico-bgp", labSeed), newWorld(t, "calico-bgp", labSeed)
	plantPiDay(w)
	empty.UID = "the-scratch"
	for i := range empty.Nodes { // as kubeadm marks them today
		delete(empty.Nodes[i].Labels, "node-role.kubernetes.io/master")
	}
	p := planted{change: v1alpha1.ChangeSpec{RemoveLabels: []string{"node-role.kubernetes.io/master"}}}
	before := p.side(t, w.Snapshot)
	for _, id := range []string{"bgp/peer-selector-empty", "labels/removed-in-use"} {
		if worst(before, id) != finding.Block {
			t.Errorf("%s says %q", id, worst(before, id))
		}
	}
	asked, err := whatif.Apply(w.Snapshot, p.change)
	if err != nil {
		t.Fatal(err)
	}
	all := drivers.All()
	made, err := rehearsal.Make(w.Snapshot, empty.Snapshot, all.Detect(w.Snapshot), all.Detect(empty.Snapshot),
		rehearsal.Options{Image: "registry.example.com/agent:1"})
	if err != nil {
		t.Fatal(err)
	}
	relabels := made.Relabels(asked.Effects)
	if len(relabels) != 3 || relabels[0].Node != "node-1" ||
		relabels[0].Labels["node-role.kubernetes.io/master"] != nil {
		t.Errorf("%+v", relabels)
	}
	if err := made.Relabelable(relabels, empty.Snapshot); err != nil {
		t.Error(err)
	}
	given := 0
	for _, node := range made.Nodes {
		if _, master := node.Labels["node-role.kubernetes.io/master"]; master {
			given++
		}
	}
	if given != 3 {
		t.Errorf("%d nodes of the copy get the label that BGPPeers select", given)
	}
	between := 0
	for _, pair := range made.Traffic {
		if strings.Contains(pair.From, "shop/") && strings.Contains(pair.To, "shop/") && !pair.Denied {
			between++
		}
	}
	if between < 2 {
		t.Errorf("connections between nodes: %v", made.Traffic)
	}
	lost := rehearsal.Asked{Pair: made.Traffic[0], Asked: 90, Lost: 60, Lasting: true}
	watch := rehearsal.Watch{}
	watch.Heard([]rehearsal.Asked{lost})
	shown := watch.Shown(before.Findings.Findings)
	if len(shown) != 1 || shown[0].Trap != rehearsal.TrapTraffic ||
		!strings.Contains(strings.Join(shown[0].Checks, " "), "bgp/peer-selector-empty") {
		t.Errorf("shown: %+v", shown)
	}
	if says := labelsOf(asked.Effects); says != "remove the label node-role.kubernetes.io/master of 3 nodes" {
		t.Errorf("the change is %q", says)
	}
}

// TestMixedLabels: a node of the copy that stands for nodes with and without the change is not covered.
func TestMixedLabels(t *testing.T) {
	made := &rehearsal.Copy{Workloads: []rehearsal.Workload{{}},
		Classes: []rehearsal.Class{{Nodes: []string{"m1", "m2"}, Plays: []string{"s1"}}}}
	made.Relabels([]whatif.Effect{{What: whatif.Label, Key: "role", Removed: true, Nodes: []string{"m1"}}})
	if got := uncovered(made, nil, nil); len(got) != 1 || !strings.Contains(got[0], ": s1 stand for both") {
		t.Errorf("not covered: %q", got)
	}
}

// TestTrapped: a change of labels that the run showed a trap of did not pass; other changes are judged by their runs.
func TestTrapped(t *testing.T) {
	for name, c := range map[string]struct {
		labels string
		trap   rehearsal.Trap
		passed bool
	}{
		"no node": {"remove the label a", rehearsal.TrapNode, false},
		"policy":  {"remove the label a", rehearsal.TrapPolicy, true},
		"planned": {"", rehearsal.TrapNode, true},
	} {
		r := &result{Passed: true, Labels: c.labels,
			Shown: []rehearsal.Shown{{Trap: c.trap, Object: "Deployment shop/web", What: "its pods wait"}}}
		if r.trapped(); r.Passed != c.passed || !c.passed && r.Why != "Deployment shop/web: its pods wait" {
			t.Errorf("%s: %v, %s", name, r.Passed, r.Why)
		}
	}
	r := &result{Labels: "remove the label a of 3 nodes", Why: "w", Copy: &rehearsal.Copy{}}
	if title := r.head().Title; title != "remove the label a of 3 nodes on a copy: w" {
		t.Errorf("the title is %q", title)
	}
}
