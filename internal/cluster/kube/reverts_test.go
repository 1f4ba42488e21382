package kube

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestRevertsReads: of what a run has written, the objects that existed before are read, and no others.
func TestRevertsReads(t *testing.T) {
	w := newWorld(t, nil, configMap)
	added := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: ns}}`)
	for name, test := range map[string]struct {
		does, inverse step.Operation
		want          int
	}{
		"created": {step.Apply{Object: added}, step.Delete{Ref: step.RefOf(added)}, 0},
		"applied": {step.Apply{Object: added}, step.Apply{Object: added}, 1},
		"patched": {step.Patch{Ref: configRef, Merge: []byte(`{"data":{"x":"9"}}`)},
			step.Patch{Ref: configRef, Merge: []byte(`{"data":{"x":"1"}}`)}, 1},
	} {
		r := &Reverts{Actor: w.Actor,
			Steps: []step.Step{{ID: "s", Actions: []step.Action{{ID: "a", Do: test.does}}}}}
		r.Learn(engine.Record{Event: engine.Intended, Step: "s", Action: "a", Inverse: &step.Action{Do: test.inverse}},
			engine.Record{Event: engine.Acted, Step: "s", Action: "a", Result: engine.ResultDone})
		w.requests()
		if why := r.Found(t.Context()); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		if n := w.requests(); n != test.want {
			t.Errorf("%s: %d requests, want %d", name, n, test.want)
		}
	}
}
