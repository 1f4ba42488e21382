package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// versionServer serves versions by TLS, with a certificate for the name of every API server alone.
func versionServer(t *testing.T, key *ecdsa.PrivateKey, certificate []byte, minor string) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"major":"1","minor":%q,"gitVersion":"v1.%s.0"}`, minor, minor)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestDirect: the client reaches the API servers at their own addresses, though that of the configuration does not
// answer, changes over when one ends, and verifies their certificates by the name that all have.
func TestDirect(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{DNS},
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	dead := closed.Addr().String()
	first, second := versionServer(t, key, certificate, "31"), versionServer(t, key, certificate, "32")
	trusted := rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})}
	version := func(host string, addresses []string, fixed bool, change func(*rest.Config)) (string, *Servers, error) {
		t.Helper()
		config, servers, err := Direct(&rest.Config{Host: "https://" + host, TLSClientConfig: trusted,
			Timeout: 10 * time.Second}, addresses, fixed)
		if err != nil {
			t.Fatal(err)
		}
		change(config)
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		info, err := client.ServerVersion()
		if err != nil {
			return "", servers, err
		}
		return info.GitVersion, servers, nil
	}
	leave := func(*rest.Config) {}
	for name, test := range map[string]struct {
		host      string
		addresses []string
		fixed     bool
		want      string
	}{
		"the first one":               {dead, []string{first, second}, true, "v1.31.0"},
		"the next one":                {dead, []string{dead, second}, true, "v1.32.0"},
		"the configuration's":         {first, nil, false, "v1.31.0"},
		"the configuration's at last": {second, []string{dead}, false, "v1.32.0"},
	} {
		got, servers, err := version(test.host, test.addresses, test.fixed, leave)
		if err != nil || got != test.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if name == "the next one" && servers.known()[0] != second {
			t.Errorf("the address that works is not the first one: %s", servers.known())
		}
	}
	if _, _, err := version(first, []string{dead, dead}, true, leave); err == nil || !outage.Passes(err) {
		t.Errorf("the address of the configuration is used though addresses are fixed: %v", err)
	}
	_, _, err = version(dead, []string{first}, true, func(c *rest.Config) { c.ServerName = "elsewhere" })
	if err == nil || !strings.Contains(err.Error(), "certificate is valid for "+DNS) {
		t.Errorf("another name is trusted: %v", err)
	}
}

// TestStranger: an address that leads to something that is no API server of the cluster is left for that of the
// configuration, and tried again later.
func TestStranger(t *testing.T) {
	own := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"major":"1","minor":"31","gitVersion":"v1.31.0"}`)
	}))
	defer own.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{DNS},
		NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	stranger := versionServer(t, key, certificate, "32")
	config, servers, err := Direct(&rest.Config{Host: own.URL, Timeout: 10 * time.Second,
		TLSClientConfig: rest.TLSClientConfig{ServerName: "example.com", CAData: pem.EncodeToMemory(&pem.Block{
			Type: "CERTIFICATE", Bytes: own.Certificate().Raw})}}, []string{stranger}, false)
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ServerVersion(); err == nil || !outage.Untrusted(err) {
		t.Errorf("the stranger is trusted: %v", err)
	}
	if info, err := client.ServerVersion(); err != nil || info.GitVersion != "v1.31.0" {
		t.Errorf("the address of the configuration is not tried: %v, %v", info, err)
	}
	servers.byLast = time.Now()
	if known := servers.known(); known[0] != stranger {
		t.Errorf("later, %s are tried", known)
	}
}

// TestUse: the addresses come from all EndpointSlices of the Service, one that works stays the first one, and none
// changes nothing.
func TestUse(t *testing.T) {
	slice := func(addresses ...string) discoveryv1.EndpointSlice {
		port := int32(6443)
		return discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}}}
	}
	s := &Servers{addresses: []string{"10.0.0.2:6443"}, last: "10.96.0.1:443"}
	if s.Use(Find(nil)); !slices.Equal(s.known(), []string{"10.0.0.2:6443", "10.96.0.1:443"}) {
		t.Errorf("%v", s.known())
	}
	found := Find([]discoveryv1.EndpointSlice{slice("10.0.0.3", "10.0.0.2"), slice("10.0.0.1", "2001:db8::1")})
	if !slices.Equal(found, []string{"10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443", "[2001:db8::1]:6443"}) {
		t.Errorf("%v", found)
	}
	s.Use(found[:3])
	if want := []string{"10.0.0.2:6443", "10.0.0.1:6443", "10.0.0.3:6443",
		"10.96.0.1:443"}; !slices.Equal(s.known(), want) {
		t.Errorf("%v, want %v", s.known(), want)
	}
}
