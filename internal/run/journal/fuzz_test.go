package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
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

// FuzzJoin: pages of the cluster are records or an error.
func FuzzJoin(f *testing.F) {
	f.Add([]byte(`{"seq":1}`), 1)
	f.Add([]byte(`[`), 2)
	f.Fuzz(func(_ *testing.T, raw []byte, number int) {
		_, _ = join("m", []v1alpha1.JournalPage{{Page: number, Records: []json.RawMessage{raw}}}, 1)
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
