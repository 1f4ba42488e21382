package certs_test

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
)

// TestRules goes by labels of names and not by their text.
func TestRules(t *testing.T) {
	rules, err := certs.ParseRules([]string{"Blue.example.org=green.example.org",
		"db.blue.example.org.=data.example.net"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"web.blue.example.org": "web.green.example.org", "WEB.Blue.example.org.": "web.green.example.org",
		"blue.example.org": "green.example.org", "*.blue.example.org": "*.green.example.org",
		"a.db.blue.example.org": "a.data.example.net", "web.blue.example.org.evil.io": "",
		"darkblue.example.org": "", "example.org": "",
	} {
		if got, ok := rules.Mirror(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	missing, err := rules.Missing([]string{"web.blue.example.org", "Web.Green.example.org", "*.blue.example.org",
		"*.blue.example.org", "other.io"})
	if err != nil || strings.Join(missing, " ") != "*.green.example.org" {
		t.Errorf("missing %v, %v", missing, err)
	}
	long, err := certs.ParseRules([]string{"b=" + strings.Repeat("long.", 48) + "org"})
	if err != nil {
		t.Fatal(err)
	}
	if names, err := long.Missing([]string{strings.Repeat("a", 20) + ".b"}); err == nil {
		t.Errorf("a name of 263 bytes: %v", names)
	}
	for _, bad := range [][]string{{"x"}, {"=y"}, {"x="}, {"x=x"}, {"X.=x"}, {"a b=c"}, {"*.x=*.y"},
		{"x=y", "x=z"}, {"http://x=y"}} {
		if rules, err := certs.ParseRules(bad); err == nil {
			t.Errorf("%q: %v", bad, rules)
		}
	}
}
