package run

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// holding is a cluster with the Migration m and its windows, and with annotations of Theseus' namespace.
func holding(t *testing.T, windows []v1alpha1.Window, annotations map[string]any) *kube.Client {
	migration := &v1alpha1.Migration{Spec: v1alpha1.MigrationSpec{Windows: windows}}
	migration.APIVersion, migration.Kind, migration.Name, migration.Namespace = v1alpha1.APIVersion,
		"Migration", "m", v1alpha1.Namespace
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(migration)
	if err != nil {
		t.Fatal(err)
	}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	for _, object := range []struct {
		of        schema.GroupVersionResource
		namespace string
		fields    map[string]any
	}{
		{schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "migrations"},
			v1alpha1.Namespace, fields},
		{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "",
			map[string]any{"apiVersion": "v1", "kind": "Namespace",
				"metadata": map[string]any{"name": v1alpha1.Namespace, "annotations": annotations}}},
	} {
		if err := client.Tracker().Create(object.of, &unstructured.Unstructured{Object: object.fields},
			object.namespace); err != nil {
			t.Fatal(err)
		}
	}
	return &kube.Client{Dynamic: client}
}

// TestHold: what a run reads before each step: the freeze of the cluster, and the windows of its Migration as they are
// then.
func TestHold(t *testing.T) {
	day := func(t time.Time) string { return t.UTC().Format("Mon") }
	today := v1alpha1.Window{Days: []string{day(time.Now()), day(time.Now().Add(24 * time.Hour))}, From: "00:00",
		To: "24:00", TimeZone: "UTC"}
	later := v1alpha1.Window{Days: []string{day(time.Now().Add(72 * time.Hour))}, From: "00:00",
		To: "24:00", TimeZone: "UTC"}
	for _, test := range []struct {
		name        string
		annotations map[string]any
		windows     []v1alpha1.Window
		anyTime     bool
		takes       time.Duration
		result      string
		says        string
	}{
		{"nothing", nil, nil, false, time.Hour, "", ""},
		{"another annotation", map[string]any{"theseus.dev/other": "x"}, nil, false, 0, "", ""},
		{"frozen", map[string]any{v1alpha1.AnnotationFreeze: "incident 12"}, nil, false, 0, engine.ResultFrozen,
			"frozen: incident 12; kubectl annotate"},
		{"frozen without a reason", map[string]any{v1alpha1.AnnotationFreeze: ""}, nil, false, 0, engine.ResultFrozen,
			"frozen: no reason is given; "},
		{"frozen, in a window", map[string]any{v1alpha1.AnnotationFreeze: "x"}, []v1alpha1.Window{today},
			false, 0, engine.ResultFrozen, ""},
		{"frozen, where windows do not count", map[string]any{v1alpha1.AnnotationFreeze: "x"}, nil,
			true, 0, engine.ResultFrozen, ""},
		{"in a window", nil, []v1alpha1.Window{today}, false, time.Minute, "", ""},
		{"outside", nil, []v1alpha1.Window{later}, false, 0, engine.ResultOutsideWindow,
			"outside of its windows; the next window opens " + day(time.Now().Add(72*time.Hour))},
		{"outside, where windows do not count", nil, []v1alpha1.Window{later}, true, 0, "", ""},
		{"no window is long enough", nil, []v1alpha1.Window{today}, false, 72 * time.Hour, engine.ResultOutsideWindow,
			"no window is long enough"},
		{"an unknown zone", nil, []v1alpha1.Window{{From: "22:00", To: "05:00", TimeZone: "Mars"}}, false, 0,
			engine.ResultOutsideWindow, `unknown time zone "Mars"`},
	} {
		r := &Run{Client: holding(t, test.windows, test.annotations), Plan: &plan.Plan{Name: "m"},
			AnyTime: test.anyTime}
		hold, err := r.hold(t.Context(), &step.Step{Estimate: step.Duration(test.takes)})
		if err != nil || hold.Result != test.result || !strings.Contains(hold.Cause, test.says) {
			t.Errorf("%s: %+v, %v; want %s, %q", test.name, hold, err, test.result, test.says)
		}
	}
	for want, last := range map[bool]engine.Record{true: {Event: engine.Paused, Result: engine.ResultFrozen},
		false: {Event: engine.Paused}} {
		if held([]engine.Record{{Event: engine.Started}, last, {Event: engine.Resumed}}) != want {
			t.Errorf("%+v: held is not %t", last, want)
		}
	}
	if held([]engine.Record{{Event: engine.Started}, {Event: engine.Paused, Result: engine.ResultMeasuring},
		{Event: engine.Resumed}}) {
		t.Error("what others change is not measured: its losses would not count")
	}
	passed := engine.Record{Event: engine.GateAnswer, Verdict: &engine.Verdict{Pass: true}}
	if held([]engine.Record{{Event: engine.Paused, Result: engine.ResultFrozen}, {Event: engine.Resumed}, passed}) {
		t.Error("held, after a gate has passed")
	}
	r := &Run{Client: &kube.Client{Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())},
		Plan: &plan.Plan{Name: "m"}, AnyTime: true}
	if hold, err := r.hold(t.Context(), &step.Step{}); err != nil || hold != (engine.Hold{}) {
		t.Errorf("without the namespace: %+v, %v", hold, err)
	}
}

