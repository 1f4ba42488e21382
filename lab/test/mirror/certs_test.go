package mirror

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// certManager has cert-manager's kinds, with what the test needs of their definitions; test/acme holds what is written
// against its own types.
const certManager = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.cert-manager.io}
spec:
  group: cert-manager.io
  scope: %[3]s
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
`

func kindsOfCertManager() string {
	return fmt.Sprintf(certManager, "certificate", "Certificate", "Namespaced") +
		fmt.Sprintf(certManager, "issuer", "Issuer", "Namespaced") +
		fmt.Sprintf(certManager, "clusterissuer", "ClusterIssuer", "Cluster")
}

const certificates = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: dns}
spec: {acme: {solvers: [{dns01: {webhook: {}}}]}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: shop}
spec: {secretName: web, dnsNames: [web.blue.example.org], issuerRef: {name: dns, kind: ClusterIssuer}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: api, namespace: shop}
spec: {secretName: api, dnsNames: [api.blue.example.org, api.example.com], issuerRef: {name: dns, kind: ClusterIssuer}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shim, namespace: shop, annotations: {cert-manager.io/cluster-issuer: dns}}
spec: {rules: [{host: shim.blue.example.org}], tls: [{hosts: [shim.blue.example.org], secretName: shim}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec: {rules: [{host: web.blue.example.org}], tls: [{hosts: [web.blue.example.org], secretName: web}]}
`

// changed are the kinds that names are written to.
const changed = "certificate,ingress"

// manager does what cert-manager does, with an authority of the test: it gives Certificates their Secrets.
type manager struct {
	*cluster
	authority *pki.Authority
	pair      pki.Pair // the last one of shop/web
}

// newManager is one for the first of the clusters; all get cert-manager's kinds.
func newManager(t *testing.T, clusters ...*cluster) *manager {
	t.Helper()
	authority, err := pki.NewAuthority("certs", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range clusters {
		one.kubectl(t, kindsOfCertManager(), "apply", "-f", "-")
		rigtest.Until(t, "cert-manager's kinds are served", func() bool {
			_, err := one.try(one.kubeconfig, "", "get", "certificates,issuers,clusterissuers", "-A")
			return err == nil
		})
	}
	return &manager{cluster: clusters[0], authority: authority}
}

// issue issues what a Certificate asks for, as cert-manager would once it sees it.
func (m *manager) issue(t *testing.T, name string) {
	t.Helper()
	names := strings.Fields(m.get(t, "certificate/"+name, "{.spec.dnsNames[*]}"))
	pair, err := m.authority.Server(time.Now(), names[0], names, []netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	if name == "web" {
		m.pair = pair
	}
	encode := base64.StdEncoding.EncodeToString
	m.kubectl(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: %s, "+
		"namespace: shop}, data: {tls.crt: %s, tls.key: %s}}",
		name, encode(pair.Cert), encode(pair.Key)), "apply", "-f", "-")
}

// TestCerts is one story: names are added on a real API server, a certificate is issued for them while the command
// waits, it is copied, served and proven; what somebody else writes meanwhile is kept; and the way back.
func TestCerts(t *testing.T) {
	p := newPair(t, false)
	cm := newManager(t, p.blue, p.green)
	p.blue.kubectl(t, certificates, "apply", "-f", "-")
	uid := p.blue.get(t, "ingress/shim", "{.metadata.uid}")
	p.blue.kubectl(t, fmt.Sprintf(`
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shim, namespace: shop, ownerReferences: [{apiVersion: networking.k8s.io/v1, kind: Ingress, name: shim, uid: %s, controller: true}]}
spec: {secretName: shim, dnsNames: [shim.blue.example.org], issuerRef: {name: dns, kind: ClusterIssuer}}
`, uid), "apply", "-f", "-")
	for _, name := range []string{"web", "api", "shim"} {
		cm.issue(t, name)
	}
	before := cm.specs(t, changed)

	p.theseus(1, []string{"there is no namespace nope"}, "certs", "list", "--domain", rule, "-n", "nope")
	p.theseus(0, []string{"web.green.example.org (DNS-01) by ClusterIssuer dns",
		"written to Ingress shop/shim", "3 get names"}, "certs", "list", "--domain", rule)
	p.theseus(2, []string{"3 get names", "this changes certificates"}, "certs", "add", "--domain", rule)
	if cm.specs(t, changed) != before {
		t.Fatal("the list changed something")
	}
	t.Run("an API server that refuses", func(t *testing.T) { cm.refuses(t, p, rule, before) })

	// One certificate of the issuer goes first; the others have to wait for it.
	p.theseus(1, []string{"1 certificates are not issued after 1s", "is not yet for api.green.example.org"}, "certs",
		"add", "--domain", rule, "--yes", "--wait", "1s")
	if got := p.blue.get(t, "certificate/web", "{.spec.dnsNames[*]}"); got != "web.blue.example.org" {
		t.Errorf("web has %s before api was issued", got)
	}
	cm.issue(t, "api")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	add := p.command(ctx, "certs", "add", "--domain", rule, "--yes", "--wait", "1m")
	var said strings.Builder
	add.Stdout, add.Stderr = &said, &said
	if err := add.Start(); err != nil {
		t.Fatal(err)
	}
	rigtest.Until(t, "the names of shim are written", func() bool {
		return p.blue.get(t, "ingress/shim",
			`{.metadata.annotations.cert-manager\.io/alt-names}`) == "shim.green.example.org"
	})
	// cert-manager's shim
	p.blue.kubectl(t, "", "-n", "shop", "patch", "certificate", "shim", "--type=merge", "-p",
		`{"spec":{"dnsNames":["shim.blue.example.org","shim.green.example.org"]}}`)
	cm.issue(t, "shim")
	rigtest.Until(t, "the names of web are written", func() bool {
		return p.blue.get(t, "certificate/web", "{.spec.dnsNames[*]}") == "web.blue.example.org web.green.example.org"
	})
	cm.issue(t, "web")
	if err := add.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	p.theseus(0, []string{"0 names were added"}, "certs", "add", "--domain", rule, "--yes")

	t.Run("proven", func(t *testing.T) { p.t = t; cm.proven(t, p, rule) })
	p.t = t

	// Somebody else's change meanwhile is kept; the rest is exactly what it was.
	p.blue.kubectl(t, "", "-n", "shop", "patch", "certificate", "api", "--type=json", "-p",
		`[{"op":"add","path":"/spec/dnsNames/-","value":"more.example.com"}]`)
	p.theseus(2, []string{"Certificate shop/web loses web.green.example.org"}, "certs", "back")
	p.theseus(0, []string{"Certificate shop/api was changed by someone else since"}, "certs", "back", "--yes")
	if got := p.blue.get(t, "certificate/api",
		"{.spec.dnsNames[*]}"); got != "api.blue.example.org api.example.com more.example.com" {
		t.Errorf("api has %s", got)
	}
	p.blue.kubectl(t, "", "-n", "shop", "patch", "certificate", "api", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/dnsNames/2"}]`)
	// cert-manager's shim
	p.blue.kubectl(t, "", "-n", "shop", "patch", "certificate", "shim", "--type=merge", "-p",
		`{"spec":{"dnsNames":["shim.blue.example.org"]}}`)
	if after := cm.specs(t, changed); after != before {
		t.Errorf("after the way back:\n%s\nbefore:\n%s", after, before)
	}
	p.theseus(0, []string{"no certificate has added names"}, "certs", "back", "--yes")
}

// specs are the specs and annotations of objects of the shop.
func (c *cluster) specs(t *testing.T, kinds string) string {
	t.Helper()
	return c.kubectl(t, "", "-n", "shop", "get", kinds, "-o",
		"jsonpath={range .items[*]}{.metadata.name}{.spec}{.metadata.annotations}{'\\n'}{end}")
}

// refuses: a policy refuses one of the writes, so none is made.
func (m *manager) refuses(t *testing.T, p *pair, rule, before string) {
	m.kubectl(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuser}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [cert-manager.io], apiVersions: ["*"], resources: [certificates], operations: [UPDATE]}]}
  validations: [{expression: "object.metadata.name != 'web'", message: nobody changes web}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuser}
