package certs_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// apply is what an API server does with the patch of an edit, but for the version, which it checks.
func apply(t testing.TB, o *unstructured.Unstructured, e *certs.Edit) *unstructured.Unstructured {
	t.Helper()
	var named struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(e.Patch, &named); err != nil || named.Metadata.ResourceVersion != o.GetResourceVersion() {
		t.Fatalf("the patch is for version %q of %q: %v", named.Metadata.ResourceVersion, o.GetResourceVersion(), err)
	}
	before, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, e.Patch)
	if err != nil {
		t.Fatal(err)
	}
	return object(t, string(after))
}

const (
	web = `{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: web, namespace: shop, resourceVersion: "7", annotations: {team: a}},
  spec: {dnsNames: [web.blue.example.org, www.example.com], secretName: web}}`
	bare    = `{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: bare, namespace: shop, resourceVersion: "8"}, spec: {commonName: web.blue.example.org, secretName: bare}}`
	ingress = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: shop, resourceVersion: "9", uid: u, annotations: {cert-manager.io/alt-names: "a.example.com, b.example.com"}}, spec: {}}`
	plain   = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: plain, namespace: shop, resourceVersion: "10"}, spec: {}}`
)

// TestThereAndBack: the way back leaves exactly what was, whatever kind of object and field it was, also after names
// were added twice.
func TestThereAndBack(t *testing.T) {
	for _, text := range []string{web, bare, ingress, plain} {
		before := object(t, text)
		now := before
		for _, names := range [][]string{{"web.green.example.org"},
			{"web.green.example.org", "two.green.example.org"}} {
			edit, err := certs.Add(now, names)
			if err != nil || edit == nil {
				t.Fatalf("%s: %v", certs.Name(before), err)
			}
			now = apply(t, now, edit)
			written, _ := json.Marshal(now)
			if !strings.Contains(string(written), names[len(names)-1]) {
				t.Errorf("%s: not written: %s", certs.Name(before), written)
			}
			if again, err := certs.Add(now, names); again != nil || err != nil {
				t.Errorf("%s: a second time adds %+v, %v", certs.Name(before), again, err)
			}
		}
		edit, err := certs.Back(now)
		if err != nil || edit == nil || edit.Changed || len(edit.Names) != 2 {
			t.Fatalf("%s: back %+v, %v", certs.Name(before), edit, err)
		}
		now = apply(t, now, edit)
		if len(now.GetAnnotations()) == 0 {
			now.SetAnnotations(before.GetAnnotations()) // an empty map and none are one thing to an API server
		}
		if got, want := text2(t, now), text2(t, before); got != want {
			t.Errorf("%s: is now %s, was %s", certs.Name(before), got, want)
		}
		if edit, err := certs.Back(now); edit != nil || err != nil {
			t.Errorf("%s: a second time: %+v, %v", certs.Name(before), edit, err)
		}
	}
}

func text2(t testing.TB, o *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBackKeepsOthers: what somebody else added or removed meanwhile stays so.
func TestBackKeepsOthers(t *testing.T) {
	before := object(t, web)
	edit, err := certs.Add(before, []string{"web.green.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	now := apply(t, before, edit)
	theirs := []string{"theirs.example.com", "web.green.example.org", "web.blue.example.org"}
	if err := unstructured.SetNestedStringSlice(now.Object, theirs, "spec", "dnsNames"); err != nil {
		t.Fatal(err)
	}
	if edit, err = certs.Back(now); err != nil || !edit.Changed {
		t.Fatalf("%+v, %v", edit, err)
	}
	names, _, _ := unstructured.NestedStringSlice(apply(t, now, edit).Object, "spec", "dnsNames")
	if !slices.Equal(names, []string{"theirs.example.com", "web.blue.example.org"}) {
		t.Errorf("names are %v", names)
	}
}

// TestRecordThatIsNone: an annotation that nobody wrote so is an error, and no write.
func TestRecordThatIsNone(t *testing.T) {
	for _, note := range []string{"x", "{}", `{"added":[]}`, `{"added":["a"]}`, "null"} {
		o := object(t, web)
		o.SetAnnotations(map[string]string{certs.RecordAnnotation: note})
		if edit, err := certs.Back(o); err == nil {
			t.Errorf("%s: %+v", note, edit)
		}
		if edit, err := certs.Add(o, []string{"new.example.org"}); err == nil {
			t.Errorf("%s: %+v", note, edit)
		}
	}
	o := object(t, `{kind: Certificate, metadata: {name: x, namespace: y}, spec: {dnsNames: [1, 2]}}`)
	if _, err := certs.Add(o, []string{"new.example.org"}); err == nil {
		t.Error("names that are numbers were taken")
	}
}

// FuzzBack: whatever an annotation says, nothing panics, and no write is made that is no JSON.
func FuzzBack(f *testing.F) {
	f.Add(`{"before":["a"],"added":["b"],"after":["a","b"]}`, "a,b")
	f.Add(`{"added":["b"],"after":null}`, "")
	f.Fuzz(func(t *testing.T, note, names string) {
		for _, text := range []string{web, ingress} {
			o := object(t, text)
			o.SetAnnotations(map[string]string{certs.RecordAnnotation: note, "cert-manager.io/alt-names": names})
			if edit, err := certs.Back(o); err == nil && edit != nil && !json.Valid(edit.Patch) {
				t.Errorf("%s", edit.Patch)
			}
		}
	})
}
