package prover_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/certtest"
	"github.com/theseus-cni/theseus/internal/mirror/certs/prover"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

const (
	hour = time.Hour
	// The original and the mirror are two addresses of the loopback.
	blue, green = "127.0.0.1", "127.0.0.2"
)

// TestProve asks real TLS servers: one per cluster, which choose by name as a controller does.
func TestProve(t *testing.T) {
	now := time.Now()
	root := certtest.New(t, "root", nil)
	good := root.Issue(now.Add(-hour), now.Add(1000*hour), "web.example.org", "*.wild.example.org")
	old := root.Issue(now.Add(-5*hour), now.Add(1000*hour), "web.example.org")
	short := root.Issue(now.Add(-hour), now.Add(hour), "short.example.org")
	served := map[string]tls.Certificate{"web.example.org": good.TLS(), "theseus-probe.wild.example.org": good.TLS(),
		"old.example.org": old.TLS(), "short.example.org": short.TLS()}
	there := certtest.Serve(t, green, served)
	here := certtest.Serve(t, blue, map[string]tls.Certificate{"": good.TLS()})
	closed, err := net.Listen("tcp", green+":0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	leaf, err := certs.LeafOf("shop/web", good.Secret(t))
	if err != nil {
		t.Fatal(err)
	}
	proving := &prover.Prover{Trust: certs.Trust{Roots: root.Pool(), Now: now, Left: 72 * hour},
		Ports: map[int]int{443: there, 8443: nobody, 9443: here},
		Resolve: func(_ context.Context, targets []string) ([]string, error) {
			var all []string
			for _, target := range targets {
				if _, err := netip.ParseAddr(target); err == nil {
					all = append(all, target)
					continue
				}
				if target != "lb.example.net." {
					return nil, errors.New("no such name")
				}
				all = append(all, green)
			}
			return all, nil
		},
		Secrets: func(name string) ([]*certs.Leaf, error) {
			switch name {
			case "missing.example.org":
				return nil, errors.New("the mirror has no Secret shop/missing")
			case "short.example.org":
				return nil, nil
			}
			return []*certs.Leaf{leaf}, nil
		}}
	for _, c := range []struct {
		ask   prover.Ask
		want  string // in what is wrong; "proven", "plain"
		where string
	}{
		{prover.Ask{Name: "web.example.org", Port: 443, At: []string{green}, Must: true}, "proven", "shop/web"},
		{prover.Ask{Name: "web.example.org", Port: 443, At: []string{"lb.example.net."}, Must: true},
			"proven", "shop/web"},
		{prover.Ask{Name: "*.wild.example.org", Port: 443, At: []string{green}, Must: true}, "proven", "shop/web"},
		{prover.Ask{Name: "short.example.org", Port: 443, At: []string{green}, Must: true}, "too soon", ""},
		{prover.Ask{Name: "old.example.org", Port: 443, At: []string{green}, Must: true},
			"not for old.example.org|is not the one in Secret", ""},
		{prover.Ask{Name: "none.example.org", Port: 443, At: []string{green}, Must: true},
			"no TLS with the name none.example.org", ""},
		{prover.Ask{Name: "web.example.org", Port: 8443, At: []string{green}, Must: true}, "refused", ""},
		{prover.Ask{Name: "web.example.org", Port: 443, Must: true}, "no address", ""},
		{prover.Ask{Name: "web.example.org", Port: 443, At: []string{"other.example.net."}, Must: true},
			"no such name", ""},
		// What no object asks for: the original's address decides.
		{prover.Ask{Name: "web.example.org", Port: 8443, At: []string{green}, Was: []string{blue}}, "plain", ""},
		{prover.Ask{Name: "web.example.org", Port: 8443, At: []string{green}}, "plain", ""},
		{prover.Ask{Name: "web.example.org", Port: 9443, At: []string{green}, Was: []string{blue}}, "refused", ""},
	} {
		proofs, err := proving.Prove(context.Background(), []prover.Ask{c.ask})
		if err != nil || len(proofs) != 1 {
			t.Fatalf("%+v: %d proofs, %v", c.ask, len(proofs), err)
		}
		p := proofs[0]
		switch c.want {
		case "proven":
			if len(p.Wrong) > 0 || p.Plain || p.Secret != c.where || p.Issuer != "root" ||
				!p.Until.Equal(good.Leaf.NotAfter) {
				t.Errorf("%+v: %+v", c.ask, p)
			}
		case "plain":
			if !p.Plain || len(p.Wrong) > 0 {
				t.Errorf("%+v: %+v", c.ask, p)
			}
		default:
			for _, text := range strings.Split(c.want, "|") {
				if !strings.Contains(strings.Join(p.Wrong, "; "), text) {
					t.Errorf("%+v: %q, want %q", c.ask, p.Wrong, text)
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := proving.Prove(ctx, []prover.Ask{{Name: "web.example.org", Port: 443, At: []string{green},
		Must: true}}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestAsks: every name of both clusters, 443 whatever the objects say, and the mirror's own names.
func TestAsks(t *testing.T) {
	port := func(kind zone.ProbeKind, number int) names.Port { return names.Port{Kind: kind, Port: number} }
	original := []names.Claim{
		{Name: "web.blue.org.", Object: "Ingress shop/web", Targets: []string{blue}},
		{Name: "gone.org.", Object: "Ingress shop/gone", Targets: []string{blue}},
	}
	mirror := []names.Claim{
		{Name: "web.blue.org.", Object: "Ingress shop/web", Targets: []string{green},
			Ports: []names.Port{port(zone.ProbeHTTP, 80), port(zone.ProbeTLS, 443)}},
		{Name: "web.blue.org.", Object: "Ingress shop/web2", Targets: []string{green},
			Ports: []names.Port{port(zone.ProbeHTTP, 80)}},
		{Name: "mail.org.", Object: "Service shop/mail", Targets: []string{green},
			Ports: []names.Port{port(zone.ProbeTCP, 25)}},
	}
	var got []string
	for _, ask := range prover.Asks(original, mirror, certs.Rules{{Old: "blue.org", New: "green.org"}}) {
		text := ask.Name + ":" + string(rune('0'+ask.Port%10))
		if ask.Must {
			text += "!"
		}
		got = append(got, text+" "+strings.Join(ask.Was, ",")+">"+strings.Join(ask.At, ","))
	}
	want := []string{"web.blue.org:3! 127.0.0.1>127.0.0.2", "web.green.org:3! 127.0.0.1>127.0.0.2",
		"mail.org:5 >127.0.0.2", "mail.org:3 >127.0.0.2", "gone.org:3 127.0.0.1>"}
	if !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}
