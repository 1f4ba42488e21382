package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// twoNodes is a plan that adopts the pods of a node, and evicts those of another.
func twoNodes() *plan.Plan {
	return &plan.Plan{Name: "m", Hash: "hash", Steps: []step.Step{
		{ID: "joint/agents/wave-1", Group: "joint", Wave: "wave-1", Title: "Start Calico on n1",
			Actions: []step.Action{{ID: "label", Do: step.Patch{
				Ref: step.Ref{APIVersion: "v1", Kind: "Node", Name: "n1"}}}}},
		{ID: "wave-1/n1/adopt", Group: "wave-1", Wave: "wave-1", Node: "n1", Title: "Adopt the pods of n1",
			Actions: []step.Action{{ID: "adopt", Do: step.Node{Verb: step.VerbAdopt, NodeName: "n1"}}},
			Undo:    []step.Action{{ID: "back", Do: step.Node{Verb: step.VerbAdopt, NodeName: "n1"}}}},
		{ID: "wave-1/n1/switch", Group: "wave-1", Wave: "wave-1", Node: "n1", Title: "Use Calico on n1",
			Actions: []step.Action{{ID: "renew", Do: step.Restart{NodeName: "n1"}}}},
		{ID: "wave-2/n2/drain", Group: "wave-2", Wave: "wave-2", Title: "Recreate the pods of n2",
			Actions: []step.Action{{ID: "evict", Do: step.Evict{Pods: step.PodSet{Node: "n2"}}}}},
	}}
}

// heard are the events of some records, of which the first ones are told by another process.
func heard(p *plan.Plan, past int, records ...engine.Record) []string {
	var events []string
	h := newHerald(p, run.NewScript(p), func(about corev1.ObjectReference, kind, reason, message string) {
		events = append(events, fmt.Sprintf("%s %s/%s/%s(%s) %s: %s", kind, about.Kind, about.Namespace, about.Name,
			about.UID, reason, message))
	})
	for i, r := range records {
		h.hear(r, i < past)
	}
	return events
}

