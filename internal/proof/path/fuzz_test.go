package path

import (
	"strings"
	"testing"
)

// FuzzParseResponder: a responder that is accepted has a host and a port, or a name to ask for, without blanks.
func FuzzParseResponder(f *testing.F) {
	for _, seed := range []string{"tcp:192.0.2.1:443", "udp:[2001:db8::1]:53",
		"dns:example.org", "tcp:a:b:1", "udp::1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseResponder(text)
		if err != nil {
			return
		}
		if r.Query == "" && (r.Host == "" || r.Port == "") || strings.ContainsAny(r.Host+r.Port+r.Query, " \n\x00/") {
			t.Errorf("%q became %+v", text, r)
		}
	})
}

// FuzzParseTried: what is accepted says something about paths, in words that are as long as the message at most, or a
// few words longer.
func FuzzParseTried(f *testing.F) {
	for _, seed := range []string{`{"paths":9,"millis":2100}`, `{"paths":1,"silent":["a/new-pod>b/old/udp"],"more":2}`,
		`{}`, `[]`, ``, `{"paths":-1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tried, err := ParseTried(text)
		if err != nil {
			return
		}
		if said := tried.Fault(); tried.Paths < 1 || tried.Millis < 0 || len(said) > 4*maxTriedText {
			t.Errorf("%q became %+v: %q", text, tried, said)
		}
	})
}
