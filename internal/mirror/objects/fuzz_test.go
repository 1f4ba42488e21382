package objects

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/theseus-cni/theseus/internal/mirror/image"
)

// FuzzMake: whatever an API server returns, nothing panics, and a copy of a copy is in step with itself.
func FuzzMake(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"n","managedFields":[{"manager":"x","operation":"Apply","apiVersion":"apps/v1","fieldsV1":{"f:spec":{"f:a":{},"k:{\"name\":\"b\"}":{".":{}}}}}]},"spec":{"a":[{"name":"b"}],"replicas":1}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"n","annotations":7},"spec":[]}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"n","ownerReferences":[{"kind":"Secret","name":"a","controller":true}]},"type":"kubernetes.io/dockerconfigjson","data":{".dockerconfigjson":"e30="}}`,
		`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a","namespace":"n"},"spec":{"scaleTargetRef":{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","name":"a"}}}`,
		`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a","namespace":"n"},"spec":"x","status":{"conditions":[1]}}`,
		`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a","namespace":"n"},"spec":{"volumeName":7}}`,
	} {
		f.Add([]byte(text))
	}
	rules, err := image.ParseRules([]string{"a.example.com=b.example.com"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := &unstructured.Unstructured{}
		if o.UnmarshalJSON(data) != nil || o.IsList() {
			return
		}
		plan := Make(World{Source: "s", Namespaces: []string{o.GetNamespace()}, Objects: []Object{o}},
			Options{Images: rules})
		plan.Images()
		plan.Doubts()
		for _, wave := range plan.Waves {
			for _, item := range wave {
				if _, err := item.Wanted(item.Object, func(Key) (string, bool) { return "", false }); err != nil {
					continue
				}
				if found := differences(item, item.Object); len(found) > 0 {
					t.Fatalf("it differs from itself: %v", found)
				}
			}
		}
	})
}

// FuzzSetOf: what managedFields say is read as structured-merge-diff itself reads their text.
func FuzzSetOf(f *testing.F) {
	for _, text := range []string{
		`{"f:spec":{"f:a":{},"f:b":{".":{},"f:c":{}},"f:list":{"k:{\"name\":\"b\"}":{".":{},"f:x":{}},"v:1":{},"i:0":{"f:y":{}}}}}`,
		`{"f:a":{"z:later":{}},"z:later":{"f:b":{}},".":{}}`,
		`{"f:a":{"k:{":{}}}`, `{"f:a":1}`, `{"f:a":null}`, `{"f":{}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var fields map[string]any
		if json.Unmarshal(data, &fields) != nil {
			return
		}
		data, err := json.Marshal(fields) // each name once
		if err != nil {
			t.Fatal(err)
		}
		want := &fieldpath.Set{}
		wrong := want.FromJSON(bytes.NewReader(data))
		got, err := setOf(fields)
		if err == nil && wrong == nil && !got.Equals(want) || err == nil && wrong != nil {
			t.Errorf("%s: %s (%v), want %s (%v)", data, got, err, want, wrong)
		}
	})
}
