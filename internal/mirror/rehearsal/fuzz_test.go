package rehearsal

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// FuzzMake: no snapshot makes the copy panic, nor does an annotation that anyone may have written on a node.
func FuzzMake(f *testing.F) {
	var scratch *cluster.Snapshot
	for _, name := range []string{"odd.yaml", "scratch.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		scratch = cnitest.Snapshot(f, cnitest.Documents(f, data))
		text, err := json.Marshal(scratch)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"labels":{"a":null},"taints":[{"key":"a"}]}`))
	f.Add([]byte(`{"relabelled":{"a":{"now":null,"was":"b"},"c":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{BeforeAnnotation: string(
			data)}, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: Manager, FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:annotations":{"f:` +
				BeforeAnnotation + `":{}}}}`)}},
		}}}
		Restore(&node) //nolint:errcheck // it may be an error
		one := Relabel{"a", map[string]*string{"a": nil, "b": new("c")}}
		one.Patch(&node) //nolint:errcheck // the same
		one.Back(&node)  //nolint:errcheck // the same
		var original cluster.Snapshot
		if json.Unmarshal(data, &original) != nil {
			return
		}
		if made, err := Make(&original, scratch, nil, nil, Options{Certify: certified}); err == nil {
			if err := made.Text(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}
