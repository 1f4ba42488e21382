package mirror

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/names"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// authorities are one in a Secret, and what pebble's issuers need to write to a zone on BIND.
const authorities = `
apiVersion: v1
kind: Secret
metadata: {name: cut, namespace: cert-manager}
stringData: {key: %[1]q}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: authority, namespace: cert-manager}
data: {tls.crt: %[2]s, tls.key: %[3]s}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: authority}
spec: {ca: {secretName: authority}}
`

// acmeIssuer asks pebble. Its solvers do not ask first themselves: BIND has it at once, and that check waits a minute.
const acmeIssuer = `---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: %[1]s}
spec: {acme: {server: %[2]q, caBundle: %[3]s, privateKeySecretRef: {name: account-%[1]s}, solvers: [%[4]s]}}
`

// webhooks are cert-manager's admission, as its chart has it but for the address.
const webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sWebhookConfiguration
metadata: {name: cert-manager-webhook}
webhooks:
- name: webhook.cert-manager.io
  rules: [%[2]s]
  admissionReviewVersions: [v1]
  matchPolicy: Equivalent
  timeoutSeconds: 30
  failurePolicy: Fail
  sideEffects: None
  clientConfig: {url: "https://localhost:%[3]d/%[4]s", caBundle: %[5]s}
---
`

// requested are the certificates of a shop, each asked for in another way. The ones of shim and gate are made by
// cert-manager for the Ingress and the Gateway.
const requested = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: shop}
spec: {secretName: web, dnsNames: [web.blue.example.org, "*.blue.example.org"], privateKey: {algorithm: ECDSA}, issuerRef: {name: pebble, kind: ClusterIssuer}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: api, namespace: shop}
spec: {secretName: api, dnsNames: [api.blue.example.org, api.example.com], issuerRef: {name: authority, kind: ClusterIssuer}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shim, namespace: shop, annotations: {cert-manager.io/cluster-issuer: pebble, cert-manager.io/alt-names: more.example.org}}
spec:
  rules: [{host: shim.blue.example.org}, {host: second.blue.example.org}]
  tls: [{hosts: [shim.blue.example.org], secretName: shim}, {hosts: [second.blue.example.org], secretName: second}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gate, namespace: shop, annotations: {cert-manager.io/cluster-issuer: authority}}
spec:
  gatewayClassName: none
  listeners: [{name: a, port: 443, protocol: HTTPS, hostname: gate.blue.example.org, tls: {certificateRefs: [{name: gate}]}}]
`

const (
	rule = "blue.example.org=green.example.org"
	crt  = `{.data.tls\.crt}`
)

// realManager is cert-manager itself.
type realManager struct {
	*cluster
	t     *testing.T
	root  []byte // of its ACME server
	roots *x509.CertPool
}

