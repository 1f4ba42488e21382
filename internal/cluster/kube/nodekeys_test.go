package kube

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

func networked() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"flannel/a": "1", "mine": "2"},
			Labels: map[string]string{"flannel": "", "l": "1"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gone", Effect: "NoSchedule"},
			{Key: "kept", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "R"},
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "FlannelIsDown"}}},
	}
}

// TestKeysOfNode: agents are never told of annotations, labels and taints of Nodes; the engine finds and removes them,
// and the answer says so as if one had done it all.
func TestKeysOfNode(t *testing.T) {
	residue := step.Residue{Links: []string{"cni0"}, Annotations: []string{"flannel/*"},
		NodeLabels: []string{"flannel"}, Taints: []string{"gone", "absent"}, Farewells: []string{"FlannelIsDown"}}
	there := step.Residue{Annotations: []string{"flannel/a"}, NodeLabels: []string{"flannel"}, Taints: []string{"gone"},
		Farewells: []string{"FlannelIsDown"}}
	for _, test := range []struct {
		verb string
		want step.Residue // next to the link that the agent tells of
	}{{step.VerbInventory, there}, {step.VerbClean, step.Residue{}}} {
		t.Run(test.verb, func(t *testing.T) {
			w := newWorld(t, []runtime.Object{networked()})
			w.answer(map[string]any{"phase": "Done",
				"result": map[string]any{"node": "a", "found": map[string]any{"links": []any{"cni0"}}}})
			action := step.Action{ID: "c", Do: step.Node{NodeName: "a", Verb: test.verb, Args: jsonOf(residue)}}
			answer, err := w.do(action)
			if err != nil {
				t.Fatal(err)
			}
			want := test.want
			want.Links = []string{"cni0"}
			var inventory step.Inventory
			if err := json.Unmarshal(answer, &inventory); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(step.Inventory{Node: "a", Found: want}, inventory); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			task := parse(t, string(w.read(step.Ref{APIVersion: v1alpha1.APIVersion, Kind: "NodeTask",
				Namespace: v1alpha1.Namespace, Name: w.taskName(action.ID, action.Verb())})))
			args, _, _ := unstructured.NestedMap(task.Object, "spec", "args")
			if len(args) != 1 || args["links"] == nil {
				t.Errorf("the agent was asked with %v", args)
			}
			node, err := w.Typed.CoreV1().Nodes().Get(context.Background(), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if left := keysOn(node, residue); test.verb == step.VerbClean && left.Count() != 0 {
				t.Errorf("left: %+v", left)
			}
			mine := step.Residue{Annotations: []string{"mine"}, NodeLabels: []string{"l"}, Taints: []string{"kept"}}
			if diff := cmp.Diff(mine, keysOn(node, mine)); diff != "" {
				t.Errorf("what is not the network's (-want +got):\n%s", diff)
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Reason != "R" {
					t.Errorf("another condition was changed: %+v", condition)
				}
			}
		})
	}
}

// TestKeysWrittenAgain: a network's agent that still runs writes its annotation again; the clean does not end as done.
func TestKeysWrittenAgain(t *testing.T) {
	w := newWorld(t, []runtime.Object{networked()})
	asked := w.answer(map[string]any{"phase": "Done", "result": map[string]any{"node": "a", "found": map[string]any{}}})
	agent := w.slept
	w.slept = func(n int) {
		if asked() == 0 {
			agent(n)
			return
		}
		if _, err := w.typed.CoreV1().Nodes().Update(context.Background(), networked(),
			metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
	_, err := w.do(step.Action{ID: "c", Do: step.Node{NodeName: "a", Verb: step.VerbClean,
		Args: jsonOf(step.Residue{Annotations: []string{"flannel/*"}})}})
	wantError(t, err, "another client changes Node a again: flannel/a")
}

// TestKeysOnSlowServer: each request takes longer than keys may return, and no one writes them. They are gone, and no
// writer is reported.
func TestKeysOnSlowServer(t *testing.T) {
	w := newWorld(t, []runtime.Object{networked()})
	w.answer(map[string]any{"phase": "Done", "result": map[string]any{"node": "a", "found": map[string]any{}}})
	w.typed.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now = w.now.Add(2 * keysWait)
		return false, nil, nil
	})
	answer, err := w.do(step.Action{ID: "c", Do: step.Node{NodeName: "a", Verb: step.VerbClean,
		Args: jsonOf(step.Residue{Annotations: []string{"flannel/*"}})}})
	var inventory step.Inventory
	if err == nil {
		err = json.Unmarshal(answer, &inventory)
	}
	if err != nil || inventory.Found.Count() != 0 {
		t.Errorf("found %+v: %v", inventory.Found, err)
	}
}
