package objects

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {spec: {containers: [{name: web, image: "a:1", ports: [{containerPort: 80}]}]}}}`

// live is what the mirror has of an object that was copied, with defaults and what others wrote.
func live(t *testing.T, plan *Plan, key Key, change func(Object)) Object {
	t.Helper()
	o := plan.items[key].Object.DeepCopy()
	set(o, []any{map[string]any{"manager": Manager, "operation": "Apply", "apiVersion": "apps/v1",
		"fieldsType": "FieldsV1",
		"fieldsV1":   map[string]any{"f:spec": map[string]any{"f:replicas": map[string]any{}}}}},
		"metadata", "managedFields")
	set(o, "default", "spec", "defaulted")
	if change != nil {
		change(o)
	}
	return o
}

func container(o Object) map[string]any {
	return at(o, "spec", "template", "spec", "containers").([]any)[0].(map[string]any)
}

func TestAgainst(t *testing.T) {
	web := Key{"apps", "Deployment", "shop", "web"}
	plan := Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: objects(t, deployment)}, Options{})
	for _, test := range []struct {
		name   string
		change func(Object)
		want   []string // paths that differ
		by     string
	}{
		{"in step, defaults and all", nil, nil, ""},
		{"an item that somebody added", func(o Object) {
			set(o, append([]any{map[string]any{"name": "sidecar", "image": "s"}},
				at(o, "spec", "template", "spec", "containers").([]any)...), "spec", "template", "spec", "containers")
		}, nil, ""},
		{"a field that somebody changed", func(o Object) {
			container(o)["image"] = "b"
			fields := o.Object["metadata"].(map[string]any)["managedFields"].([]any)
			set(o, append(fields, map[string]any{"manager": "kubectl-set", "operation": "Update",
				"apiVersion": "apps/v1", "fieldsType": "FieldsV1",
				"fieldsV1": map[string]any{"f:spec": map[string]any{
					"f:template": map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{
						`k:{"name":"web"}`: map[string]any{"f:image": map[string]any{}}}}}}}}),
				"metadata", "managedFields")
		}, []string{"spec.template.spec.containers[0].image"}, "kubectl-set"},
		{"a number", func(o Object) { set(o, float64(2), "spec", "replicas") }, nil, ""},
		{"another number", func(o Object) { set(o, float64(3), "spec", "replicas") }, []string{"spec.replicas"}, ""},
		{"an annotation of somebody else", func(o Object) { set(o, "x", "metadata", "annotations", "more") }, nil, ""},
		{"a field that the original no longer has",
			func(o Object) { set(o, "old", "metadata", "annotations", SumAnnotation) },
			[]string{"a field that the original no longer has, or an older copy"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			delta := plan.Against([]Object{live(t, plan, web, test.change)})
			var got []string
			by := ""
			for _, step := range slices.Concat(delta.Waves...) {
				for _, difference := range step.Why {
					got = append(got, difference.Path)
					by = difference.By
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if by != test.by || delta.InStep+delta.Writes() != 1 {
				t.Errorf("by %q, want %q; %+v", by, test.by, delta)
			}
		})
	}
}

// TestWhatIsNotOurs: what was not copied is neither overwritten nor deleted, and deletions stay within bounds.
func TestWhatIsNotOurs(t *testing.T) {
	text := deployment + "\n---\n" + strings.ReplaceAll(deployment, "name: web, namespace", "name: gone, namespace")
	both := Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: objects(t, text)}, Options{})
	one := func(unread ...schema.GroupKind) *Plan {
		return Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: objects(t, deployment), Unread: unread},
			Options{})
	}
	gone := Key{"apps", "Deployment", "shop", "gone"}
	web := Key{"apps", "Deployment", "shop", "web"}
	unlabelled := func(o Object) { remove(o, "metadata", "labels", MarkLabel) }
	for _, test := range []struct {
		name             string
		plan             *Plan
		live             Object
		deletes, foreign int
	}{
		{"it was copied", one(), live(t, both, gone, nil), 1, 0},
		{"it was copied from elsewhere", one(),
			live(t, both, gone, func(o Object) { set(o, "x", "metadata", "labels", MarkLabel) }), 0, 0},
		{"it only has the label, by its maker",
			one(), live(t, both, gone, func(o Object) { remove(o, "metadata", "managedFields") }), 0, 0},
		{"it is in another namespace", one(), live(t, both, gone, func(o Object) { o.SetNamespace("other") }), 0, 0},
		{"it is cluster-wide", one(), live(t, both, gone, func(o Object) { o.SetNamespace("") }), 0, 0},
		{"the original's could not be read", one(schema.GroupKind{Group: "apps", Kind: "Deployment"}),
			live(t, both, gone, nil), 0, 0},
		{"it was not copied", one(), live(t, both, gone, unlabelled), 0, 0},
		{"it is there already", one(), live(t, both, web, unlabelled), 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			delta := test.plan.Against([]Object{test.live})
			if len(delta.Deletes) != test.deletes || len(delta.Foreign) != test.foreign {
				t.Errorf("%d deletions and %d foreign, want %d and %d",
					len(delta.Deletes), len(delta.Foreign), test.deletes, test.foreign)
			}
		})
	}
}

// TestReplicasOfAutoscaled: at its creation a workload has the pods that the traffic needs; afterwards the autoscaler
// of the mirror decides, and its number is not lost when ours is the only one.
func TestReplicasOfAutoscaled(t *testing.T) {
	web := Key{"apps", "Deployment", "shop", "web"}
	plan := Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: objects(t, deployment+`
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`)}, Options{})
	scaled := func(o Object) { set(o, int64(9), "spec", "replicas") }
	theirs := func(o Object) { scaled(o); remove(o, "metadata", "managedFields") }
	for _, test := range []struct {
		name string
		live Object
		want any
	}{
		{"new", nil, int64(2)},
		{"scaled, and owned by us", live(t, plan, web, scaled), int64(9)},
		{"scaled, and owned by the autoscaler", live(t, plan, web, theirs), nil},
	} {
		wanted, err := plan.items[web].Wanted(test.live, func(Key) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		if got := at(wanted, "spec", "replicas"); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if delta := plan.Against([]Object{live(t, plan, web, scaled)}); len(delta.Waves) != 1 ||
		delta.Waves[0][0].Key == web {
		t.Errorf("what the autoscaler did is taken for a difference")
	}
}
