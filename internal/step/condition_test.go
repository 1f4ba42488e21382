package step

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// facts are one of each, and the fields that it has in plans and journals.
var facts = map[string]Fact{
	`"kind":"established","ref":{"apiVersion":"v1","kind":"Pod","name":"x"}`: Established{podX},
	`"kind":"rolled","ref":{"apiVersion":"v1","kind":"Pod","name":"x"}`:      Rolled{podX},
	`"kind":"pod-ready","node":"n","selector":"a=b","namespace":"s","cidrs":["10.0.0.0/8"]`: PodReady{"n", "a=b", "s",
		[]string{"10.0.0.0/8"}},
	`"kind":"node-ready","node":"n"`: NodeReady{"n"},
	`"kind":"no-pods","node":"n","cidrs":["10.0.0.0/8"],"leaveEnding":true,"leaveDaemons":true`: NoPods{"n",
		[]string{"10.0.0.0/8"}, true, true},
	`"kind":"pod-gone","node":"n","selector":"a=b","namespace":"s"`:                         PodGone{"n", "a=b", "s"},
	`"kind":"gone","ref":{"apiVersion":"v1","kind":"Pod","name":"x"}`:                       Gone{podX},
	`"kind":"nodes-among","nodes":["n","m"]`:                                                NodesAmong{[]string{"n", "m"}},
	`"kind":"renders","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"version":"v1.2.3"`: Renders{podX, "v1.2.3"},
	`"kind":"reports","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"reports":{"A":"True"}`: Reports{podX,
		map[string]string{"A": "True"}},
	`"kind":"has","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"fields":{"a":null}`: Has{podX,
		json.RawMessage(`{"a":null}`)},
	`"kind":"held","ref":{"apiVersion":"v1","kind":"Pod","name":"x"},"selector":"a=b","namespace":"s"`: Held{podX, "a=b",
		"s"},
	`"kind":"agent-says","node":"n","selector":"a=b","namespace":"s",` +
		`"says":{"container":"c","parameter":"p","value":"v"}`: AgentSays{"n", "a=b", "s", Saying{"c", "p", "v"}},
	`"kind":""`: nil,
}

var podX = Ref{APIVersion: "v1", Kind: "Pod", Name: "x"}

// TestConditionForm: a condition is written in the form of plans and journals, and the same condition is read from it,
// alone and as what an action waits for.
func TestConditionForm(t *testing.T) {
	for fields, is := range facts {
		text := `{` + fields + `}`
		var read Condition
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(is, read.Is); diff != "" {
			t.Errorf("%s is another condition:\n%s", text, diff)
		}
		written, err := json.Marshal(read)
		if err != nil || string(written) != text {
			t.Errorf("%s is written (%v)\n%s", text, err, written)
		}
		text = `{"id":"a","op":"wait","title":"t","condition":` + text + `}`
		var action Action
		if err := json.Unmarshal([]byte(text), &action); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(Operation(Wait{Condition{is}}), action.Do); diff != "" {
			t.Errorf("%s is another action:\n%s", text, diff)
		}
		written, err = json.Marshal(action)
		if err != nil || string(written) != text {
			t.Errorf("%s is written (%v)\n%s", text, err, written)
		}
	}
}

// TestEveryConditionField: a field of the document belongs to a kind of condition.
func TestEveryConditionField(t *testing.T) {
	all := ""
	for fields := range facts {
		all += fields
	}
	for i := range reflect.TypeFor[conditionDocument]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[conditionDocument]().Field(i).Tag.Get("json"), ",")
		if !strings.Contains(all, `"`+name+`":`) {
			t.Errorf("no kind of condition has the field %s", name)
		}
	}
}

// TestStrayConditionFields: a condition that says what its kind does not ask for is refused, and so is a kind that
// nobody knows, alone and as what an action waits for.
func TestStrayConditionFields(t *testing.T) {
	for text, words := range map[string]string{
		`{"kind":"node-ready","node":"n","selector":"a=b"}`:        `the condition "node-ready" has no field "selector"`,
		`{"kind":"nodes-among","nodes":["n"],"node":"n"}`:          `the condition "nodes-among" has no field "node"`,
		`{"kind":"no-pods","cidrs":["10.0.0.0/8"],"selector":"x"}`: `the condition "no-pods" has no field "selector"`,
		`{"kind":"gone","ref":{"kind":"Pod"},"leaveEnding":true}`:  `the condition "gone" has no field "leaveEnding"`,
		`{"kind":"rolled","ref":{"kind":"Pod"},"version":"v1"}`:    `the condition "rolled" has no field "version"`,
		`{"kind":"rolled","says":{"container":"c"}}`:               `the condition "rolled" has no field "says"`,
		`{"kind":"renders","cidrs":[]}`:                            `the condition "renders" has no field "cidrs"`,
		`{"kind":"has","reports":{"A":"True"}}`:                    `the condition "has" has no field "reports"`,
		`{"node":"n"}`:                                             `the condition "" has no field "node"`,
		`{"kind":"merry"}`:                                         `the condition "merry" is not known`,
		`{"kind":"gone","mood":1}`:                                 `unknown field "mood"`,
	} {
		var read Condition
		if err := json.Unmarshal([]byte(text), &read); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, without %q", text, err, words)
		}
		var action Action
		err := json.Unmarshal([]byte(`{"id":"a","op":"wait","title":"t","condition":`+text+`}`), &action)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s, waited for: %v, without %q", text, err, words)
		}
	}
}

// TestConditionAbout: a condition is about the object, the node and the namespace of pods that its fact names.
func TestConditionAbout(t *testing.T) {
	for fields, is := range facts {
		c := Condition{is}
		if got, want := c.Ref() == podX, strings.Contains(fields, `"ref":`); got != want {
			t.Errorf("%s: the object is %s", fields, c.Ref())
		}
		if got, want := c.Node() == "n", strings.Contains(fields, `"node":`); got != want {
			t.Errorf("%s: the node is %q", fields, c.Node())
		}
		if got, want := c.Namespace() == "s", strings.Contains(fields, `"namespace":`); got != want {
			t.Errorf("%s: the namespace is %q", fields, c.Namespace())
		}
		if !strings.Contains(fields, `"kind":"`+string(c.Kind())+`"`) {
			t.Errorf("%s: the kind is %q", fields, c.Kind())
		}
	}
}
