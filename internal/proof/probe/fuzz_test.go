package probe

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// FuzzParse: a file of measurements is read or refused, and what was read can be shown.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"kind":"ProbeReport","status":{"results":[{"id":"a","sent":3,"lost":1,"gaps":[{}]}]}}`))
	f.Add([]byte(`{"kind":"List","items":[{"kind":"ProbeReport"},{}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if documents, err := Parse(data); err == nil {
			_ = WriteTable(new(bytes.Buffer), documents)
		}
	})
}

// FuzzParseTarget: a target that is accepted has an address to send to.
func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"udp://192.0.2.1:80", "dns://192.0.2.1/example.org",
		"tcp-new://[::1]:1?size=64&interval=20ms&denied=true", "tcp://%zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if path, err := ParseTarget(text, time.Second); err == nil &&
			(path.Target.Address == "" || path.Protocol == "") {
			t.Errorf("%q became %+v", text, path)
		}
	})
}

// FuzzSeq: whatever a stranger sends, an answer counts for no probe but the one that has its number.
func FuzzSeq(f *testing.F) {
	p := NewPayload(64, 7, time.Unix(0, 0))
	f.Add(p.Fill(7, time.Unix(1, 0)))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, data []byte) {
		isQuestion(data)
		if seq, ok := NewPayload(64, 7, time.Unix(0, 0)).Seq(data); ok && len(data) < 8 {
			t.Errorf("%q is an answer to %d", data, seq)
		}
	})
}

// FuzzResults: whatever a prober leaves for its agent, it is read within the bound, or refused.
func FuzzResults(f *testing.F) {
	for _, seed := range []string{`[{"id":"a","sent":3,"gaps":[{}]}]`, `null`, `{}`, `[[`, `[{"id":1}]`, `[null]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var document struct {
			Paths results `json:"paths"`
		}
		text := append(append([]byte(`{"paths":`), data...), '}')
		if json.Unmarshal(text, &document) == nil && len(document.Paths) > maxPaths {
			t.Errorf("%d paths of %q", len(document.Paths), data)
		}
	})
}
