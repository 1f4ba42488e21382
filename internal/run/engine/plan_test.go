package engine_test

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

func object(kind, name string, fields ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind,
		"metadata": map[string]any{"name": name}}}
	for _, field := range fields {
		u.Object[field] = "set"
	}
	return u
}

func ref(kind, name string) *step.Ref { return &step.Ref{APIVersion: "v1", Kind: kind, Name: name} }

func apply(id, kind, name string, fields ...string) step.Action {
	return step.Action{ID: id, Do: step.Apply{
		Object: object(kind, name, fields...)}, Title: "apply " + kind + "/" + name}
}

func remove(id, kind, name string) step.Action {
	return step.Action{ID: id, Do: step.Delete{Ref: *ref(kind, name)}, Title: "delete " + kind + "/" + name}
}

func patch(id, kind, name, patch string) step.Action {
	return step.Action{ID: id, Do: step.Patch{Ref: *ref(kind, name),
		Merge: json.RawMessage(patch)}, Title: "patch " + kind + "/" + name}
}

func node(id, name, verb string) step.Action {
	return step.Action{ID: id, Do: step.Node{NodeName: name, Verb: verb}, Title: verb + " on " + name}
}

func evict(id, name, network string) step.Action {
	return step.Action{ID: id, Do: step.Evict{
		Pods: step.PodSet{Node: name, CIDRs: []string{network}}}, Title: "move pods of " + name}
}

func probe(id string, old, new []string) step.Action {
	return step.Action{ID: id, Do: step.Probe{Paths: step.PathSet{Old: old, New: new}}, Title: "measure"}
}

// next to marks actions, all but the first, as done together.
func beside(actions ...step.Action) []step.Action {
	for i := range actions[1:] {
		actions[1+i].Together = true
	}
	return actions
}

func gate(title string) *step.Gate { return &step.Gate{Title: title} }

// migration is a network replacement in the shape of the real one, on three nodes: 15 steps, of which the
// twelfth is the first after which there is no way back.
func migration() *plan.Plan {
	nodes := []string{"a", "b", "c"}
	exists := func(kind, name string) []step.Condition {
		return []step.Condition{{Is: step.Rolled{Ref: *ref(kind, name)}}}
	}
	steps := []step.Step{
		{ID: "prepare", Actions: []step.Action{apply("ns", "Namespace", "theseus-system"),
			apply("crd", "CRD", "nodetasks"), apply("agent", "DaemonSet", "theseus-agent")},
			After: exists("DaemonSet", "theseus-agent")},
		{ID: "probes", Actions: []step.Action{apply("old-a", "Probe", "old-a"), apply("old-b", "Probe", "old-b"),
			apply("old-c", "Probe", "old-c"), probe("measure", nodes, nil)}, Gate: gate("baseline")},
		{ID: "join", Before: exists("DaemonSet", "theseus-agent"), Actions: beside(node("join-a", "a", step.VerbJoin),
			node("join-b", "b", step.VerbJoin), node("join-c", "c", step.VerbJoin)), Gate: gate("joined"),
			Undo: beside(node("unjoin-a", "a", step.VerbPart), node("unjoin-b", "b", step.VerbPart),
				node("unjoin-c", "c", step.VerbPart))},
		{ID: "taint", Actions: []step.Action{patch("taint-a", "Node", "a", `{"pending":"yes"}`),
			patch("taint-b", "Node", "b", `{"pending":"yes"}`), patch("taint-c", "Node", "c", `{"pending":"yes"}`)}},
		{ID: "target", Actions: []step.Action{apply("target-ns", "Namespace", "calico-system"),
			apply("pool", "IPPool", "new"), apply("target-ds", "DaemonSet", "calico-node", "staged")},
			After: exists("DaemonSet", "calico-node")},
		{ID: "label-canary", Actions: []step.Action{patch("label-a", "Node", "a", `{"labels":{"target":"true"}}`)},
			Gate: gate("canary")},
		{ID: "label-rest", Actions: []step.Action{patch("label-b", "Node", "b", `{"labels":{"target":"true"}}`),
			patch("label-c", "Node", "c", `{"labels":{"target":"true"}}`)}, Gate: gate("everywhere")},
	}
	for i, n := range nodes {
		steps = append(steps, step.Step{
			ID: "wave-1/" + n + "/switch", Node: n, Before: exists("DaemonSet", "calico-node"),
			Actions: []step.Action{patch("untaint-"+n, "Node", n, `{"pending":null}`),
				node("activate-"+n, n, step.VerbActivate), apply("new-"+n, "Probe", "new-"+n),
				probe("measure-"+n, nodes, nodes[:i+1]), evict("evict-"+n, n, "old")},
			Gate: gate("switched-" + n),
			Undo: []step.Action{node("deactivate-"+n, n, step.VerbDeactivate), probe("unmeasure-"+n, nodes, nodes[:i]),
				remove("unnew-"+n, "Probe", "new-"+n), evict("back-"+n, n, "new"),
				patch("retaint-"+n, "Node", n, `{"pending":"yes"}`)},
		})
	}
	steps = append(steps,
		step.Step{ID: "verify", After: []step.Condition{{Is: step.NoPods{CIDRs: []string{"old"}}}},
			Gate: gate("bake")},
		step.Step{ID: "remove-source", NoReturn: true, Actions: []step.Action{remove("unold-a", "Probe", "old-a"),
			remove("unold-b", "Probe", "old-b"), remove("unold-c", "Probe", "old-c"), probe("measure-new", nil, nodes),
			remove("source", "DaemonSet", "flannel")}, Gate: gate("removed")},
		step.Step{ID: "clean", Before: []step.Condition{{Is: step.Gone{Ref: *ref("DaemonSet", "flannel")}}},
			Actions: beside(node("clean-a", "a", step.VerbClean), node("clean-b", "b", step.VerbClean),
				node("clean-c", "c", step.VerbClean)), Gate: gate("cleaned")},
		step.Step{ID: "final", Actions: []step.Action{apply("target-final", "DaemonSet", "calico-node", "final"),
			node("part-a", "a", step.VerbPart), node("part-b", "b", step.VerbPart),
			node("part-c", "c", step.VerbPart)}},
		step.Step{ID: "leave",
			Actions: []step.Action{probe("unmeasure", nil, nil), remove("unnew-all-a", "Probe", "new-a"),
				remove("unnew-all-b", "Probe", "new-b"), remove("unnew-all-c", "Probe", "new-c"),
				remove("unagent", "DaemonSet", "theseus-agent")}},
	)
	return &plan.Plan{Name: "flannel-to-calico", Hash: "h1", Steps: steps}
}

// before is the cluster that migration is for.
func before() *world {
	w := newWorld()
	w.objects["DaemonSet/flannel"] = object("DaemonSet", "flannel").Object
	w.objects["Namespace/calico-system"] = object("Namespace", "calico-system").Object // was there before: stays
	for _, n := range []string{"a", "b", "c"} {
		w.objects["Node/"+n] = map[string]any{"labels": map[string]any{"zone": n}}
		for i := range 3 {
			w.objects[fmt.Sprintf("Pod/web-%s-%d", n, i)] = map[string]any{"node": n, "network": "old"}
		}
	}
	return w
}
