package kube

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestLook: facts are asked for, and only what was made to ask for them is taken away again.
func TestLook(t *testing.T) {
	const there, made = "{apiVersion: v1, kind: ConfigMap, metadata: {name: there, namespace: x}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: x}}"
	install := func(t *testing.T) []step.Action {
		return []step.Action{
			{ID: "1", Do: step.Apply{Object: parse(t, there)}, Title: "create there"},
			{ID: "2", Do: step.Apply{Object: parse(t, made)}, Title: "create made"},
		}
	}
	for _, test := range []struct {
		name, err string
		status    map[string]any
	}{
		{"facts", "", map[string]any{"phase": "Done",
			"result": map[string]any{"node": "a", "kernel": "6.1", "host": map[string]any{}}}},
		{"a node that cannot be looked at", "query node a: the agent of a says: no /proc",
			map[string]any{"phase": "Failed", "message": "no /proc"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, nil, there)
			w.answer(test.status)
			facts, err := w.Look(t.Context(), install(t), []Sight{{Node: "a", Peers: []string{"10.0.0.2"}}})
			if test.err != "" {
				wantError(t, err, test.err)
			} else if err != nil || len(facts) != 1 || facts[0].Kernel != "6.1" ||
				facts[0].Host.Clock.Answered.Before(facts[0].Host.Clock.Asked) || facts[0].Host.Clock.Asked.IsZero() {
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

// TestInstallKeepsAJournal: definitions that were made to look are deleted again, but not under a journal that was
// begun meanwhile.
func TestInstallKeepsAJournal(t *testing.T) {
	const definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, " +
		"metadata: {name: %s.theseus.dev}}"
	refs := map[string]step.Ref{}
	for _, kind := range []string{"", "Migration", "PlanPage", "JournalPage"} {
		w := newWorld(t, nil)
		var install []step.Action
		for _, plural := range []string{"migrations", "planpages", "journalpages", "nodetasks"} {
			object := parse(t, fmt.Sprintf(definition, plural))
			refs[plural] = step.RefOf(object)
			install = append(install,
				step.Action{ID: plural, Do: step.Apply{Object: object}, Title: "create " + plural})
		}
		back, err := w.Install(t.Context(), install)
		if err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			client, _ := w.resource(v1alpha1.APIVersion, kind, v1alpha1.Namespace)
			object := parse(t, "{apiVersion: theseus.dev/v1alpha1, kind: "+kind+
				", metadata: {name: m, namespace: theseus-system}}")
			if _, err := client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := back(t.Context()); err != nil {
			t.Fatal(err)
		}
		for plural, ref := range refs {
			object, err := w.get(t.Context(), ref)
			if stays := kind != "" && plural != "nodetasks"; err != nil || (object != nil) != stays {
				t.Errorf("with a %q in the cluster, the definition of %s stays: %t, %v",
					kind, plural, object != nil, err)
			}
		}
	}
}
