package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestInverses judges inverses as somebody who may write to the journal would plant them, in a chain that holds: only
// what the plan's step allows on the same object is done.
func TestInverses(t *testing.T) {
	restore := func(kind, name string) step.Action { return step.Action{Do: step.Apply{Object: object(kind, name)}} }
	taint := func(op step.Op, node, key string) step.Action {
		do := step.Taint{NodeName: node, Taint: corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}}
		if op == step.OpUntaint {
			return step.Action{ID: "a", Do: step.Untaint(do)}
		}
		return step.Action{ID: "a", Do: do}
	}
	verb := func(node, verb, args string) step.Action {
		return step.Action{ID: "a", Do: step.Node{NodeName: node, Verb: verb, Args: json.RawMessage(args)}}
	}
	there := shift.SwapArgs{Transaction: zone.Transaction{Zone: "z",
		Units: []zone.Unit{{Name: "a"}, {Name: "b", After: []zone.RRSet{{Name: "b"}}}}}}
	back := shift.SwapArgs{Transaction: zone.Transaction{Zone: "z", Units: there.Inverse().Units[1:]}, Yield: true}
	elsewhere := back
	elsewhere.Units = []zone.Unit{{Name: "b", Before: back.Units[0].Before, After: []zone.RRSet{{Name: "evil"}}}}
	names := func(verb string, args any) step.Action { return act(t, step.OpDNS, verb, args) }
	cloud := func(endpoint string, back bool) step.Action {
		return act(t, step.OpMirror, mirror.Cloud, mirror.CloudArgs{Endpoint: endpoint, Back: back})
	}
	for name, test := range map[string]struct {
		action  step.Action
		inverse step.Action
		allowed bool
	}{
		"delete what was made":     {apply("a", "DaemonSet", "x"), remove("", "DaemonSet", "x"), true},
		"restore what was changed": {apply("a", "DaemonSet", "x"), restore("DaemonSet", "x"), true},
		"delete another":           {apply("a", "DaemonSet", "x"), remove("", "DaemonSet", "y"), false},
		"delete another kind":      {apply("a", "DaemonSet", "x"), remove("", "Namespace", "x"), false},
		"apply another":            {apply("a", "DaemonSet", "x"), restore("DaemonSet", "y"), false},
		"restore what was deleted": {remove("a", "ConfigMap", "x"), restore("ConfigMap", "x"), true},
		"delete what was deleted":  {remove("a", "ConfigMap", "x"), remove("", "ConfigMap", "x"), false},
		"patch back":               {patch("a", "Node", "n", `{}`), patch("", "Node", "n", `{}`), true},
		"patch another node":       {patch("a", "Node", "n", `{}`), patch("", "Node", "m", `{}`), false},
		"untaint":                  {taint(step.OpTaint, "n", "k"), taint(step.OpUntaint, "n", "k"), true},
		"another taint":            {taint(step.OpTaint, "n", "k"), taint(step.OpUntaint, "n", "other"), false},
		"a verb back": {verb("n", step.VerbJoin, `{"old":["a"]}`),
			verb("n", step.VerbPart, `{ "old": [ "a" ] }`), true},
		"a verb elsewhere": {verb("n", step.VerbJoin, `{}`), verb("m", step.VerbPart, `{}`), false},
		"a verb with other arguments": {verb("n", step.VerbActivate, `{"staged":"a"}`),
			verb("n", step.VerbDeactivate, `{"staged":"b"}`), false},
		"a verb that deletes": {verb("n", step.VerbJoin, `{}`), verb("n", step.VerbClean, `{}`), false},
		"a hook": {apply("a", "DaemonSet", "x"),
			step.Action{Do: step.Hook{Args: json.RawMessage(`{"command":["sh"]}`)}}, false},
		"a hook for a hook": {step.Action{ID: "a", Do: step.Hook{}}, step.Action{Do: step.Hook{}}, false},
		"an eviction":       {evict("a", "n", "10.0.0.0/8"), evict("", "n", "10.0.0.0/8"), false},
		"names home":        {names(shift.Swap, there), names(shift.Swap, back), true},
		"names elsewhere":   {names(shift.Swap, there), names(shift.Swap, elsewhere), false},
		"seen as before": {names(shift.Prove, shift.ProveArgs{Back: []shift.SeeArgs{{Zone: "z"}}}),
			names(shift.See, []shift.SeeArgs{{Zone: "z"}}), true},
		"a thaw": {act(t, step.OpMirror, mirror.Freeze, mirror.FreezeArgs{}),
			act(t, step.OpMirror, mirror.Thaw, struct{}{}), true},
		"a command for a freeze": {act(t, step.OpMirror, mirror.Freeze, mirror.FreezeArgs{}),
			act(t, step.OpMirror, mirror.Change, mirror.Switch{Command: "sh"}), false},
		"the cloud back":          {cloud("aws", false), cloud("aws", true), true},
		"the cloud, elsewhere":    {cloud("aws", false), cloud("evil", true), false},
		"the cloud, the same way": {cloud("aws", false), cloud("aws", false), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Hash: "h", Steps: []step.Step{{ID: "s", Actions: []step.Action{test.action}}}}
			test.inverse.ID = "a/undo"
			_, err := engine.Admit(p, intended(t, "a", test.inverse))
			if test.allowed && err != nil || !test.allowed && (!errors.Is(err, engine.ErrNeedsPerson) ||
				engine.HintOf(err) == "" || !strings.Contains(err.Error(), "record 3")) {
				t.Errorf("allowed %v: %v", test.allowed, err)
			}
		})
	}
	p := &plan.Plan{Hash: "h", Steps: []step.Step{{ID: "s", Actions: []step.Action{apply("a", "DaemonSet", "x")}}}}
	for _, action := range []string{"a", "other"} {
		planted := remove("", "DaemonSet", "x")
		planted.ID = "b/undo"
		if _, err := engine.Admit(p, intended(t, action, planted)); !errors.Is(err, engine.ErrNeedsPerson) {
			t.Errorf("an inverse of action %s under another's name: %v", action, err)
		}
	}
}

