package certs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/certtest"
)

// issuers are one of each sort.
const issuers = `
{kind: ClusterIssuer, metadata: {name: dns}, spec: {acme: {solvers: [{dns01: {route53: {}}}]}}}
{kind: ClusterIssuer, metadata: {name: http}, spec: {acme: {solvers: [{http01: {ingress: {}}}]}}}
{kind: ClusterIssuer, metadata: {name: both}, spec: {acme: {solvers: [{http01: {ingress: {}}}, {dns01: {route53: {}}, selector: {dnsZones: [green.example.org]}}]}}}
{kind: ClusterIssuer, metadata: {name: narrow}, spec: {acme: {solvers: [{dns01: {route53: {}}, selector: {dnsZones: [blue.example.org]}}]}}}
{kind: ClusterIssuer, metadata: {name: sick}, spec: {ca: {}}, status: {conditions: [{type: Ready, status: "False", message: no account}]}}
{kind: Issuer, metadata: {name: ca, namespace: shop}, spec: {ca: {secretName: ca}}}
{kind: Issuer, metadata: {name: far, namespace: other}, spec: {ca: {secretName: ca}}}`

// world has objects, one in a line, and the issuers.
func world(t *testing.T, objects string) certs.World {
	t.Helper()
	w := certs.World{Leaves: map[string]*certs.Leaf{}, Wrong: map[string]error{}}
	for _, line := range strings.Split(strings.TrimSpace(objects+issuers), "\n") {
		switch o := object(t, line); o.GetKind() {
		case "Certificate":
			w.Certificates = append(w.Certificates, o)
		case "Issuer", "ClusterIssuer":
			w.Issuers = append(w.Issuers, o)
		default:
			w.Routes = append(w.Routes, o)
		}
	}
	return w
}

// wanted is a Certificate shop/x of an issuer, with more of its metadata, spec and status.
func wanted(issuer, names, more string) string {
	kind, name, _ := strings.Cut(issuer, " ")
	return fmt.Sprintf("{kind: Certificate, metadata: {name: x, namespace: shop, labels: {a: b}}, spec: {secretName: "+
		"x, dnsNames: [%s], issuerRef: {kind: %s, name: %s}}%s}\n", names, kind, name, more)
}

