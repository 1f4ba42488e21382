// Package acme tests what Theseus writes to certificates against cert-manager's own types and code, and has pebble, a
// real ACME server, issue what they ask for.
package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cmacme "github.com/cert-manager/cert-manager/pkg/apis/acme/v1"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
	"github.com/cert-manager/cert-manager/pkg/util/solverpicker"
	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"golang.org/x/crypto/acme"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/prover"
)

// world is pebble with the name server that it asks and a server of HTTP-01 challenges.
type world struct {
	t     *testing.T
	chall *challtestsrv.ChallSrv
	acme  *acme.Client
	roots *x509.CertPool
}

// start starts pebble in this process, with its own code for all it does.
func start(t *testing.T) *world {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	quiet := log.New(io.Discard, "", 0)
	dns, challenges := free(t), free(t)
	chall, err := challtestsrv.New(challtestsrv.Config{Log: quiet, DNSAddrs: []string{dns},
		HTTPOneAddrs: []string{challenges}})
	if err != nil {
		t.Fatal(err)
	}
	chall.SetDefaultDNSIPv4("") // a name that nobody added points nowhere
	chall.SetDefaultDNSIPv6("")
	go chall.Run() // ends with Shutdown
	t.Cleanup(chall.Shutdown)
	_, port, err := net.SplitHostPort(challenges)
	if err != nil {
		t.Fatal(err)
	}
	var httpPort int
	fmt.Sscan(port, &httpPort) //nolint:errcheck // a port of a listener
	store := db.NewMemoryStore()
	authority := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	front := wfe.New(quiet, store, va.New(quiet, httpPort, 0, false, dns, store), authority,
		[]string{"pebble.test"}, false, false, 1, 1)
	server := httptest.NewTLSServer(front.Handler())
	t.Cleanup(server.Close)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.GetRootCert(0).Cert)
	w := &world{t: t, chall: chall, roots: roots,
		acme: &acme.Client{Key: key, HTTPClient: server.Client(), DirectoryURL: server.URL + wfe.DirectoryPath}}
	for end := time.Now().Add(time.Minute); ; { // its name server says nothing until it listens
		conn, err := net.Dial("tcp", dns)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if _, err := w.acme.Register(context.Background(), &acme.Account{}, acme.AcceptTOS); err != nil {
		t.Fatal(err)
	}
	return w
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// issue does what cert-manager does with a Certificate: its own code makes the request, and pebble is asked for it. The
// result is the data of the Secret.
func (w *world) issue(crt *cmapi.Certificate, way string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	key, err := pki.GeneratePrivateKeyForCertificate(crt)
	if err != nil {
		return nil, err
	}
	template, err := pki.GenerateCSR(crt)
	if err != nil {
		return nil, err
	}
	csr, err := pki.EncodeCSR(template, key)
	if err != nil {
		return nil, err
	}
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, err
	}
	order, err := w.acme.AuthorizeOrder(ctx, acme.DomainIDs(request.DNSNames...))
	if err != nil {
		return nil, err
	}
	for _, url := range order.AuthzURLs {
		if err := w.answer(ctx, url, way); err != nil {
			return nil, err
		}
	}
	ready, err := w.acme.WaitOrder(ctx, order.URI)
	if err != nil {
		return nil, err
	}
	// The client forgets where the order is while pebble still works on it.
	if _, _, err = w.acme.CreateOrderCert(ctx, ready.FinalizeURL, csr, true); err != nil &&
		!strings.Contains(err.Error(), "unsupported protocol scheme") {
		return nil, err
	}
	for ready.CertURL == "" {
		if ready, err = w.acme.GetOrder(ctx, order.URI); err != nil {
			return nil, err
		}
		if ready.Status == acme.StatusInvalid {
			return nil, fmt.Errorf("the order is invalid: %w", ready.Error)
		}
	}
	chain, err := w.acme.FetchCert(ctx, ready.CertURL, true)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for _, der := range chain {
		data["tls.crt"] = append(data["tls.crt"], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	data["tls.key"], err = pki.EncodePrivateKey(key, cmapi.PKCS8)
	return data, err
}

// answer proves one name by one way.
func (w *world) answer(ctx context.Context, url, way string) error {
	authz, err := w.acme.GetAuthorization(ctx, url)
	if err != nil || authz.Status == acme.StatusValid {
		return err
	}
	for _, c := range authz.Challenges {
		if c.Type != way {
			continue
		}
		switch way {
		case "dns-01":
			record, err := w.acme.DNS01ChallengeRecord(c.Token)
			if err != nil {
				return err
			}
			w.chall.AddDNSTXTRecord("_acme-challenge."+authz.Identifier.Value+".", record)
		case "http-01":
			answer, err := w.acme.HTTP01ChallengeResponse(c.Token)
			if err != nil {
				return err
			}
			w.chall.AddHTTPOneChallenge(c.Token, answer)
		}
		if _, err := w.acme.Accept(ctx, c); err != nil {
			return err
		}
		_, err := w.acme.WaitAuthorization(ctx, url)
		return err
	}
	return fmt.Errorf("pebble offers no %s for %s", way, authz.Identifier.Value)
}

const (
	blue, green = "web.blue.example.org", "web.green.example.org"
	issuerOf    = `{"apiVersion":"cert-manager.io/v1","kind":"ClusterIssuer","metadata":{"name":"acme"},"spec":{"acme":{"server":"https://pebble.test","privateKeySecretRef":{"name":"k"},"solvers":[{"%s":{}}]}}}`
	certOf      = `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"web","namespace":"shop","resourceVersion":"1"},
		"spec":{"secretName":"web","dnsNames":["web.blue.example.org","*.blue.example.org"],"privateKey":{"algorithm":"ECDSA"},"issuerRef":{"name":"acme","kind":"ClusterIssuer"}}}`
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// typed reads an object as cert-manager does, and demands that every field is known there.
func typed(t *testing.T, o *unstructured.Unstructured) *cmapi.Certificate {
	t.Helper()
	var crt cmapi.Certificate
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &crt, true); err != nil {
		t.Fatal(err)
	}
	return &crt
}

// widen is what `certs add` does with the objects: the survey, and the write of what it adds.
func widen(t *testing.T, crt, issuer *unstructured.Unstructured, accept bool) (certs.Entry,
	*unstructured.Unstructured) {
	t.Helper()
	e := certs.Survey(certs.World{Certificates: []*unstructured.Unstructured{crt},
		Issuers: []*unstructured.Unstructured{issuer}},
		certs.Options{Rules: certs.Rules{{Old: "blue.example.org", New: "green.example.org"}},
			HTTP01: accept, Now: time.Now()})[0]
	if e.Verdict != certs.Adds {
		return e, nil
	}
	edit, err := certs.Add(crt, e.Add)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(crt)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, edit.Patch)
	if err != nil {
		t.Fatal(err)
	}
	return e, object(t, string(after))
}

// TestDNS01 goes the whole way: names are added, cert-manager's code asks pebble for them by DNS-01 although they point
// nowhere, a server serves what was issued, and it is proven; then the way back.
func TestDNS01(t *testing.T) {
	w := start(t)
	e, wide := widen(t, object(t, certOf), object(t, fmt.Sprintf(issuerOf, "dns01")), false)
	if wide == nil || e.Ways[green] != certs.DNS01 || e.Ways["*.green.example.org"] != certs.DNS01 {
		t.Fatalf("%+v", e)
	}
	crt := typed(t, wide)
	data, err := w.issue(crt, "dns-01")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.LeafOf("shop/web", data)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := pki.FuzzyX509AltNamesMatchSpec(leaf.Certificate, crt.Spec); len(wrong) > 0 {
		t.Errorf("cert-manager would issue it again: %v", wrong)
	}
	if missing := certs.Covers(leaf.Certificate,
		[]string{blue, green, "*.blue.example.org", "*.green.example.org"}); len(missing) > 0 {
		t.Errorf("pebble issued no %v", missing)
	}
	served, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	asks := []prover.Ask{{Name: blue, Must: true}, {Name: green, Must: true}, {Name: "*.green.example.org", Must: true}}
	prove := func() []prover.Proof {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{served}})
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
		go server.Serve(listener) //nolint:errcheck // ends with Close
		defer server.Close()
		for i := range asks {
			asks[i].At, asks[i].Port = []string{"127.0.0.1"}, listener.Addr().(*net.TCPAddr).Port
		}
		p := &prover.Prover{Trust: certs.Trust{Roots: w.roots, Now: time.Now(), Left: 72 * time.Hour},
			Resolve: func(_ context.Context, at []string) ([]string, error) { return at, nil },
			Secrets: func(string) ([]*certs.Leaf, error) { return []*certs.Leaf{leaf}, nil }}
		proofs, err := p.Prove(context.Background(), asks)
		if err != nil {
			t.Fatal(err)
		}
		return proofs
	}
	for _, p := range prove() {
		if len(p.Wrong) > 0 || p.Secret != "shop/web" {
			t.Errorf("%+v", p)
		}
	}
	// The certificate from before the names were added proves nothing of the mirror's, nor is it the Secret's.
	old, err := w.issue(typed(t, object(t, certOf)), "dns-01")
	if err != nil {
		t.Fatal(err)
	}
	if served, err = tls.X509KeyPair(old["tls.crt"], old["tls.key"]); err != nil {
		t.Fatal(err)
	}
	for _, p := range prove() {
		if text := strings.Join(p.Wrong, "; "); !strings.Contains(text, "is not the one in Secret") ||
			strings.Contains(text, "is not for") != strings.Contains(p.Name, "green") {
			t.Errorf("%s: %s", p.Name, text)
		}
	}
	// And without what is between it and the root, no client takes it.
	served.Certificate = served.Certificate[:1]
	for _, p := range prove() {
		if !strings.Contains(strings.Join(p.Wrong, "; "), "did not send the intermediate certificates") {
			t.Errorf("%+v", p)
		}
	}
	edit, err := certs.Back(wide)
	if err != nil || edit.Changed {
		t.Fatalf("%+v, %v", edit, err)
	}
}

