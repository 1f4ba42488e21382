// Package pki makes the certificates, keys and kubeconfigs of a lab: one authority for the API, one
// for the aggregation layer, one signing key for service accounts. Everything is ECDSA P-256, which
// takes milliseconds where RSA takes seconds.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// lifetime of every certificate: a lab lives for hours, a forgotten one for days.
const lifetime = 30 * 24 * time.Hour

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// Authority signs certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a self-signed authority of the given common name.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of authority %s: %w", name, err)
	}
	tmpl := template(pkix.Name{CommonName: name}, now)
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of authority %s: %w", name, err)
	}
	pair, err := encode(der, key)
	return &Authority{Pair: pair, cert: cert, key: key}, err
}

// Authority is that of the API, as it was made.
func (p *Lab) Authority() (*Authority, error) {
	pair, err := tls.X509KeyPair(p.CA, p.CAKey)
	if err != nil {
		return nil, fmt.Errorf("the authority of the API: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the authority of the API has a key of type %T", pair.PrivateKey)
	}
	return &Authority{Pair: Pair{Cert: p.CA, Key: p.CAKey}, cert: pair.Leaf, key: key}, nil
}

// Client makes a client certificate: the user is the common name, the groups are the organisations.
func (a *Authority) Client(now time.Time, user string, groups ...string) (Pair, error) {
	tmpl := template(pkix.Name{CommonName: user, Organization: groups}, now)
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(tmpl)
}

// Server makes a serving certificate for the names and addresses.
func (a *Authority) Server(now time.Time, name string, dns []string, ips []netip.Addr) (Pair, error) {
	tmpl := template(pkix.Name{CommonName: name}, now)
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	tmpl.DNSNames = dns
	for _, ip := range ips {
		tmpl.IPAddresses = append(tmpl.IPAddresses, net.IP(ip.AsSlice()))
	}
	return a.sign(tmpl)
}

// SigningKey makes a key pair for service account tokens: Cert holds the public key.
func SigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("service account key: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return Pair{}, fmt.Errorf("service account key: %w", err)
	}
	pair, err := encode(nil, key)
	pair.Cert = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
	return pair, err
}

func (a *Authority) sign(tmpl *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("key of %s: %w", tmpl.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %s: %w", tmpl.Subject.CommonName, err)
	}
	return encode(der, key)
}

func template(subject pkix.Name, now time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		serial = big.NewInt(now.UnixNano())
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a private key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}),
	}, nil
}
