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

// LeafOf reads a Secret's certificate, and demands that its key is the certificate's.
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
		return nil, fmt.Errorf("Secret %s: its key is not its certificate's: %w", secret, err)
	}
	return &Leaf{secret, certificate}, nil
}

// Covers says which of the names a certificate is not for. A wildcard among the names must be in it as it is.
func Covers(certificate *x509.Certificate, names []string) (missing []string) {
	for _, name := range names {
		if !contains(certificate.DNSNames, name) && (strings.HasPrefix(name, "*.") || certificate.VerifyHostname(name) != nil) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Trust is what a served certificate is judged by.
type Trust struct {
	// Roots verify the chain; nil for the system's.
	Roots *x509.CertPool
	Now   time.Time
	// Left is how long it must be valid from now on.
	Left time.Duration
}

// defaults are the names in certificates that controllers serve when they have none for a name.
var defaults = []string{"Kubernetes Ingress Controller Fake Certificate", "TRAEFIK DEFAULT CERT"}

// Judge says what is wrong with the chain, the leaf first, that an address served for a name: nothing, or all of it.
func (t Trust) Judge(name string, chain []*x509.Certificate) []string {
	if len(chain) == 0 {
		return []string{"no certificate was served"}
	}
	leaf := chain[0]
	if slices.Contains(defaults, leaf.Subject.CommonName) {
		return []string{"the default certificate of the controller was served: it has none for this name"}
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
	// Whether the dates of the leaf hold has been said: the chain is looked at as of a moment at which they do.
	moment := t.Now
	if moment.Before(leaf.NotBefore) || moment.After(leaf.NotAfter) {
		moment = leaf.NotAfter
	}
	between := x509.NewCertPool()
	for _, one := range chain[1:] {
		between.AddCert(one)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: t.Roots, Intermediates: between, CurrentTime: moment}); err != nil {
		text := err.Error()
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) && len(chain) == 1 && !bytes.Equal(leaf.RawIssuer, leaf.RawSubject) {
			text += " (it was served without the certificates between it and its root)"
		}
		wrong = append(wrong, text)
	}
	return wrong
}

// Same says which of the Secrets that a cluster has for a name the served certificate is of; an error when it is of none.
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
			return "", fmt.Errorf("an older or newer certificate of the same key is served than Secret %s has", one.Secret)
		}
	}
	return "", fmt.Errorf("another certificate is served (serial %x, %s) than Secret %s has", served.SerialNumber, namesOf(served), strings.Join(names, " or "))
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
