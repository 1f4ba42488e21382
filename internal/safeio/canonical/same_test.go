package canonical

import (
	"encoding/json"
	"testing"
)

// TestSameDocuments: spaces and the order of keys mean nothing, and what is no JSON is the same as nothing else.
func TestSameDocuments(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[2]}`, `{ "b": [2], "a": 1.0 }`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{"", "", true},
		{"", "{}", false},
		{"{", "{", false},
	} {
		if same := Same(json.RawMessage(test.a), json.RawMessage(test.b)); same != test.same {
			t.Errorf("%q and %q: %v", test.a, test.b, same)
		}
	}
}
