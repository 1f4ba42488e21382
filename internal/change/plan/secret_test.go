package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// A journal holds what an action replaces, so an object with a password of its own is not replaced.
func TestSecretOfReplacedObject(t *testing.T) {
	r := flannelToCalico(t)
	for i := range r.snapshot.DaemonSets {
		containers := r.snapshot.DaemonSets[i].Spec.Template.Spec.Containers
		containers[0].Env = append(containers[0].Env, corev1.EnvVar{Name: "ETCD_PASSWORD", Value: "hunter2"})
	}
	cluster.Trim(r.snapshot)
	hint := mustRefuse(t, r, "contains a password or token, and step")
	if !strings.Contains(hint, "secretKeyRef") {
		t.Errorf("the hint is %q", hint)
	}
}

// What a snapshot has instead of a secret is never written to a cluster.
func TestVerifyRefusesRedacted(t *testing.T) {
	for name, edit := range map[string]func(a *step.Action){
		"object": func(a *step.Action) {
			a.Object().Object["spec"] = map[string]any{"list": []any{"x " + cluster.Redacted}}
		},
		"patch": func(a *step.Action) {
			a.Do = step.Patch{Ref: a.Ref(), Merge: json.RawMessage(`{"spec":{"password":"` + cluster.Redacted + `"}}`)}
		},
		"args": func(a *step.Action) {
			a.Do = step.Node{Verb: step.VerbClean, Args: json.RawMessage(`{"a":"` + cluster.Redacted + `"}`)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, flannelToCalico(t))
			for i := range p.Steps {
				for j := range p.Steps[i].Actions {
					if a := &p.Steps[i].Actions[j]; a.Object() != nil {
						edit(a)
						if err := plan.Verify(p); err == nil ||
							!strings.Contains(err.Error(), "replaces a secret in snapshots") {
							t.Errorf("verify: %v", err)
						}
						return
					}
				}
			}
			t.Fatal("the plan applies no object")
		})
	}
}
