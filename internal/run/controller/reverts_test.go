package controller

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// memory is a journal, a control that wants the run to go on, and a clock on which every look takes a minute.
type memory struct {
	records []engine.Record
	now     time.Time
}

func (m *memory) Append(_ context.Context, records ...engine.Record) error {
	m.records = append(m.records, records...)
	return nil
}
func (m *memory) Records(context.Context) ([]engine.Record, error) { return m.records, nil }
func (m *memory) Desire(context.Context) (v1alpha1.Desire, error)  { return v1alpha1.DesireRun, nil }
func (m *memory) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }
func (m *memory) Now() time.Time                                   { m.now = m.now.Add(time.Minute); return m.now }
func (m *memory) Ask(context.Context, step.Gate, func(context.Context) error) (engine.Verdict, error) {
	return engine.Verdict{Pass: true}, nil
}

// pausesWhenTakenBack: after another manager has put back what was there before the run wrote it, the run pauses and
// names who did it. It goes on once the change is there again. Writes of others that take nothing back do not pause it.
func pausesWhenTakenBack(t *testing.T, admin *kube.Client) {
	t.Helper()
	maps := admin.Typed.CoreV1().ConfigMaps("default")
	patch := func(manager, name, text string) {
		t.Helper()
		if _, err := maps.Patch(t.Context(), name, types.MergePatchType, []byte(text),
			metav1.PatchOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}
	ref := func(name string) *step.Ref {
		return &step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}
	}
	object := func(name, field string, value any) *unstructured.Unstructured {
		one := map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "namespace": "default"}}
		one[field] = value
		return &unstructured.Unstructured{Object: one}
	}
	create := func(name string) {
		t.Helper()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
			Data: map[string]string{"backend": "vxlan", "else": "a"}}
		if _, err := maps.Create(t.Context(), object,
			metav1.CreateOptions{FieldManager: "argocd-application-controller"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		disturb func()
		says    []string
	}{
		{"nothing", func() {}, nil},
		{"another field", func() { patch("someone", "patched", `{"data":{"else":"b"}}`) }, nil},
		{"an annotation of an object that got a label",
			func() { patch("someone", "labelled", `{"metadata":{"annotations":{"a":"b"}}}`) }, nil},
		{"an annotation of an object whose content the server writes otherwise",
			func() { patch("someone", "stubbed", `{"metadata":{"annotations":{"a":"b"}}}`) }, nil},
		{"what was applied", func() {
			patch("argocd-application-controller", "applied", `{"data":{"backend":"vxlan"}}`)
		},
			[]string{"ConfigMap/default/applied has its former content again", "apply the object of the action c"}},
		{"another value", func() { patch("someone", "patched", `{"data":{"backend":"udp"}}`) }, nil},
		{"a patch", func() {

			patch("argocd-application-controller", "patched", `{"data":{"backend":"vxlan"}}`)
		},
			[]string{"argocd-application-controller reverted what this run wrote: ConfigMap/default/patched",
				`kubectl -n default patch configmap/patched --type merge -p '{"data":{"backend":"none"}}'`}},
		{"a deletion", func() { create("deleted") }, []string{"ConfigMap/default/deleted has its former content again",
			"kubectl -n default delete configmap/deleted"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := []string{"patched", "deleted", "applied", "labelled", "stubbed"}
			for _, name := range all {
				create(name)
			}
			defer func() {
				for _, name := range all {
					_ = maps.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
				}
			}()
			p := &plan.Plan{Name: "p", Hash: "h", Steps: []step.Step{
				{ID: "one", Actions: []step.Action{{ID: "a", Do: step.Patch{Ref: *ref("patched"),
					Merge: json.RawMessage(`{"data":{"backend":"none"}}`)}},
					{ID: "b", Do: step.Delete{Ref: *ref("deleted")}},
					{ID: "c", Do: step.Apply{Object: object("applied", "data", map[string]any{"backend": "none"})}},
					{ID: "d", Do: step.Apply{Object: object("labelled", "metadata", map[string]any{"name": "labelled",
						"namespace": "default", "labels": map[string]any{"a": "b"}})}},
					{ID: "e", Do: step.Apply{Object: object("stubbed", "metadata", map[string]any{"name": "stubbed",
						"namespace": "default", "creationTimestamp": nil, "labels": map[string]any{"a": "b"}})}}}},
				{ID: "two"}, {ID: "three"}}}
			m := &memory{now: time.Now()}
			run := func(disturb func()) engine.Outcome {
				t.Helper()
				actor := &kube.Actor{Typed: admin.Typed, Dynamic: admin.Dynamic, Mapper: admin.Mapper,
					Clock: m, Migration: "p"}
				reverts := &kube.Reverts{Actor: actor, Steps: p.Steps}
				reverts.Learn(m.records...)
				outcome, err := engine.Run(t.Context(), p,
					engine.Deps{Actor: actor, Gate: m, Journal: m, Control: m, Clock: m, Hindrance: reverts.Found,
						Notify: func(r engine.Record) {
							reverts.Learn(r)
							if r.Event == engine.StepDone && r.Step == "one" {
								disturb()
							}
						}})
				if err != nil {
					t.Fatal(err)
				}
				return outcome
			}
			outcome := run(test.disturb)
			if test.says == nil {
				if outcome.End != engine.EndDone {
					t.Errorf("%s: %s", outcome.End, outcome.Cause)
				}
				return
			}
			for _, says := range test.says {
				if outcome.End != engine.EndPaused || !strings.Contains(outcome.Cause, says) {
					t.Errorf("%s: %s, want %q", outcome.End, outcome.Cause, says)
				}
			}
			if outcome = run(nil); outcome.End != engine.EndPaused {
				t.Errorf("resumed before the change is back: %s: %s", outcome.End, outcome.Cause)
			}
			patch("ann", "patched", `{"data":{"backend":"none"}}`)
			patch("ann", "applied", `{"data":{"backend":"none"}}`)
			if err := maps.Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil &&
				test.name == "a deletion" {
				t.Fatal(err)
			}
			if outcome = run(nil); outcome.End != engine.EndDone {
				t.Errorf("resumed: %s: %s", outcome.End, outcome.Cause)
			}
		})
	}
}
