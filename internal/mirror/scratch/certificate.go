package scratch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
)

// certified is how long the certificate of a copy's webhooks is valid: a copy may be kept.
const certified = 365 * 24 * time.Hour

// Certify makes a certificate for the names of a copy's webhooks. It signs itself, so that it is the authority as well.
func Certify(names []string) (made rehearsal.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return made, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return made, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "webhooks of theseus rehearse"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certified), // clocks differ
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return made, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return made, err
	}
	made.Authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	made.Serving = slices.Concat(made.Authority, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return made, nil
}
