package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Leaf is the certificate of a Secret of type kubernetes.io/tls.
type Leaf struct {
	Secret string // namespace/name
	*x509.Certificate
}

// LeafOf reads a Secret's certificate, and checks that the key belongs to it.
func LeafOf(secret string, data map[string][]byte) (*Leaf, error) {
	block, _ := pem.Decode(data["tls.crt"])
	if block == nil {
		return nil, fmt.Errorf("Secret %s has no certificate in tls.crt", secret)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: tls.crt: %w", secret, err)
	}
	if _, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"]); err != nil {
		return nil, fmt.Errorf("Secret %s: its key does not match its certificate: %w", secret, err)
	}
	return &Leaf{secret, certificate}, nil
}

// Covers returns the names that a certificate does not cover. A wildcard among the names must be in it literally.
func Covers(certificate *x509.Certificate, names []string) (missing []string) {
	for _, name := range names {
		if !contains(certificate.DNSNames, name) &&
			(strings.HasPrefix(name, "*.") || certificate.VerifyHostname(name) != nil) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Trust has the criteria for a served certificate.
type Trust struct {
	// Roots verify the chain; nil means the system's roots.
	Roots *x509.CertPool
	Now   time.Time
	// Left is how long it must still be valid.
	Left time.Duration
}

// defaults are the names in the default certificates of controllers.
var defaults = []string{"Kubernetes Ingress Controller Fake Certificate", "TRAEFIK DEFAULT CERT"}

// Judge returns all problems of the chain, leaf first, that an address served for a name; none if it is valid.
func (t Trust) Judge(name string, chain []*x509.Certificate) []string {
	if len(chain) == 0 {
		return []string{"the server sent no certificate"}
	}
	leaf := chain[0]
	if slices.Contains(defaults, leaf.Subject.CommonName) {
		return []string{"the controller served its default certificate: it has none for this name"}
	}
	var wrong []string
	if err := leaf.VerifyHostname(name); err != nil {
		wrong = append(wrong, fmt.Sprintf("it is not for %s, but for %s", name, namesOf(leaf)))
	}
	switch {
	case t.Now.Before(leaf.NotBefore):
		wrong = append(wrong, "it is valid only from "+day(leaf.NotBefore))
	case t.Now.After(leaf.NotAfter):
		wrong = append(wrong, "it expired "+day(leaf.NotAfter))
	case t.Now.Add(t.Left).After(leaf.NotAfter):
		wrong = append(wrong, "it expires "+day(leaf.NotAfter)+", too soon")
	}
	// The leaf's dates were checked above: verify the chain at a time at which they are valid.
	moment := t.Now
	if moment.Before(leaf.NotBefore) || moment.After(leaf.NotAfter) {
		moment = leaf.NotAfter
	}
	between := x509.NewCertPool()
	for _, one := range chain[1:] {
		between.AddCert(one)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: t.Roots, Intermediates: between,
		CurrentTime: moment}); err != nil {
		text := err.Error()
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) && len(chain) == 1 &&
			!bytes.Equal(leaf.RawIssuer, leaf.RawSubject) {
			text += " (the server did not send the intermediate certificates)"
		}
		wrong = append(wrong, text)
	}
	return wrong
}

// Same returns the Secret, of those that a cluster has for a name, that contains the served certificate; an error if
// none does.
func Same(served *x509.Certificate, secrets []*Leaf) (secret string, err error) {
	var names []string
	for _, one := range secrets {
		if bytes.Equal(one.Raw, served.Raw) {
			return one.Secret, nil
		}
		names = append(names, one.Secret)
	}
	for _, one := range secrets {
		if key, ok := one.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && key.Equal(served.PublicKey) {
			return "", fmt.Errorf("the served certificate has the same key as Secret %s, but is older or newer",
				one.Secret)
		}
	}
	return "", fmt.Errorf("the served certificate (serial %x, %s) is not the one in Secret %s",
		served.SerialNumber, namesOf(served), strings.Join(names, " or "))
}

func namesOf(certificate *x509.Certificate) string {
	names := certificate.DNSNames
	for _, ip := range certificate.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no name (subject " + certificate.Subject.String() + ")"
	}
	if more := len(names) - 5; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), more)
	}
	return strings.Join(names, ", ")
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