spec: {policyName: refuser, validationActions: [Deny]}
`, "apply", "-f", "-")
	rigtest.Until(t, "the policy is in force", func() bool {
		_, err := m.try(m.kubeconfig, "", "-n", "shop", "label", "certificate", "web", "a=b", "--dry-run=server")
		return err != nil
	})
	p.theseus(1, []string{"Certificate shop/web: ", "nobody changes web", "nothing was changed"}, "certs", "add",
		"--domain", rule, "--yes", "--wait", "0")
	if m.specs(t, changed) != before {
		t.Error("something was changed all the same")
	}
	m.kubectl(t, "", "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "refuser")
	rigtest.Until(t, "the policy is deleted", func() bool {
		_, err := m.try(m.kubeconfig, "", "-n", "shop", "label", "certificate", "web", "a=b", "--dry-run=server")
		return err == nil
	})
}

// proven: the mirror's Ingress is served by a real TLS server with what its Secret has, and with what it has not.
func (m *manager) proven(t *testing.T, p *pair, rule string) {
	p.theseus(0, nil, "copy", "-n", "shop")
	p.green.kubectl(t, "", "-n", "shop", "patch", "ingress", "web", "--subresource=status", "--type=merge", "-p",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"127.0.0.2"}]}}}`)
	served, err := tls.X509KeyPair(m.pair.Cert, m.pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	prove := prover(t, "127.0.0.2", m.authority.Cert,
		func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &served, nil })
	p.green.kubectl(t, "", "-n", "shop", "delete", "secret", "web")
	p.theseus(3, []string{"the mirror has no Secret shop/web, which Ingress shop/web names"}, prove...)
	p.theseus(0, nil, "copy", "-n", "shop")
	out := p.theseus(3, []string{"wrong   shim.blue.example.org", "2 proven, "}, prove...)
	for _, name := range []string{"web.blue.example.org", "web.green.example.org"} {
		if !strings.Contains(out, "proven  "+name) {
			t.Errorf("%s is not proven:\n%s", name, out)
		}
	}
	other, err := m.authority.Server(time.Now(), "web", []string{"web.blue.example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if served, err = tls.X509KeyPair(other.Cert, other.Key); err != nil {
		t.Fatal(err)
	}
	p.theseus(3, []string{"is not the one in Secret",
		"it is not for web.green.example.org, but for web.blue.example.org", "0 proven, "}, prove...)
}

// prover serves certificates at an address, and returns the arguments that have theseus prove what is served there.
func prover(t *testing.T, address string, roots []byte,
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) []string {
	t.Helper()
	listener, err := tls.Listen("tcp", address+":0", &tls.Config{GetCertificate: get})
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
	dir := t.TempDir()
	zones, ca := filepath.Join(dir, "zones.yaml"), filepath.Join(dir, "ca.pem")
	text := "apiVersion: theseus.dev/v1alpha1\nkind: Zones\n" +
		"zones: [{name: example.org, rfc2136: {server: \"127.0.0.1:1\"}}]\nports: {443: " +
		strconv.Itoa(listener.Addr().(*net.TCPAddr).Port) + "}\n"
	for file, content := range map[string][]byte{zones: []byte(text), ca: roots} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"certs", "prove", "--zones", zones, "--ca", ca, "--domain", rule, "--valid-for", "1h"}
}
