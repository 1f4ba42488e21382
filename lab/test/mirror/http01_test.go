package mirror

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// hens are certificates by HTTP-01, and the mirror's names of one of them by DNS-01.
const hens = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: front, namespace: shop}
spec: {secretName: front, dnsNames: [front.blue.example.org], issuerRef: {name: http, kind: ClusterIssuer}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: side, namespace: shop}
spec: {secretName: side, dnsNames: [side.blue.example.org], issuerRef: {name: both, kind: ClusterIssuer}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: hens, namespace: shop}
spec:
  rules: [{host: front.blue.example.org}, {host: side.blue.example.org}]
  tls: [{hosts: [front.blue.example.org], secretName: front}, {hosts: [side.blue.example.org], secretName: side}]
`

// TestHTTP01 has an authority that goes to where a name points, and asks there: a name of the mirror gets no
// certificate in the original, nor a name of the original one on the mirror, while each points to the other cluster.
// DNS-01 for the mirror's domain gets one all the same, and what is copied is served there.
func TestHTTP01(t *testing.T) {
	rigtest.Full(t, "certificates that are asked for by HTTP-01: a minute and a half")
	p := newPair(t, true)
	asked := port(t)
	blue, green := certManagers(t, p, asked, "front.blue 2 IN A "+blueAt, "side.blue 2 IN A "+blueAt,
		"front.green 2 IN A "+greenAt, "side.green 2 IN A "+greenAt)
	blue.solvers(t, blueAt, asked)
	green.solvers(t, greenAt, asked)
	blue.kubectl(t, hens, "apply", "-f", "-")
	before := map[string][]string{"front": {"front.blue.example.org"}, "side": {"side.blue.example.org"}}
	blue.settled(before) // it is asked where it is

	// It is named, before anything is written.
	specs := blue.specs(t, changed)
	const egg = "the CA verifies front.green.example.org by HTTP-01: the name must point to this cluster to get a " +
		"certificate, and needs a certificate before it points anywhere"
	p.theseus(3, []string{egg, "side.green.example.org (DNS-01)", "give the issuer a dns01 solver with a selector " +
		"for front.green.example.org", "--skip shop/front: its Secret is copied"}, "certs", "list", "--domain", rule)
	p.theseus(3, []string{egg}, "certs", "add", "--domain", rule, "--yes")
	if got := blue.specs(t, changed); got != specs {
		t.Errorf("something was written:\n%s\nbefore:\n%s", got, specs)
	}

	// It is solved by DNS-01 for one, and the other is copied as it is. Both are served, and the mirror issues nothing.
	p.theseus(0, []string{"1 names were added"}, "certs", "add", "--domain", rule, "--skip", "shop/front", "--yes")
	if got := blue.settled(map[string][]string{"front": before["front"],
		"side": {"side.blue.example.org", "side.green.example.org"}}); got != "front 1, side 2" {
		t.Errorf("how often each was issued: %s", got)
	}
	p.theseus(0, []string{"in step: "}, "copy", "-n", "shop")
	green.kubectl(t, "", "-n", "shop", "wait", "--for=condition=Ready", "certificate", "--all", "--timeout=1m")
	if got := green.kubectl(t, "", "-n", "shop", "get", "certificaterequest", "-o", "name"); got != "" {
		t.Errorf("the mirror has issued %s", got)
	}
	green.kubectl(t, "", "-n", "shop", "patch", "ingress", "hens", "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, greenAt))
	prove := prover(t, greenAt, blue.root, func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name, _, _ := strings.Cut(hello.ServerName, ".")
		return green.served(name)
	})
	out := p.theseus(3, nil, prove...)
	for name, want := range map[string]string{"front.blue": "proven", "side.blue": "proven",
		"side.green": "proven", "front.green": "wrong "} {
		if !strings.Contains(out, fmt.Sprintf("%s  %s.example.org", want, name)) {
			t.Errorf("%s.example.org is not %s:\n%s", name, want, out)
		}
	}

	// And it is true: whoever insists sees the authority refuse, on either side, and what was issued stays in service.
	served := blue.get(t, "secret/front", crt)
	p.theseus(1, []string{"1 certificates are not issued", "authorization error for front.green.example.org: 403",
		"cmctl renew -n shop front"}, "certs", "add", "--domain", rule, "--http01", "--yes")
	p.theseus(0, nil, "certs", "back", "--yes")
	blue.settled(before)
	if blue.get(t, "secret/front", crt) != served {
		t.Error("front was issued anew")
	}
	green.kubectl(t,
		`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: early, namespace: default}, spec: {secretName: early, dnsNames: [front.blue.example.org], issuerRef: {name: http, kind: ClusterIssuer}}}`,
		"apply", "-f", "-")
	rigtest.Until(t, "the mirror's cert-manager is refused", func() bool {
		return strings.Contains(green.kubectl(t, "", "get", "order", "-o", "jsonpath={.items[*].status}"), "invalid")
	})
}

// solvers does what nodes and an ingress controller would: at an address, the pods that cert-manager makes for HTTP-01
// answer.
func (m *realManager) solvers(t *testing.T, address string, port int) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host) //nolint:errcheck // then no pod is for it
		out, err := m.try(m.kubeconfig, "", "get", "pods", "-A", "-l", "acme.cert-manager.io/http01-solver=true",
			"-o", "json")
		var pods struct {
			Items []struct {
				Spec struct{ Containers []struct{ Args []string } }
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &pods)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, pod := range pods.Items {
			args := pod.Spec.Containers[0].Args
			if slices.Contains(args, "--domain="+host) && slices.Contains(args, "--token="+path.Base(r.URL.Path)) {
				i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--key=") })
				fmt.Fprint(w, strings.TrimPrefix(args[i], "--key="))
				return
			}
		}
		http.NotFound(w, r)
	})}
	go server.Serve(listener) //nolint:errcheck // it is closed
	t.Cleanup(func() { server.Close() })
}

// served is the certificate of a Secret of the shop.
func (m *realManager) served(secret string) (*tls.Certificate, error) {
	out, err := m.try(m.kubeconfig, "", "-n", "shop", "get", "secret", secret, "-o", "json")
	var object struct{ Data map[string][]byte }
	if err == nil {
		err = json.Unmarshal([]byte(out), &object)
	}
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(object.Data["tls.crt"], object.Data["tls.key"])
	return &pair, err
}