// TestSurvey has a case for every verdict and its reason.
func TestSurvey(t *testing.T) {
	now := time.Now()
	root := certtest.New(t, "root", nil)
	byHand := func(names ...string) *certs.Leaf {
		leaf, err := certs.LeafOf("shop/hand", root.Issue(now, now.Add(10*hour), names...).Secret(t))
		if err != nil {
			t.Fatal(err)
		}
		return leaf
	}
	const blue, green = "web.blue.example.org", "web.green.example.org"
	const hand = `{kind: Ingress, metadata: {name: hand, namespace: shop}, spec: {tls: [{hosts: [` + blue +
		`], secretName: hand}]}}` + "\n"
	const gate = `{kind: Gateway, metadata: {name: gate, namespace: shop}, spec: {listeners: [{hostname: "*.blue.example.org", tls: {certificateRefs: [{name: hand}]}}, {tls: {certificateRefs: [{name: c, kind: ConfigMap}]}}]}}` +
		"\n"
	owned := func(kind, more string) string {
		return strings.Replace(wanted("ClusterIssuer dns", blue, more), "labels:",
			"ownerReferences: [{kind: "+kind+", name: i, uid: u1, controller: true, apiVersion: v1}], labels:", 1)
	}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("n%d.blue.example.org", i))
	}
	all := certs.Options{Rules: certs.Rules{{Old: "blue.example.org", New: "green.example.org"}},
		Now: now, For: 100 * hour}
	skip, http := all, all
	skip.Skip, http.HTTP01 = []string{"shop/x", "shop/hand"}, true
	for what, c := range map[string]struct {
		objects string
		leaf    *certs.Leaf
		options certs.Options
		verdict certs.Verdict
		text    string // in why, hint and notes, and what is added by which way
	}{
		"DNS-01": {wanted("ClusterIssuer dns", blue, ""), nil, all, certs.Adds, green + " DNS-01"},
		"a CA":   {wanted("Issuer ca", blue, ""), nil, all, certs.Adds, green + " not asked"},
		"HTTP-01": {wanted("ClusterIssuer http", blue, ""), nil, all, certs.Blocked,
			"gets a certificate only before it points to one"},
		"HTTP-01, accepted": {wanted("ClusterIssuer http", blue, ""), nil, http,
			certs.Adds, green + " HTTP-01"},
		"HTTP-01, but for its zone": {wanted("ClusterIssuer both", blue, ""), nil, all, certs.Adds, green + " DNS-01"},
		"HTTP-01 of a wildcard": {wanted("ClusterIssuer http", `"*.blue.example.org"`, ""), nil, all, certs.Blocked,
			"no solver for *.green.example.org"},
		"no solver": {wanted("ClusterIssuer narrow", blue, ""), nil, all, certs.Blocked, "no solver for " + green},
		"no issuer": {wanted("ClusterIssuer none", blue, ""), nil, all, certs.Blocked,
			"ClusterIssuer none does not exist"},
		"another namespace's": {wanted("Issuer far", blue, ""), nil, all, certs.Blocked, "Issuer far does not exist"},
		"a sick issuer": {wanted("ClusterIssuer sick", blue, ""), nil, all,
			certs.Blocked, "not ready: no account"},
		"a sick certificate": {wanted("ClusterIssuer dns", blue,
			`, status: {conditions: [{type: Ready, status: "False", message: rate limit}]}`), nil, all, certs.Blocked,
			"not issued yet (cert-manager: rate limit)"},
		"sick since names were added": {strings.Replace(
			wanted("ClusterIssuer dns", blue, `, status: {conditions: [{type: Ready, status: "False"}]}`), "labels:",
			"annotations: {theseus.dev/before-mirror-certs: x}, labels:", 1), nil, all,
			certs.Blocked, "remove them with"},
		"another group's issuer": {strings.Replace(wanted("Thing x", blue, ""), "issuerRef: {",
			"issuerRef: {group: example.com, ", 1), nil, all, certs.Adds,
			green + " unknown"},
		"has them": {wanted("ClusterIssuer dns", blue+", "+green, ""), nil, all, certs.Has, ""},
		"no rule":  {wanted("ClusterIssuer dns", "www.example.com", ""), nil, all, certs.Stays, "no rule"},
		"left out": {wanted("ClusterIssuer http", blue, ""), nil, skip, certs.Stays, "left out"},
		"an authority": {strings.Replace(wanted("Issuer ca", blue, ""), "spec: {", "spec: {isCA: true, ", 1), nil,
			all, certs.Stays, "of a CA"},
		"too many": {wanted("ClusterIssuer dns", strings.Join(many, ", "), ""), nil, all, certs.Blocked, "120 names"},
		"renews by HTTP": {wanted("ClusterIssuer both", blue, `, status: {renewalTime: "`+
			now.Add(hour).UTC().Format(time.RFC3339)+`"}`), nil, all, certs.Adds, "it renews"},
		"of an Ingress": {owned("Ingress", "") +
			`{kind: Ingress, metadata: {name: i, namespace: shop, uid: u1}, spec: {tls: [{hosts: [` + blue +
			`], secretName: x}]}}` + "\n", nil, all, certs.Adds, "to Ingress shop/i"},
		"of an Ingress, renews": {owned("Ingress",
			`, status: {renewalTime: "`+now.Add(hour).UTC().Format(time.RFC3339)+`"}`) +
			`{kind: Ingress, metadata: {name: i, namespace: shop, uid: u1}, spec: {tls: [{hosts: [` + blue +
			`], secretName: x}]}}` + "\n", nil, all, certs.Adds,
			"only in the original, since Ingress shop/i is copied"},
		"of something":     {owned("Route", ""), nil, all, certs.Blocked, "Route i makes it"},
		"by hand":          {hand, byHand(blue, green), all, certs.ByHand, "copied with its namespace"},
		"by hand, ends":    {hand, byHand(blue, green), all, certs.ByHand, "it expires"},
		"by hand, lacking": {hand, byHand(blue), all, certs.Blocked, "it does not cover " + green},
		"by hand, left":    {hand, byHand(blue), skip, certs.Stays, "left out"},
		"by hand, none":    {hand, nil, all, certs.Blocked, "there is no Secret shop/hand"},
		"of a Gateway": {gate, byHand("*.blue.example.org"), all, certs.Blocked,
			"it does not cover *.green.example.org"},
		"the default": {`{kind: Ingress, metadata: {name: d, namespace: shop}, spec: {tls: [{hosts: [` + blue +
			`]}]}}` + "\n", nil, all, certs.Blocked, "default certificate"},
	} {
		w := world(t, c.objects)
		if c.leaf != nil {
			w.Leaves["shop/hand"] = c.leaf
		}
		entries := certs.Survey(w, c.options)
		if len(entries) != 1 {
			t.Errorf("%s: %d entries", what, len(entries))
			continue
		}
		e := entries[0]
		said := []string{e.Why, e.Hint, "to " + e.To}
		for _, name := range e.Add {
			said = append(said, name+" "+string(e.Ways[name]))
		}
		if text := strings.Join(slices.Concat(said, e.Notes), "|"); e.Verdict != c.verdict ||
			!strings.Contains(text, c.text) || e.Verdict == certs.Blocked && e.Hint == "" {
			t.Errorf("%s: %s, %q, want %s, %q", what, e.Verdict, text, c.verdict, c.text)
		}
	}
	w := world(t, hand)
	w.Wrong["shop/hand"] = errors.New("its key does not match its certificate")
	if e := certs.Survey(w, all)[0]; e.Verdict != certs.Blocked || e.Why != "its key does not match its certificate" {
		t.Errorf("a Secret that is none: %+v", e)
	}
}

