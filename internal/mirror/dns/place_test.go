package dns_test

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestPlaces: what a place says counts as what is seen here, and a place that says nothing proves nothing.
func TestPlaces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	probes := []zone.Probe{{Kind: zone.ProbeTCP, Host: "web.example.org", Port: listener.Addr().(*net.TCPAddr).Port,
		At: []string{"127.0.0.1"}}}
	for _, c := range []struct {
		place dns.Place
		says  string
	}{
		{nil, ""},
		{dns.Place{"echo", `{"asked":1,"failed":[]}`}, ""},
		{dns.Place{"echo", `{"asked":1,"failed":["web.example.org at 127.0.0.1: no route"]}`},
			"1 of 1 probes fail at the name's new address: web.example.org at 127.0.0.1: no route"},
		{dns.Place{"echo", `{}`}, "it made 0 of 1 probes"},
		{dns.Place{"echo", `{"asked":1,"proven":true}`}, "unknown field"},
		{dns.Place{"true"}, "cannot be read: EOF"},
		{dns.Place{"sh", "-c", "echo no such pod >&2; exit 1"}, "the command `sh -c"},
		{dns.Place{"./no-such-program"}, "no such file"},
	} {
		p := &dns.Prober{}
		if c.place != nil {
			p.From = []dns.Place{c.place}
		}
		err := p.Prove(t.Context(), probes)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) ||
			engine.HintOf(err) == "") {
			t.Errorf("%q: %v, want %q", c.place, err, c.says)
		}
	}
	question, err := json.Marshal(dns.Question{Probes: append(probes,
		zone.Probe{Kind: zone.ProbeTCP, Host: "api.example.org", Port: 1, At: []string{"127.0.0.1"}})})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := dns.Serve(t.Context(), bytes.NewReader(question), &out); err != nil ||
		!strings.Contains(out.String(), `"asked":2,"failed":["api.example.org at 127.0.0.1: `) {
		t.Errorf("%v, %s", err, out.String())
	}
	for _, text := range []string{"", "{}", `{"probes":[{}],"more":1}`, `{"probes":[{}],"ca":"no certificate"}`} {
		if err := dns.Serve(t.Context(), strings.NewReader(text), &out); err == nil || engine.HintOf(err) == "" {
			t.Errorf("%q is taken for a question: %v", text, err)
		}
	}
}