// certManagers runs cert-manager for both clusters, its webhook too, and its issuers' name server, in whose zone
// records are. HTTP-01 asks at port http.
func certManagers(t *testing.T, p *pair, http int, records ...string) (blue, green *realManager) {
	t.Helper()
	zone := names.Zone{Dir: t.TempDir(), Origin: "example.org", Bind: port(t), Unbound: port(t), Records: records}
	if err := zone.Write(0); err != nil {
		t.Fatal(err)
	}
	stop, err := zone.Servers()[0].Start(filepath.Join(zone.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	nameserver := fmt.Sprint("127.0.0.1:", zone.Bind)
	rigtest.Until(t, "the name server answers", func() bool {
		return len(names.Lookup(nameserver, "ns.example.org")) == 1
	})
	key, err := os.ReadFile(filepath.Join(zone.Dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	const source = "../../../test/certmanager"
	program := filepath.Join(t.TempDir(), "certmanager")
	if out, err := exec.Command("go", "-C", source, "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dirs, err := exec.Command("go", "-C", source, "list", "-m", "-f", "{{.Dir}}",
		"github.com/cert-manager/cert-manager", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(dirs))
	authority, err := pki.NewAuthority("certs", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	run := func(c *cluster) *realManager {
		gateways := filepath.Join(modules[1], "config/crd/standard/gateway.networking.k8s.io_")
		c.kubectl(t, "", "apply", "--server-side", "-f", filepath.Join(modules[0], "deploy/crds"),
			"-f", gateways+"gateways.yaml", "-f", gateways+"gatewayclasses.yaml", "-f", gateways+"httproutes.yaml")
		c.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m")
		c.kubectl(t, "", "create", "namespace", "cert-manager")
		said := c.keep(t, "cert-manager", false, program, c.kubeconfig, nameserver, strconv.Itoa(http))
		t.Cleanup(func() {
			if t.Failed() {
				// for the reader
				state, _ := c.try(c.kubeconfig, "", "-n", "shop", "describe",
					"certificate,certificaterequest,order,challenge")
				log, _ := os.ReadFile(said)
				t.Logf("%s:\n%s\n%s", c.name, state, log)
			}
		})
		m := &realManager{cluster: c, t: t, roots: x509.NewCertPool()}
		var pebble struct {
			Directory    string
			Server, Root []byte
			Webhook      int
		}
		rigtest.Until(t, "cert-manager runs", func() bool {
			text, err := os.ReadFile(said)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if json.Unmarshal([]byte(line), &pebble) == nil {
					return true
				}
			}
			return false
		})
		m.root = pebble.Root
		m.roots.AppendCertsFromPEM(pebble.Root)
		m.roots.AppendCertsFromPEM(authority.Cert)
		c.admission(t, pebble.Webhook)
		encode := base64.StdEncoding.EncodeToString
		objects := fmt.Sprintf(authorities, key, encode(authority.Cert), encode(authority.Key))
		const asks = "{waitInsteadOfSelfCheck: 0s, http01: {ingress: {ingressClassName: none}}}"
		shows := fmt.Sprintf("waitInsteadOfSelfCheck: 0s, dns01: {rfc2136: {nameserver: %q, tsigKeyName: cut, "+
			"tsigAlgorithm: HMACSHA256, tsigSecretSecretRef: {name: cut, key: key}}}", nameserver)
		for name, solvers := range map[string]string{"pebble": "{" + shows + "}", "http": asks,
			"both": asks + ", {selector: {dnsZones: [green.example.org]}, " + shows + "}"} {
			objects += fmt.Sprintf(acmeIssuer, name, pebble.Directory, encode(pebble.Server), solvers)
		}
		c.kubectl(t, objects, "apply", "-f", "-")
		c.kubectl(t, "", "wait", "--for=condition=Ready", "clusterissuer", "--all", "--timeout=1m")
		return m
	}
	return run(p.blue), run(p.green)
}

// admission has all writes of cert-manager's objects go through its webhook, and waits until one is denied there.
func (c *cluster) admission(t *testing.T, port int) {
	t.Helper()
	var ca string
	rigtest.Until(t, "the webhook has an authority", func() bool {
		var err error
		ca, err = c.try(c.kubeconfig, "", "-n", "cert-manager", "get", "secret", "webhook-ca",
			"-o", `jsonpath={.data.ca\.crt}`)
		return err == nil && ca != ""
	})
	const validated = `{apiGroups: [cert-manager.io, acme.cert-manager.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*/*"]}`
	const mutated = `{apiGroups: [cert-manager.io], apiVersions: [v1], operations: [CREATE], resources: [certificaterequests]}`
	c.kubectl(t, fmt.Sprintf(webhooks, "Validating", validated, port, "validate", ca)+
		fmt.Sprintf(webhooks, "Mutating", mutated, port, "mutate", ca), "apply", "-f", "-")
	rigtest.Until(t, "the webhook denies what has no name", func() bool {
		out, err := c.try(c.kubeconfig,
			`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: nameless, namespace: default}, spec: {secretName: x, issuerRef: {name: x}}}`,
			"create", "-f", "-")
		return err != nil &&
			strings.Contains(out, `admission webhook "webhook.cert-manager.io" denied the request: spec: Invalid value`)
	})
}

// names are those that the certificate of a Secret is for, sorted. An authority of the test must have issued it.
func (m *realManager) names(secret string, data []byte) []string {
	m.t.Helper()
	var chain []*x509.Certificate
	between := x509.NewCertPool()
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			m.t.Fatal(err)
		}
		chain = append(chain, one)
		between.AddCert(one)
	}
	if len(chain) == 0 {
		return nil
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: m.roots, Intermediates: between}); err != nil {
		m.t.Fatalf("Secret %s: %v", secret, err)
	}
	return slices.Sorted(slices.Values(chain[0].DNSNames))
}

// settled waits until cert-manager is content with all Certificates of the shop, and their Secrets are for exactly
// these names. It returns how often each was issued.
func (m *realManager) settled(want map[string][]string) string {
	m.t.Helper()
	var revisions []string
	rigtest.Until(m.t, "all certificates are issued", func() bool {
		var list struct {
			Items []struct {
				Kind     string
				Metadata struct {
					Name       string
					Generation int
				}
				Status struct {
					Revision   int
					Conditions []struct {
						Type, Status       string
						ObservedGeneration int
					}
				}
				Data map[string][]byte
			}
		}
		if err := json.Unmarshal([]byte(m.kubectl(m.t, "", "-n", "shop", "get", "certificate,secret", "-o", "json")),
			&list); err != nil {
			m.t.Fatal(err)
		}
		revisions = nil
		issued := 0
		for _, one := range list.Items {
			name := one.Metadata.Name
			if one.Kind == "Secret" && want[name] != nil &&
				slices.Equal(m.names(name, one.Data["tls.crt"]), slices.Sorted(slices.Values(want[name]))) {
				issued++
			}
			if one.Kind == "Secret" {
				continue
			}
			for _, c := range one.Status.Conditions {
				if c.Type == "Issuing" && c.Status == "True" ||
					c.Type == "Ready" && (c.Status != "True" || c.ObservedGeneration != one.Metadata.Generation) {
					return false
				}
			}
			revisions = append(revisions, fmt.Sprint(name, " ", one.Status.Revision))
		}
		return issued == len(want) && len(revisions) == len(want)
	})
	return strings.Join(revisions, ", ")
}

// TestCertManager has the real cert-manager issue by a real ACME server. Its certificates get the mirror's names, each
// by being issued once; they keep them, are copied and not issued again by the mirror's cert-manager, and lose them
// again.
func TestCertManager(t *testing.T) {
	rigtest.Full(t, "names added to the certificates of a real cert-manager, and taken back: two minutes, "+
		"and cert-manager is compiled")
	p := newPair(t, true)
	blue, green := certManagers(t, p, port(t))
	blue.kubectl(t, requested, "apply", "-f", "-")
	before, after := map[string][]string{}, map[string][]string{}
	for name, names := range map[string][2]string{
		"web":    {"web.blue.example.org *.blue.example.org", "web.green.example.org *.green.example.org"},
		"api":    {"api.blue.example.org api.example.com", "api.green.example.org"},
		"gate":   {"gate.blue.example.org", "gate.green.example.org"},
		"shim":   {"shim.blue.example.org more.example.org", "shim.green.example.org second.green.example.org"},
		"second": {"second.blue.example.org more.example.org", "shim.green.example.org second.green.example.org"},
	} {
		before[name], after[name] = strings.Fields(names[0]), strings.Fields(names[0]+" "+names[1])
	}
	if got := blue.settled(before); got != "api 1, gate 1, second 1, shim 1, web 1" {
		t.Errorf("how often each was issued: %s", got)
	}
	specs := blue.specs(t, changed+",gateway")

	// An authority that refuses: cert-manager gives up for an hour, and what was issued stays in service.
	served := blue.get(t, "secret/shim", crt)
	const refused = "blue.example.org=refused.example.org"
	p.theseus(1, []string{"2 certificates are not issued", "is a forbidden domain", "cmctl renew -n shop second"},
		"certs", "add", "--domain", refused, "--yes")
	if blue.get(t, "secret/shim", crt) != served {
		t.Error("shim was issued anew")
	}
	p.theseus(3, []string{"it is not issued yet", "is a forbidden domain", "theseus mirror certs back"},
		"certs", "list", "--domain", rule)
	p.theseus(0, nil, "certs", "back", "--yes")
	if got := blue.settled(before); got != "api 3, gate 1, second 1, shim 1, web 1" {
		t.Errorf("how often each was issued: %s", got)
	}

	// A zone that the name server does not have: cert-manager goes on trying, and the error has what it says of the
	// challenge.
	p.theseus(1, []string{"2 certificates are not issued", "challenge of second.green.example.com: ", "REFUSED"},
		"certs", "add", "--domain", "blue.example.org=green.example.com",
		"--skip", "shop/api,shop/gate,shop/web", "--yes", "--wait", "30s")
	p.theseus(0, nil, "certs", "back", "--yes")
	if got := blue.settled(before); got != "api 3, gate 1, second 2, shim 2, web 1" {
		t.Errorf("how often each was issued: %s", got)
	}

	p.theseus(0, []string{"5 get names"}, "certs", "list", "--domain", rule)
	p.theseus(0, []string{"6 names were added"}, "certs", "add", "--domain", rule, "--yes")
	const wide = "api 4, gate 2, second 3, shim 3, web 2"
	if got := blue.settled(after); got != wide {
		t.Errorf("how often each was issued: %s, want %s", got, wide)
	}

	// cert-manager makes a Certificate again from its Ingress or Gateway, labels and all.
	for object, name := range map[string]string{"ingress/shim": "shim", "gateway/gate": "gate"} {
		blue.kubectl(t, "", "-n", "shop", "label", object, "touched=yes")
		rigtest.Until(t, "cert-manager sees it", func() bool {
			return blue.get(t, "certificate/"+name, "{.metadata.labels.touched}") == "yes"
		})
	}
	if got := blue.settled(after); got != wide {
		t.Errorf("how often each was issued: %s, want %s", got, wide)
	}

	// The mirror's cert-manager finds the Secrets that were copied, and has nothing to issue but what is its own.
	p.theseus(0, []string{"in step: "}, "copy", "-n", "shop")
	green.kubectl(t, "", "-n", "shop", "wait", "--for=condition=Ready", "certificate/web",
		"certificate/api", "--timeout=1m")
	green.kubectl(t,
		`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: own, namespace: shop}, spec: {secretName: own, dnsNames: [own.example.org], issuerRef: {name: pebble, kind: ClusterIssuer}}}`,
		"apply", "-f", "-")
	green.kubectl(t, "", "-n", "shop", "wait", "--for=condition=Ready", "certificate/own", "--timeout=1m")
	if got := green.kubectl(t, "", "-n", "shop", "get", "certificate,certificaterequest", "-o",
		"name"); strings.Join(strings.Fields(got), " ") !=
		"certificate.cert-manager.io/api certificate.cert-manager.io/own certificate.cert-manager.io/web "+
			"certificaterequest.cert-manager.io/own-1" {
		t.Errorf("the mirror has\n%s", got)
	}
	for name := range after {
		if copied := green.get(t, "secret/"+name, crt); copied != blue.get(t, "secret/"+name, crt) {
			t.Errorf("the mirror has another certificate in %s", name)
		}
	}

	p.theseus(0, nil, "certs", "back", "--yes")
	blue.settled(before)
	if got := blue.specs(t, changed+",gateway"); got != specs {
		t.Errorf("after the way back:\n%s\nbefore:\n%s", got, specs)
	}
	p.theseus(0, []string{"no certificate has added names"}, "certs", "back", "--yes")

	// And this is why names are not written to a Certificate that cert-manager makes.
	blue.kubectl(t, "", "-n", "shop", "patch", "certificate", "gate", "--type=json", "-p",
		`[{"op":"add","path":"/spec/dnsNames/-","value":"gate.green.example.org"}]`)
	rigtest.Until(t, "cert-manager takes the name off again", func() bool {
		return blue.get(t, "certificate/gate", "{.spec.dnsNames[*]}") == "gate.blue.example.org"
	})
}