// TestGivenUp: cert-manager 1.21 writes these conditions; while it tries, it has not.
func TestGivenUp(t *testing.T) {
	status := func(ready, issuing, more string) string {
		return fmt.Sprintf(
			`, status: {conditions: [{type: Issuing, status: %q, message: "the order\n\tis errored"}, {type: Ready, status: %q, message: changed}]%s}`,
			issuing, ready, more)
	}
	const failed = `, lastFailureTime: "2026-11-22T01:24:37Z"`
	for what, c := range map[string]struct {
		status string
		want   bool
	}{
		"it failed":        {status("False", "False", failed), true},
		"it never failed":  {status("False", "False", ""), false},
		"it tries":         {status("False", "True", failed), false},
		"it is issued":     {status("True", "False", failed), false},
		"nothing is known": {"", false},
	} {
		if got := certs.GivenUp(object(t, wanted("ClusterIssuer dns", "a.example", c.status))); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	crt := object(t, wanted("ClusterIssuer dns", "a.example, b.example", status("False", "False", failed)))
	if !certs.Wants(crt, []string{"b.example"}) || certs.Wants(crt, []string{"a.example", "c.example"}) {
		t.Error("it wants other names")
	}
	if got := certs.Said(crt); got != " (cert-manager: changed; the order is errored)" {
		t.Errorf("it says %q", got)
	}
}

// TestSecretsFor finds what a name is served from.
func TestSecretsFor(t *testing.T) {
	now := time.Now()
	root := certtest.New(t, "root", nil)
	w := world(t,
		`{kind: Ingress, metadata: {name: a, namespace: shop}, spec: {tls: [{hosts: [web.example.org], secretName: a}, {hosts: [gone.example.org], secretName: gone}]}}
{kind: Gateway, metadata: {name: g, namespace: infra}, spec: {listeners: [{tls: {certificateRefs: [{name: any}]}}, {hostname: "*.shop.example.org", tls: {certificateRefs: [{name: b, namespace: shop}]}}]}}
`)
	for secret, name := range map[string]string{"shop/a": "web.example.org", "shop/b": "*.shop.example.org",
		"infra/any": "any.example.org"} {
		leaf, err := certs.LeafOf(secret, root.Issue(now, now.Add(hour), name).Secret(t))
		if err != nil {
			t.Fatal(err)
		}
		w.Leaves[secret] = leaf
	}
	for name, want := range map[string]string{"web.example.org": "shop/a", "x.shop.example.org": "shop/b",
		"*.shop.example.org": "shop/b", "any.example.org": "infra/any", "other.example.org": ""} {
		leaves, err := w.SecretsFor(name)
		var got []string
		for _, leaf := range leaves {
			got = append(got, leaf.Secret)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v, want %s", name, got, err, want)
		}
	}
	if _, err := w.SecretsFor("gone.example.org"); err == nil || !strings.Contains(err.Error(), "no Secret shop/gone") {
		t.Errorf("a Secret that is not there: %v", err)
	}
}
