package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// FuzzOpenFile: a file that is no journal, or a damaged one, is an error, and what is read is in order.
func FuzzOpenFile(f *testing.F) {
	f.Add([]byte("{\"seq\":1,\"event\":\"begun\"}\n{\"seq\":2}\n{\"seq\""))
	f.Add([]byte("{\"seq\":2}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		name := filepath.Join(t.TempDir(), "journal.jsonl")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := OpenFile(name)
		if err != nil {
			return
		}
		defer file.Close()
		for i, r := range file.records {
			if r.Seq != i+1 {
				t.Errorf("record %d has the number %d", i+1, r.Seq)
			}
		}
	})
}

// FuzzJoin: pages of the cluster are records or an error, and a record that is read field by field is what its text
// says.
func FuzzJoin(f *testing.F) {
	f.Add([]byte(`{"seq":1}`), 1)
	f.Add([]byte(`[`), 2)
	for _, r := range sample(4) {
		text, _ := json.Marshal(r)
		f.Add(text, 1)
	}
	f.Add([]byte(`{"seq":1.5,"before":null,"inverse":null,"Step":"s","undo":true,"epoch":3,"at":"x"}`), 1)
	f.Add([]byte(`{"seq":1,"verdict":{"pass":true,"more":1}}`), 1)
	f.Fuzz(func(t *testing.T, text []byte, number int) {
		var value any
		if utiljson.Unmarshal(text, &value) != nil {
			return
		}
		_, _ = join("m", []page{{number: number, records: []any{value}}}, 1)
		got, ok := direct(value)
		again, err := json.Marshal(value)
		if err != nil || !ok {
			return
		}
		if want, err := decode(again); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, want %+v, %v", again, got, want, err)
		}
	})
}

// FuzzUnpack: pages of a plan are a plan or an error, whatever they unpack to.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		if p, err := unpack(packed, maxPlan); err == nil && p == nil {
			t.Error("no plan, and no error")
		}
	})
}