// TestHTTP01 is the chicken and the egg: what the survey refuses, pebble refuses; and what is accepted because the
// names point to the original, pebble issues.
func TestHTTP01(t *testing.T) {
	w := start(t)
	crt := object(t, strings.Replace(certOf, `,"*.blue.example.org"`, "", 1))
	issuer := object(t, fmt.Sprintf(issuerOf, "http01"))
	if e, wide := widen(t, crt, issuer, false); wide != nil || e.Verdict != certs.Blocked ||
		!strings.Contains(e.Why, "HTTP-01") {
		t.Fatalf("not refused: %+v", e)
	}
	w.chall.AddDNSARecord(blue+".", []string{"127.0.0.1"})
	_, wide := widen(t, crt, issuer, true)
	var refused *acme.AuthorizationError
	if _, err := w.issue(typed(t, wide), "http-01"); !errors.As(err, &refused) || refused.Identifier != green {
		t.Errorf("for a name that points nowhere pebble says %v", err)
	}
	w.chall.AddDNSARecord(green+".", []string{"127.0.0.1"})
	if _, err := w.issue(typed(t, wide), "http-01"); err != nil {
		t.Errorf("pebble did not issue it although the name points here: %v", err)
	}
}

// TestSolvers compares the choice of the solver with cert-manager's own.
func TestSolvers(t *testing.T) {
	names := []string{"web.blue.example.org", "blue.example.org", "*.blue.example.org", "example.org",
		"a.web.blue.example.org", "other.io"}
	zones := []string{"example.org", "blue.example.org", "web.blue.example.org", "org", "io"}
	counts := map[certs.Way]int{}
	rapid.Check(t, func(r *rapid.T) {
		labels := rapid.MapOf(rapid.SampledFrom([]string{"a", "b"}),
			rapid.SampledFrom([]string{"1", "2"})).Draw(r, "labels")
		var solvers []cmacme.ACMEChallengeSolver
		for range rapid.IntRange(0, 5).Draw(r, "solvers") {
			s := cmacme.ACMEChallengeSolver{}
			if rapid.Bool().Draw(r, "http") {
				s.HTTP01 = &cmacme.ACMEChallengeSolverHTTP01{Ingress: &cmacme.ACMEChallengeSolverHTTP01Ingress{}}
			} else {
				s.DNS01 = &cmacme.ACMEChallengeSolverDNS01{Webhook: &cmacme.ACMEIssuerDNS01ProviderWebhook{}}
			}
			if rapid.Bool().Draw(r, "selects") {
				s.Selector = &cmacme.CertificateDNSNameSelector{
					DNSNames: rapid.SliceOfN(rapid.SampledFrom(names), 0, 2).Draw(r, "names"),
					DNSZones: rapid.SliceOfN(rapid.SampledFrom(zones), 0, 2).Draw(r, "zones"),
					MatchLabels: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}),
						rapid.SampledFrom([]string{"1", "2"}), 0, 2).Draw(r, "wants"),
				}
			}
			solvers = append(solvers, s)
		}
		issuer := &cmapi.ClusterIssuer{
			Spec: cmapi.IssuerSpec{IssuerConfig: cmapi.IssuerConfig{ACME: &cmacme.ACMEIssuer{Solvers: solvers}}}}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(issuer)
		if err != nil {
			r.Fatal(err)
		}
		name := rapid.SampledFrom(names).Draw(r, "name")
		offered := []cmacme.ACMEChallenge{{Type: "dns-01"}}
		if !strings.HasPrefix(name, "*.") {
			offered = append(offered, cmacme.ACMEChallenge{Type: "http-01"})
		}
		want := certs.NoWay
		if _, c := solverpicker.Pick(context.Background(), name, offered, solvers,
			&cmacme.Order{ObjectMeta: metav1.ObjectMeta{Labels: labels}}); c != nil {
			want = map[string]certs.Way{"dns-01": certs.DNS01, "http-01": certs.HTTP01}[c.Type]
		}
		if got := certs.WayOf(&unstructured.Unstructured{Object: fields}, labels, name); got != want {
			r.Fatalf("%s: %s, cert-manager says %s", name, got, want)
		}
		counts[want]++
	})
	for _, way := range []certs.Way{certs.NoWay, certs.DNS01, certs.HTTP01} {
		if counts[way] == 0 {
			t.Errorf("no case had %s", way)
		}
	}
}
