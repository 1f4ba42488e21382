package certs_test

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/certtest"
)

const hour = time.Hour

// TestJudge has every way in which what is served is not as it should be.
func TestJudge(t *testing.T) {
	now := time.Now()
	root := certtest.New(t, "root", nil)
	between := certtest.New(t, "between", root)
	stranger := certtest.New(t, "stranger", nil)
	trust := certs.Trust{Roots: root.Pool(), Now: now, Left: 72 * hour}
	issue := func(a *certtest.Authority, from, until time.Duration, names ...string) *x509.Certificate {
		return a.Issue(now.Add(from), now.Add(until), names...).Leaf
	}
	good := issue(between, -hour, 1000*hour, "web.example.org", "*.web.example.org")
	for what, c := range map[string]struct {
		name  string
		chain []*x509.Certificate
		wrong []string
	}{
		"good":             {"web.example.org", []*x509.Certificate{good, between.Cert}, nil},
		"good by wildcard": {"a.web.example.org", []*x509.Certificate{good, between.Cert}, nil},
		"good, root too":   {"web.example.org", []*x509.Certificate{good, between.Cert, root.Cert}, nil},
		"none":             {"web.example.org", nil, []string{"no certificate"}},
		"another name": {"shop.example.org", []*x509.Certificate{good, between.Cert},
			[]string{"not for shop.example.org, but for web.example.org, *.web.example.org"}},
		"two labels": {"a.b.web.example.org", []*x509.Certificate{good, between.Cert}, []string{"not for"}},
		"nothing between": {"web.example.org", []*x509.Certificate{good}, []string{"did not send the intermediate " +
			"certificates"}},
		"a stranger": {"web.example.org",
			[]*x509.Certificate{issue(stranger, -hour, 1000*hour, "web.example.org")}, []string{"unknown authority"}},
		"expired": {"web.example.org", []*x509.Certificate{issue(root, -5*hour, -hour, "web.example.org")},
			[]string{"it expired"}},
		"soon": {"web.example.org", []*x509.Certificate{issue(root, -5*hour, hour, "web.example.org")},
			[]string{"too soon"}},
		"not yet": {"web.example.org",
			[]*x509.Certificate{issue(root, hour, 1000*hour, "web.example.org")}, []string{"only from"}},
		"expired and another": {"a.org", []*x509.Certificate{issue(stranger, -5*hour, -hour, "web.example.org")},
			[]string{"not for", "expired", "unknown authority"}},
		"the controller's own": {"web.example.org", []*x509.Certificate{issue(stranger, -hour, hour,
			"Kubernetes Ingress Controller Fake Certificate")}, []string{"default certificate"}},
	} {
		wrong := trust.Judge(c.name, c.chain)
		if len(wrong) != len(c.wrong) {
			t.Errorf("%s: %q", what, wrong)
			continue
		}
		for i, text := range c.wrong {
			if !strings.Contains(wrong[i], text) {
				t.Errorf("%s: %q, want %q in it", what, wrong[i], text)
			}
		}
	}
}

// TestLeaf reads Secrets, and tells whose certificate is served.
func TestLeaf(t *testing.T) {
	now := time.Now()
	root := certtest.New(t, "root", nil)
	pair := root.Issue(now.Add(-hour), now.Add(hour), "web.example.org", "*.shop.example.org", "192.0.2.1")
	leaf, err := certs.LeafOf("shop/web", pair.Secret(t))
	if err != nil {
		t.Fatal(err)
	}
	if missing := certs.Covers(leaf.Certificate, []string{"web.example.org", "a.shop.example.org", "*.shop.example.org",
		"*.example.org", "shop.example.org"}); strings.Join(missing, " ") != "*.example.org shop.example.org" {
		t.Errorf("it does not cover %v", missing)
	}
	other := root.Issue(now, now.Add(hour), "web.example.org")
	mixed := pair.Secret(t)
	mixed["tls.key"] = other.Secret(t)["tls.key"]
	for what, data := range map[string]map[string][]byte{"another's key": mixed, "nothing": {},
		"no PEM":         {"tls.crt": []byte("x")},
		"no certificate": {"tls.crt": pair.Secret(t)["tls.key"]}} {
		if _, err := certs.LeafOf("shop/web", data); err == nil || !strings.Contains(err.Error(), "Secret shop/web") {
			t.Errorf("%s: %v", what, err)
		}
	}
	renewed := root.For(pair.Key, now, now.Add(2*hour), "web.example.org")
	for what, c := range map[string]struct {
		served *x509.Certificate
		wrong  string
	}{"itself": {pair.Leaf, ""}, "renewed with its key": {renewed.Leaf, "has the same key"},
		"another": {other.Leaf, "is not the one in Secret"}} {
		secret, err := certs.Same(c.served, []*certs.Leaf{leaf})
		if c.wrong == "" && (err != nil || secret != "shop/web") ||
			c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %q, %v", what, secret, err)
		}
	}
}
