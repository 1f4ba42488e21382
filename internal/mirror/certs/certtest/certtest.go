// Package certtest makes authorities and certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a root, or with a parent an authority below it.
func New(t testing.TB, name string, parent *Authority) *Authority {
	t.Helper()
	a := &Authority{t: t}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour)}
	a.key = newKey(t)
	if parent == nil {
		parent = &Authority{t: t, Cert: template, key: a.key}
	}
	a.Cert = parent.sign(template, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate
}

// Pool has the authority as its only root.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}

// Pair is a certificate with its key.
type Pair struct {
	Leaf *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Issue makes a certificate for names (and IPs) that is valid between two moments.
func (a *Authority) Issue(from, until time.Time, names ...string) Pair {
	a.t.Helper()
	return a.For(newKey(a.t), from, until, names...)
}

// For is Issue for a key that is there already.
func (a *Authority) For(key *ecdsa.PrivateKey, from, until time.Time, names ...string) Pair {
	a.t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return Pair{a.sign(template, key), key}
}

// Secret is the data of a Secret of type kubernetes.io/tls.
func (p Pair) Secret(t testing.TB, above ...*x509.Certificate) map[string][]byte {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		t.Fatal(err)
	}
	chain := encode("CERTIFICATE", p.Leaf.Raw)
	for _, one := range above {
		chain = append(chain, encode("CERTIFICATE", one.Raw)...)
	}
	return map[string][]byte{"tls.crt": chain, "tls.key": encode("PRIVATE KEY", key)}
}

// TLS is the pair as a server serves it.
func (p Pair) TLS(above ...*x509.Certificate) tls.Certificate {
	served := tls.Certificate{Certificate: [][]byte{p.Leaf.Raw}, PrivateKey: p.Key}
	for _, one := range above {
		served.Certificate = append(served.Certificate, one.Raw)
	}
	return served
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Serve speaks TLS on a free port of an address until the test ends: by name the certificates of bySNI, and else the
// one under "" (none: the handshake fails).
func Serve(t testing.TB, address string, bySNI map[string]tls.Certificate) (port int) {
	t.Helper()
	listener, err := tls.Listen("tcp", net.JoinHostPort(address, "0"), &tls.Config{
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			served, ok := bySNI[hello.ServerName]
			if !ok {
				if served, ok = bySNI[""]; !ok {
					return nil, nil
				}
			}
			return &served, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				conn.(*tls.Conn).Handshake() //nolint:errcheck // the client says what was wrong
				conn.Close()
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}
