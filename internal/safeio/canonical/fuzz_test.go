package canonical_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// FuzzJSON: the canonical form of a document is its own canonical form, means the same, and whoever refuses a key that
// stands twice refuses it by both doors.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{`{"a":[1.0,null,true,"<"],"b":{}}`, `{"a":1,"a":2}`, `-0`, `1e400`, `"\ud800"`,
		`[[[]]]`, `{"A":1,"a":2}`, `1 2`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		form, err := canonical.JSON(json.RawMessage(data))
		if json.Valid(data) && (err == nil) != (canonical.Once(data) == nil) {
			t.Errorf("%q: %v, and %v", data, err, canonical.Once(data))
		}
		if err != nil {
			return
		}
		again, err := canonical.JSON(json.RawMessage(form))
		if err != nil || !bytes.Equal(form, again) {
			t.Errorf("%q became %s, and that %s (%v)", data, form, again, err)
		}
	})
}
