package kube

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

const paidDatabase = `
apiVersion: example.org/v1
kind: Database
metadata: {name: orders, namespace: shop}
spec: {size: 3, password: hunter2}
`

// What goes into the journal before an action has no secret in it, whichever way the object is replaced.
func TestObservationHoldsNoSecret(t *testing.T) {
	ref := &step.Ref{APIVersion: "example.org/v1", Kind: "Database", Namespace: "shop", Name: "orders"}
	for name, action := range map[string]step.Action{
		"delete": {Do: step.Delete{Ref: *ref}},
		"patch":  {Do: step.Patch{Ref: *ref, Merge: json.RawMessage(`{"spec":{"password":"other"}}`)}},
		"apply":  {Do: step.Apply{Object: parse(t, strings.Replace(paidDatabase, "hunter2", "other", 1))}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, paidDatabase)
			seen, err := w.Observe(context.Background(), action, nil)
			if err == nil || engine.HintOf(err) == "" || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%+v, %v", seen, err)
			}
		})
	}
	w := newWorld(t, nil, paidDatabase)
	seen, err := w.Observe(context.Background(),
		step.Action{Do: step.Patch{Ref: *ref, Merge: json.RawMessage(`{"spec":{"size":5}}`)}}, nil)
	if err != nil || strings.Contains(string(seen.Before), "hunter2") {
		t.Errorf("a patch of another field: %s, %v", seen.Before, err)
	}
}
