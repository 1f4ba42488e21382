package path

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func TestParseResponder(t *testing.T) {
	for text, want := range map[string]Responder{
		"tcp:192.0.2.1:443":     {Protocol: v1alpha1.TCPConnect, Host: "192.0.2.1", Port: "443"},
		"tcp:www.example.org:1": {Protocol: v1alpha1.TCPConnect, Host: "www.example.org", Port: "1"},
		"tcp:[2001:db8::1]:443": {Protocol: v1alpha1.TCPConnect, Host: "2001:db8::1", Port: "443"},
		"udp:192.0.2.1:7":       {Protocol: v1alpha1.UDPNew, Host: "192.0.2.1", Port: "7"},
		"udp:192.0.2.1:53":      {Protocol: v1alpha1.DNS, Host: "192.0.2.1", Port: "53", Query: "."},
		"dns:example.org":       {Protocol: v1alpha1.DNS, Query: "example.org"},
	} {
		want.Name = text
		if got, err := ParseResponder(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, problem := range map[string]string{
		"":                    "begins with none of",
		"192.0.2.1:443":       "begins with none of",
		"icmp:192.0.2.1:1":    "begins with none of",
		"tcp:192.0.2.1":       "has no host and port",
		"tcp::443":            "has no host and port",
		"tcp:192.0.2.1:":      `port "" is not`,
		"tcp:192.0.2.1:0":     `port "0" is not`,
		"tcp:192.0.2.1:65536": `port "65536" is not`,
		"tcp:192.0.2.256:80":  "neither an IP address nor a host name",
		"tcp:192.0.2:80":      "neither an IP address nor a host name",
		"tcp:a b:80":          "neither an IP address nor a host name",
		"tcp:2001:db8::1:80":  "in brackets",
		"tcp:[192.0.2.1]:80":  "not an IPv6 address",
		"dns:":                "not a DNS name",
		"dns:example..org":    "not a DNS name",
		"dns:example.org:53":  "not a DNS name",
	} {
		if got, err := ParseResponder(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %+v, %v; want %q", text, got, err, problem)
		}
	}
}

// TestOutside: every probe pod and every host sends to each responder at the rate of the outside, whatever the other
// paths' interval; a name is asked of the cluster's DNS by pods alone, and no host is dialled whose address is not
// known.
func TestOutside(t *testing.T) {
	topology := whole(2)
	topology.NodesOutside, topology.Intervals.Fast = nil, 20e6
	topology.Outside = []Responder{
		{Name: "tcp:www.example.org:443", Protocol: v1alpha1.TCPConnect, Host: "www.example.org",
			Address: "192.0.2.1:443"},
		{Name: "dns:example.org", Protocol: v1alpha1.DNS, Query: "example.org"},
		{Name: "tcp:unknown:443", Protocol: v1alpha1.TCPConnect, Host: "unknown"},
	}
	got := map[string]v1alpha1.Path{}
	for _, path := range Build(topology) {
		if path.Class == ClassOutside {
			got[path.ID] = path
			if path.IntervalMillis != 500 {
				t.Errorf("%s every %d ms", path.ID, path.IntervalMillis)
			}
		}
	}
	if len(got) != 10 {
		t.Errorf("%d paths: %v", len(got), got)
	}
	if p := got["node-1/host>outside/tcp:www.example.org:443"]; p.Target.Address != "192.0.2.1:443" ||
		p.Protocol != v1alpha1.TCPConnect {
		t.Errorf("%+v", p)
	}
	if p := got["node-0/new>outside/dns:example.org"]; p.Target.Address != topology.DNS || p.Query != "example.org" {
		t.Errorf("%+v", p)
	}
	if _, ok := got["node-0/host>outside/dns:example.org"]; ok {
		t.Error("a host asks the cluster's DNS")
	}
}
