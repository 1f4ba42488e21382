package kube

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestLook: facts are asked for, and only what was made to ask for them is taken away again.
func TestLook(t *testing.T) {
	const there, made = "{apiVersion: v1, kind: ConfigMap, metadata: {name: there, namespace: x}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: x}}"
	install := func(t *testing.T) []step.Action {
		return []step.Action{
			{ID: "1", Op: step.Apply, Object: parse(t, there), Title: "create there"},
			{ID: "2", Op: step.Apply, Object: parse(t, made), Title: "create made"},
		}
	}
	for _, test := range []struct {
		name, err string
		status    map[string]any
	}{
		{"facts", "", map[string]any{"phase": "Done", "result": map[string]any{"node": "a", "kernel": "6.1", "host": map[string]any{}}}},
		{"a node that cannot be looked at", "look at a: the agent of a says: no /proc", map[string]any{"phase": "Failed", "message": "no /proc"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, nil, there)
			w.answer(test.status)
			facts, err := w.Look(t.Context(), install(t), []Sight{{Node: "a", Peers: []string{"10.0.0.2"}}})
			if test.err != "" {
				wantError(t, err, test.err)
			} else if err != nil || len(facts) != 1 || facts[0].Kernel != "6.1" || facts[0].Host.Clock.Answered.Before(facts[0].Host.Clock.Asked) || facts[0].Host.Clock.Asked.IsZero() {
				t.Errorf("%+v, %v", facts, err)
			}
			for name, stays := range map[string]bool{"there": true, "made": false} {
				ref := step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "x", Name: name}
				if object, err := w.get(t.Context(), ref); err != nil || (object != nil) != stays {
					t.Errorf("%s is there: %t, %v", name, object != nil, err)
				}
			}
		})
	}
}
