package step

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// operations are one of each, and the fields that it has in plans and journals.
var operations = map[string]Operation{
	`"op":"apply","title":"t","object":{"kind":"Pod","n":1}`: Apply{&unstructured.Unstructured{
		Object: map[string]any{"kind": "Pod", "n": int64(1)}}},
	`"op":"delete","title":"t","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"leaveEnding":true`: Delete{
		Ref{APIVersion: "v1", Kind: "Pod", Name: "x"}, true},
	`"op":"patch","title":"t","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"patch":{"a":null}`: Patch{
		Ref{APIVersion: "v1", Kind: "Pod", Name: "x"}, json.RawMessage(`{"a":null}`)},
	`"op":"evict","title":"t","pods":{"node":"n","cidrs":["10.0.0.0/8"],"leaveEnding":true}`: Evict{
		PodSet{Node: "n", CIDRs: []string{"10.0.0.0/8"}, LeaveEnding: true}},
	`"op":"restart","title":"t","ref":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"x"},"nodeName":"n","anew":true,` +
		`"mark":"m","timeout":"1m0s"`: Restart{Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x"}, "n", true, "m"},
	`"op":"node","title":"t","nodeName":"n","verb":"join","args":{"old":["a"]}`: Node{"n", "join",
		json.RawMessage(`{"old":["a"]}`)},
	`"op":"wait","title":"t","condition":{"kind":"node-ready","node":"n"}`: Wait{Condition{Is: NodeReady{Node: "n"}}},
	`"op":"taint","title":"t","nodeName":"n","taint":{"key":"k","effect":"NoSchedule"}`: Taint{"n",
		corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}},
	`"op":"untaint","title":"t","nodeName":"n","taint":{"key":"k","effect":"NoSchedule"}`: Untaint{"n",
		corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}},
	`"op":"probe","title":"t","paths":{}`: Probe{},
	`"op":"hook","title":"t","nodeName":"n","verb":"add","args":{"command":["x"],"wave":"w"}`: Hook{"n", "add",
		json.RawMessage(`{"command":["x"],"wave":"w"}`)},
	`"op":"command","title":"t"`:                        Command{},
	`"op":"await","title":"t"`:                          Await{},
	`"op":"new-pods","title":"t"`:                       NewPods{},
	`"op":"sample","title":"t"`:                         Sample{},
	`"op":"watch","title":"t","beside":true`:            Watch{},
	`"op":"dns","title":"t","verb":"swap","args":{}`:    DNS{"swap", json.RawMessage(`{}`)},
	`"op":"mirror","title":"t","verb":"sync","args":{}`: Mirror{"sync", json.RawMessage(`{}`)},
	`"op":"","title":"t"`:                               nil,
}

// TestForm: an action is written in the form of plans and journals, and the same action is read from it.
func TestForm(t *testing.T) {
	for fields, do := range operations {
		text := `{"id":"a",` + fields + `}`
		var read Action
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(do, read.Do); diff != "" || read.ID != "a" || read.Title != "t" {
			t.Errorf("%s is another action:\n%s", text, diff)
		}
		written, err := json.Marshal(read)
		if err != nil || string(written) != text {
			t.Errorf("%s is written (%v)\n%s", text, err, written)
		}
	}
}

// TestDocument: what encoders get of a step, so as to be faster, has the members of the step.
func TestDocument(t *testing.T) {
	all := Step{ID: "s", Title: "t", Before: []Condition{{Is: NodeReady{Node: "n"}}}, Gate: &Gate{Title: "g"},
		Alone: true}
	for _, do := range operations {
		all.Actions = append(all.Actions, Action{ID: "a", Title: "<t>", Do: do, Together: true, Timeout: 1})
	}
	for _, is := range facts {
		all.After = append(all.After, Condition{is})
	}
	undone := all
	undone.Undo = all.Actions[:3]
	for _, s := range []Step{{}, {ID: "s", Actions: []Action{}, Undo: []Action{}}, all, undone} {
		want, errWant := json.Marshal(&s)
		got, errGot := json.Marshal(s.Document())
		if errWant != nil || errGot != nil || !canonical.Same(want, got) || len(want) != len(got) {
			t.Errorf("%s (%v)\nis written %s (%v)", want, errWant, got, errGot)
		}
	}
}

// TestEveryField: a field of the document belongs to an operation, or to every action.
func TestEveryField(t *testing.T) {
	all := ""
	for fields := range operations {
		all += fields
	}
	for i := range reflect.TypeFor[document]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[document]().Field(i).Tag.Get("json"), ",")
		if name != "id" && !strings.Contains(all, `"`+name+`":`) {
			t.Errorf("no operation has the field %s", name)
		}
	}
}

// TestStrayFields: an action that says what its operation does not ask for is refused, and so is one that nobody knows.
func TestStrayFields(t *testing.T) {
	for text, words := range map[string]string{
		`{"id":"a","op":"delete","title":"t","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"nodeName":"n"}`: `action a ` +
			`(t): the operation "delete" has no field "nodeName"`,
		`{"id":"a","op":"apply","object":{"kind":"Pod"},"ref":{"kind":"Pod"}}`:           `"apply" has no field "ref"`,
		`{"id":"a","op":"apply","object":{"kind":"Pod"},"leaveEnding":true}`:             `has no field "leaveEnding"`,
		`{"id":"a","op":"node","nodeName":"n","verb":"join","pods":{"node":"m"}}`:        `has no field "pods"`,
		`{"id":"a","op":"command","args":{}}`:                                            `has no field "args"`,
		`{"id":"a","title":"t","taint":{"key":"k"}}`:                                     `has no field "taint"`,
		`{"id":"a","op":"dance","title":"t"}`:                                            `action a (t): the operation "dance" is not known`,
		`{"id":"a","op":"watch","speed":1}`:                                              `unknown field "speed"`,
		`{"id":"a","op":"wait","condition":{"kind":"node-ready"},"paths":{}}`:            `has no field "paths"`,
		`{"id":"a","op":"evict","pods":{"node":"n","cidrs":[]},"condition":{"kind":""}}`: `has no field "condition"`,
	} {
		var read Action
		if err := json.Unmarshal([]byte(text), &read); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, without %q", text, err, words)
		}
	}
}

// TestNode: an action is about the node that its operation names.
func TestNode(t *testing.T) {
	for fields, do := range operations {
		want := ""
		if strings.Contains(fields, `"nodeName":"n"`) || strings.Contains(fields, `"pods":`) {
			want = "n"
		}
		if got := (Action{Do: do}).Node(); got != want {
			t.Errorf("%s: the node is %q", fields, got)
		}
	}
}

// TestEdit: a copy of an action stays as it is.
func TestEdit(t *testing.T) {
	a := Action{Do: Evict{PodSet{Node: "a"}}}
	b := a
	Edit(&b, func(do *Evict) { do.Pods.Node = "b" })
	if a.Node() != "a" || b.Node() != "b" {
		t.Errorf("%s, %s", a.Node(), b.Node())
	}
}
