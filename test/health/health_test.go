// Package health asks tools that know nothing of Theseus what they make of its Changes and Migrations: kstatus, and the
// health script for Argo CD in docs/examples, run by the interpreter that Argo CD uses.
package health

import (
	"os"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

const (
	inProgress = status.InProgressStatus
	failed     = status.FailedStatus
	current    = status.CurrentStatus
)

// TestMigration: what kstatus makes of a Migration at every phase.
func TestMigration(t *testing.T) {
	asks(t, "../../internal/run/controller/testdata/health.yaml", map[string]status.Status{
		"unseen": inProgress, "not-approved": inProgress, "approved": inProgress, "outside-window": inProgress,
		"running": inProgress, "retrying": inProgress, "rolling-back": inProgress, "paused-by-a-person": inProgress,
		"paused-by-the-cluster": failed, "window-ended": inProgress, "frozen": inProgress, "unfit": failed,
		"needs-a-person": failed, "continued": inProgress, "handed-over": inProgress, "rolled-back": failed,
		"stopped": failed, "done": current,
	})
}

// TestChange: what kstatus, and Argo CD with the script, make of a Change in every state.
func TestChange(t *testing.T) {
	const file = "../../internal/run/changes/testdata/health.yaml"
	asks(t, file, map[string]status.Status{
		"unseen": inProgress, "edited": inProgress, "planning": inProgress, "waiting": inProgress,
		"retrying": inProgress, "stale": inProgress, "refused": failed, "manifest-missing": failed, "blocked": failed,
		"too-many": failed, "planned": inProgress, "running": inProgress, "edited-too-late": inProgress,
		"paused": inProgress, "needs-a-person": failed, "rolled-back": failed, "done": current,
	})
	script := script(t)
	want := map[string]string{"unseen": "Progressing", "edited": "Progressing", "planning": "Progressing",
		"waiting": "Progressing", "retrying": "Progressing", "stale": "Progressing", "refused": "Degraded",
		"manifest-missing": "Degraded", "blocked": "Degraded", "too-many": "Degraded", "planned": "Progressing",
		"running": "Progressing", "edited-too-late": "Progressing", "paused": "Suspended",
		"needs-a-person": "Degraded", "rolled-back": "Degraded", "done": "Healthy"}
	for _, object := range objects(t, file) {
		got, message := health(t, script, object)
		if got != want[object.GetName()] || message == "" {
			t.Errorf("Argo CD: Change %s is %s (%s), want %s", object.GetName(), got, message, want[object.GetName()])
		}
	}
	bare := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(1)}}}
	if got, _ := health(t, script, bare); got != "Progressing" {
		t.Errorf("Argo CD: a Change without a status is %s", got)
	}
}

// asks compares what kstatus makes of the objects in a file, which must be exactly those of the list.
func asks(t *testing.T, file string, want map[string]status.Status) {
	t.Helper()
	all := objects(t, file)
	if len(all) != len(want) {
		t.Errorf("%s has %d objects, want %d", file, len(all), len(want))
	}
	for _, object := range all {
		got, err := status.Compute(&object)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != want[object.GetName()] || got.Message == "" && got.Status != current {
			t.Errorf("kstatus: %s %s is %s (%s), want %s", object.GetKind(), object.GetName(), got.Status, got.Message,
				want[object.GetName()])
		}
	}
}

func objects(t *testing.T, file string) (all []unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range strings.Split(string(text), "---\n")[1:] {
		var object unstructured.Unstructured
		text, err := yaml.YAMLToJSON([]byte(one))
		if err == nil {
			err = object.UnmarshalJSON(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	return all
}

// script is the health script for Argo CD.
func script(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/examples/argocd-cm.yaml")
	var patch struct{ Data map[string]string }
	if err == nil {
		err = yaml.UnmarshalStrict(text, &patch)
	}
	script := patch.Data["resource.customizations.health.theseus.dev_Change"]
	if err != nil || script == "" {
		t.Fatalf("no script: %v", err)
	}
	return script
}

// health runs a script as Argo CD does: the object is the global obj, and the script returns a table.
func health(t *testing.T, script string, object unstructured.Unstructured) (health, message string) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	state.SetGlobal("obj", toLua(state, object.Object))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %v", state.Get(-1))
	}
	return table.RawGetString("status").String(), table.RawGetString("message").String()
}

// toLua is a value of JSON in Lua.
func toLua(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, one := range v {
			table.RawSetString(key, toLua(state, one))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, one := range v {
			table.Append(toLua(state, one))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
