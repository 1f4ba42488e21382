package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

func parse(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatal("not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestLab(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := spec.Lab{Name: "a", Nodes: 2}
	p, err := NewLab(l, now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CA)
	tests := []struct {
		name  string
		pair  Pair
		usage x509.ExtKeyUsage
		host  string
		user  string
		group string
	}{
		{"API server on the fabric", p.APIServer, x509.ExtKeyUsageServerAuth, "198.18.0.10", "kube-apiserver", ""},
		{"API server through the relay", p.APIServer, x509.ExtKeyUsageServerAuth, "127.0.0.1", "kube-apiserver", ""},
		{"API server as a Service", p.APIServer, x509.ExtKeyUsageServerAuth, "198.18.64.1", "kube-apiserver", ""},
		{"kubelet 2 serving", p.NodeServer[1], x509.ExtKeyUsageServerAuth, "198.18.0.12", "a-node-2", ""},
		{"kubelet 2", p.NodeClient[1], x509.ExtKeyUsageClientAuth, "", "system:node:a-node-2", "system:nodes"},
		{"admin", p.Admin, x509.ExtKeyUsageClientAuth, "", "kubernetes-admin", "system:masters"},
		{"kube-proxy", p.Proxy, x509.ExtKeyUsageClientAuth, "", "system:kube-proxy", "system:node-proxier"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cert := parse(t, tt.pair.Cert)
			_, err := cert.Verify(x509.VerifyOptions{
				Roots: roots, CurrentTime: now.Add(time.Hour), DNSName: tt.host,
				KeyUsages: []x509.ExtKeyUsage{tt.usage},
			})
			if err != nil {
				t.Error(err)
			}
			if cert.Subject.CommonName != tt.user {
				t.Errorf("user %q, want %q", cert.Subject.CommonName, tt.user)
			}
			if tt.group != "" && (len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != tt.group) {
				t.Errorf("groups %q, want %q", cert.Subject.Organization, tt.group)
			}
			if _, err := tls.X509KeyPair(tt.pair.Cert, tt.pair.Key); err != nil {
				t.Errorf("key and certificate do not belong together: %v", err)
			}
		})
	}
	if _, err := parse(t, p.FrontProxyClient.Cert).Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err == nil {
		t.Error("the front proxy's authority must not be the clients'")
	}
}

// TestNodeAdded: a node that comes later has certificates of the same authority, and the others keep theirs.
func TestNodeAdded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := spec.Lab{Name: "a", Nodes: 1}
	p, err := NewLab(l, now)
	if err != nil {
		t.Fatal(err)
	}
	first := string(p.NodeClient[0].Cert)
	ca, err := p.Authority()
	if err != nil {
		t.Fatal(err)
	}
	l.Nodes = 2
	if err := p.AddNodes(ca, l, now); err != nil || len(p.NodeClient) != 2 || len(p.NodeServer) != 2 {
		t.Fatalf("%v: %d and %d pairs", err, len(p.NodeClient), len(p.NodeServer))
	}
	if string(p.NodeClient[0].Cert) != first {
		t.Error("the first node has another certificate")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CA)
	for _, pair := range []Pair{p.NodeClient[1], p.NodeServer[1]} {
		if _, err := parse(t, pair.Cert).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Error(err)
		}
	}
}