// act is an action with arguments.
func act(t *testing.T, op step.Op, verb string, args any) step.Action {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	if op == step.OpMirror {
		return step.Action{ID: "a", Do: step.Mirror{Verb: verb, Args: text}}
	}
	return step.Action{ID: "a", Do: step.DNS{Verb: verb, Args: text}}
}

// intended is a journal whose chain holds, and that says how an action is taken back.
func intended(t *testing.T, action string, inverse step.Action) []engine.Record {
	t.Helper()
	records := []engine.Record{{Seq: 1, Event: engine.Started, Data: json.RawMessage(`{"plan":"h"}`)},
		{Seq: 2, Event: engine.StepBegan, Step: "s"},
		{Seq: 3, Event: engine.Intended, Step: "s", Action: action, Inverse: &inverse}}
	head := ""
	for i := range records {
		head = chain(t, head, &records[i])
	}
	return records
}

// TestInverseOfAnotherObject: a run does not even begin with such a journal, and so changes nothing.
func TestInverseOfAnotherObject(t *testing.T) {
	p := &plan.Plan{Hash: "h", Name: "p",
		Steps: []step.Step{{ID: "s", Actions: []step.Action{apply("a", "DaemonSet", "x")}}}}
	planted := step.Action{ID: "a/undo", Do: step.Apply{Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "evil"}}}}}
	w := newWorld()
	w.hook = func(point string) error { t.Errorf("%s", point); return nil }
	_, err := engine.Run(t.Context(), p, engine.Deps{Actor: w, Gate: w, Control: w, Clock: &clock{},
		Journal: &disk{records: intended(t, "a", planted), hook: func(string) error { return nil }}})
	if !errors.Is(err, engine.ErrNeedsPerson) || !strings.Contains(err.Error(), "apply ClusterRoleBinding/evil") {
		t.Errorf("%v", err)
	}
}