func answer(t *testing.T, value any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestHerald: what nodes and pods are told of a run, and that a process which takes it over tells nothing again.
func TestHerald(t *testing.T) {
	adopted := answer(t, step.AdoptResult{Node: "n1", Pods: []step.AdoptOutcome{
		{Namespace: "shop", Name: "web-1", State: step.AdoptMoved}, {Namespace: "shop", Name: "web-2",
			State: step.AdoptMoved}, {Namespace: v1alpha1.Namespace, Name: "probe", State: step.AdoptMoved},
		{Namespace: "shop", Name: "odd", UID: "u1", State: step.AdoptUndone, Network: "cbr0", Reason: "it has two"}}})
	there := []engine.Record{
		{Event: engine.StepBegan, Step: "joint/agents/wave-1"}, {Event: engine.StepDone, Step: "joint/agents/wave-1"},
		{Event: engine.StepBegan, Step: "wave-1/n1/adopt"},
		{Event: engine.Acted, Step: "wave-1/n1/adopt", Action: "adopt", Result: engine.ResultDone, Data: adopted},
		{Event: engine.StepDone, Step: "wave-1/n1/adopt"}, {Event: engine.StepBegan, Step: "wave-1/n1/switch"},
		{Event: engine.Acted, Step: "wave-1/n1/switch", Action: "renew", Result: engine.ResultDone},
		{Event: engine.StepDone, Step: "wave-1/n1/switch"}, {Event: engine.StepBegan, Step: "wave-2/n2/drain"},
		{Event: engine.Acted, Step: "wave-2/n2/drain", Action: "evict", Result: engine.ResultFailed,
			Data: answer(t, kube.Evicted{Pods: []kube.EvictedPod{{Namespace: "shop", Name: "db-1",
				Workload: "StatefulSet/shop/db"}}})},
		{Event: engine.Acted, Step: "wave-2/n2/drain", Action: "evict", Result: engine.ResultDone,
			Data: answer(t, kube.Evicted{Pods: []kube.EvictedPod{{Namespace: "shop", Name: "db-0",
				Workload: "StatefulSet/shop/db"}, {Namespace: "shop", Name: "db-1",
				Workload: "StatefulSet/shop/db"}}})},
	}
	back := []engine.Record{
		{Event: engine.RollingBack, Step: "wave-2/n2/drain", Result: engine.ResultFailed, Error: "probes were lost"},
		{Event: engine.StepUndone, Step: "wave-2/n2/drain"}, {Event: engine.StepUndone, Step: "wave-1/n1/switch"},
		{Event: engine.Acted, Step: "wave-1/n1/adopt", Action: "back", Undo: true, Result: engine.ResultDone,
			Data: answer(t, step.AdoptResult{Pods: []step.AdoptOutcome{{Namespace: "shop", Name: "web-1",
				State: step.AdoptMoved}}})},
		{Event: engine.StepUndone, Step: "wave-1/n1/adopt"}, {Event: engine.StepUndone, Step: "joint/agents/wave-1"},
	}
	want := []string{
		"Normal Node//n1(n1) ChangeBegan: begins to change this node: [2/4] Adopt the pods of n1",
		"Warning Pod/shop/odd(u1) NotMoved: cannot move this pod, which is on the network cbr0: it has two",
		"Normal Node//n1(n1) ChangeDone: has changed this node (2 pods moved while they ran, " +
			"1 pod of the network restarted)",
		"Normal Node//n2(n2) ChangeBegan: begins to change this node: [4/4] Recreate the pods of n2",
		"Normal Pod/shop/db-1() EvictedByChange: evicted this pod of StatefulSet/shop/db from n2",
		"Normal Pod/shop/db-0() EvictedByChange: evicted this pod of StatefulSet/shop/db from n2",
		"Warning Node//n2(n2) ChangeFailed: [4/4] Recreate the pods of n2 failed: probes were lost",
		"Warning Node//n2(n2) ChangeUndone: has undone the change of this node (2 pods evicted): probes were lost",
		"Warning Node//n1(n1) ChangeUndone: has undone the change of this node (2 pods moved while they ran, " +
			"1 pod moved back while they ran, 1 pod of the network restarted): probes were lost",
	}
	all := append(there, back...)
	for _, test := range []struct {
		past int
		want []string
	}{{0, want}, {len(there), want[6:]}} {
		if got := heard(twoNodes(), test.past, all...); strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("after %d records\n%s\nwant\n%s", test.past, strings.Join(got, "\n"),
				strings.Join(test.want, "\n"))
		}
	}
	asked := heard(twoNodes(), len(there), append(there, engine.Record{Event: engine.RollingBack,
		Step: "wave-2/n2/drain", Result: engine.ResultAsked, Error: "the operator requested it"})...)
	if len(asked) != 0 {
		t.Errorf("a rollback that was asked for is a failure: %q", asked)
	}
}