// TestWindowEnds: a run stops at the end of each window of its plan until somebody continues it. Windows of the
// Migration decide instead where it has any, and want room for all steps up to the next stop.
func TestWindowEnds(t *testing.T) {
	stop := step.Step{ID: "check", Stop: true, Estimate: step.Duration(time.Minute)}
	p := &plan.Plan{Name: "m", Window: step.Duration(72 * time.Hour),
		Steps: []step.Step{{ID: "a"}, stop, {ID: "b", Estimate: step.Duration(71 * time.Hour)}}}
	day := time.Now().UTC().Format("Mon")
	today := []v1alpha1.Window{{Days: []string{day, time.Now().UTC().Add(24 * time.Hour).Format("Mon")}, From: "00:00",
		To: "24:00", TimeZone: "UTC"}}
	for _, test := range []struct {
		name    string
		next    int
		windows []v1alpha1.Window
		stood   bool
		result  string
		says    string
	}{
		{"within a window", 2, nil, false, "", ""},
		{"at its end", 1, nil, false, engine.ResultWindowEnded, "window 1 of 2 of the plan ends here"},
		{"continued", 1, nil, true, "", ""},
		{"a window of the Migration is too short for the next steps",
			1, today, true, engine.ResultOutsideWindow, "no window is long enough"},
	} {
		r := &Run{Client: holding(t, test.windows, nil), Plan: p, stood: test.stood}
		hold, err := r.hold(t.Context(), &p.Steps[test.next])
		if err != nil || hold.Result != test.result || !strings.Contains(hold.Cause, test.says) {
			t.Errorf("%s: %+v, %v; want %s, %q", test.name, hold, err, test.result, test.says)
		}
	}
	ended, resumed := engine.Record{Event: engine.Paused, Result: engine.ResultWindowEnded},
		engine.Record{Event: engine.Resumed}
	failed := engine.Record{Event: engine.Finished, Result: engine.ResultNeedsPerson}
	for want, records := range map[bool][]engine.Record{
		true: {{Event: engine.StepDone}, ended, resumed, {Event: engine.StepBegan}, {Event: engine.TakingBack},
			{Event: engine.StepUndone}, failed, resumed},
		false: {ended, resumed, {Event: engine.StepBegan}, {Event: engine.StepDone},
			{Event: engine.Paused, Result: engine.ResultFrozen}, resumed, {Event: engine.Paused}, resumed},
	} {
		got := false
		for _, r := range records {
			got = stood(got, r)
		}
		if got != want {
			t.Errorf("%v: stood is %t", records, got)
		}
	}
}

// TestMeasuring: only the step that awaits the end of changes of others is held back, until the user says so.
func TestMeasuring(t *testing.T) {
	awaits, other := &step.Step{Actions: []step.Action{{Do: step.Await{}}}},
		&step.Step{Actions: []step.Action{{Do: step.Watch{}}}}
	for _, test := range []struct {
		next  *step.Step
		ended bool
		want  string
	}{{awaits, false, engine.ResultMeasuring}, {awaits, true, ""}, {other, false, ""}} {
		hold, err := (&Run{Ended: test.ended}).measuring(t.Context(), test.next)
		if err != nil || hold.Result != test.want {
			t.Errorf("%+v: %+v, %v", test, hold, err)
		}
	}
}