// TestHeraldOfARealPlan: every node of a plan is told once that its change begins, and once that it is done.
func TestHeraldOfARealPlan(t *testing.T) {
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	p, err := plan.Make(snapshot, v1alpha1.ChangeSpec{To: "calico", Manifest: "calico.yaml",
		PodCIDR: "10.96.0.0/16", AgentImage: "theseus.dev/agent:dev", Strategy: "recreate"}, drivers.All(), nil,
		plan.Options{Version: "v0.0.0-test", Now: noon, Name: "m",
			Manifest: cnitest.Fixture(t, "calico-manifest.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	var records []engine.Record
	for i := range p.Steps {
		records = append(records, engine.Record{Event: engine.StepBegan, Step: p.Steps[i].ID},
			engine.Record{Event: engine.StepDone, Step: p.Steps[i].ID})
	}
	told := map[string]int{}
	for _, event := range heard(p, 0, records...) {
		about, _, _ := strings.Cut(event, ": ")
		told[about]++
	}
	for i := range snapshot.Nodes {
		name := snapshot.Nodes[i].Name
		for _, reason := range []string{reasonChangeBegan, reasonChangeDone} {
			if about := "Normal Node//" + name + "(" + name + ") " + reason; told[about] != 1 {
				t.Errorf("%q is told %d times: %v", about, told[about], told)
			}
		}
	}
}

// TestHeraldOfOtherGroups: steps whose groups are not named for their waves change the nodes, if there are no others.
func TestHeraldOfOtherGroups(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{ID: "pin/wave-1", Group: "pin", Wave: "wave-1", Title: "Pin",
		Actions: []step.Action{{ID: "1", Do: step.Node{NodeName: "n1"}},
			{ID: "2", Do: step.Node{NodeName: "n1"}}, {ID: "3", Do: step.Node{NodeName: "n2"}}}}}}
	got := heard(p, 0, engine.Record{Event: engine.StepBegan, Step: "pin/wave-1"},
		engine.Record{Event: engine.StepBegan, Step: "pin/wave-1"}, // by a process that took over
		engine.Record{Event: engine.StepDone, Step: "pin/wave-1"})
	if len(got) != 4 || !strings.Contains(got[1], "Node//n2(n2) ChangeBegan") ||
		!strings.HasSuffix(got[3], "Node//n2(n2) ChangeDone: has changed this node") {
		t.Errorf("%q", got)
	}
}

// TestHeraldIsBounded: a change of very many pods tells some of them, and counts all on their nodes.
func TestHeraldIsBounded(t *testing.T) {
	var answered kube.Evicted
	for i := range 3 * maxPodEvents {
		answered.Pods = append(answered.Pods, kube.EvictedPod{Namespace: "shop", Name: fmt.Sprint("web-", i)})
	}
	p := twoNodes()
	got := heard(p, 0, engine.Record{Event: engine.StepBegan, Step: "wave-2/n2/drain"},
		engine.Record{Event: engine.Acted, Action: "evict", Data: answer(t, answered)},
		engine.Record{Event: engine.StepDone, Step: "wave-2/n2/drain"})
	if len(got) != maxPodEvents+2 || !strings.Contains(got[maxPodEvents], "the others get no event") ||
		!strings.Contains(got[maxPodEvents+1], fmt.Sprintf("(%d pods evicted)", 3*maxPodEvents)) {
		t.Errorf("%d events, at the end %q", len(got), got[len(got)-2:])
	}
	for _, r := range []engine.Record{{Event: engine.Acted, Action: "evict", Data: []byte(`["x"]`)},
		{Event: engine.Acted, Action: "adopt", Data: []byte(`7`)}, {Event: engine.Acted, Action: "unknown"},
		{Event: engine.StepDone, Step: "unknown"}} {
		if got := heard(p, 0, r); len(got) != 0 {
			t.Errorf("%+v: %q", r, got)
		}
	}
}

// TestSink: an event about a node names the Migration as the related object. Other events stay as they are.
func TestSink(t *testing.T) {
	client := fake.NewClientset()
	out := Sink(client.CoreV1())
	for name, annotations := range map[string]map[string]string{"of-a-node": {manifest.LabelMigration: "m"},
		"of-m": nil} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault,
			Annotations: annotations}, Reason: "x"}
		if _, err := out.Create(event); err != nil {
			t.Fatal(err)
		}
		event.Count = 2
		if _, err := out.Update(event); err != nil {
			t.Fatal(err)
		}
		kept, err := client.CoreV1().Events(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if annotations == nil && kept.Related != nil || annotations != nil && (kept.Related == nil ||
			*kept.Related != corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: "Migration",
				Namespace: v1alpha1.Namespace, Name: "m"}) || kept.Count != 2 || event.Related != nil {
			t.Errorf("%s: %+v", name, kept)
		}
	}
}
