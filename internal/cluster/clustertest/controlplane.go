package clustertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Options are those of a control plane.
type Options struct {
	// Users are the names of users besides admin. The token of each is its name.
	Users []string
	// Collects runs the garbage collector.
	Collects bool
	// NoPolicies is true for an API server without ValidatingAdmissionPolicies, as before Kubernetes 1.30.
	NoPolicies bool
}

// Program is the program with all components of Kubernetes that THESEUS_KUBE names. Without one, it skips the test, and
// names what is not tested.
func Program(t testing.TB, what string) string {
	t.Helper()
	program := os.Getenv("THESEUS_KUBE")
	if program == "" {
		t.Skipf("NOT TESTED: %s; THESEUS_KUBE names the lab's program of Kubernetes (bin/kube/*/kube in its cache)",
			what)
	}
	return program
}

// ControlPlane starts etcd and an API server on loopback until the test ends, and waits until the server is ready. kube
// is a program with all components of Kubernetes. The configuration is that of a cluster administrator.
func ControlPlane(t testing.TB, kube string, options Options) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account := file("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	tokens := "token,admin,admin,system:masters\n"
	for _, user := range options.Users {
		tokens += strings.Join([]string{user, user, user}, ",") + "\n"
	}
	etcd, peer, api := "http://"+Free(t), "http://"+Free(t), Free(t)
	_, port, _ := net.SplitHostPort(api)
	keep(t, dir, kube, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--log-level=warn")
	server := []string{"kube-apiserver", "--etcd-servers=" + etcd, "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + dir,
		"--token-auth-file=" + file("tokens", tokens), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://plans.test",
		"--service-account-key-file=" + account, "--service-account-signing-key-file=" + account}
	if options.NoPolicies {
		const group = "admissionregistration.k8s.io/v1/"
		server = append(server, "--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
			"--runtime-config="+group+"validatingadmissionpolicies=false,"+
				group+"validatingadmissionpolicybindings=false")
	}
	keep(t, dir, kube, server...)
	config := &rest.Config{Host: "https://" + api, BearerToken: "token",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 100, Burst: 200}
	ready(t, config)
	if options.Collects {
		keep(t, dir, kube, "kube-controller-manager", "--controllers=garbage-collector-controller",
			"--leader-elect=false", "--secure-port=0",
			"--kubeconfig="+file("kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: token}}],
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]}`, api)))
	}
	return config
}

// ready waits until the API server is; its bound only ends a test that has failed.
func ready(t testing.TB, config *rest.Config) {
	t.Helper()
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		answer, err := plain.Get(config.Host + "/readyz")
		if err != nil {
			continue
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("the API server is not ready within 5 min")
}

// Free is an address, host:port, on loopback that no process uses.
func Free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// keep runs a program of Kubernetes until the test ends; its output is in a file, which is shown if the test failed.
func keep(t testing.TB, dir, kube string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, args[0]+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(kube, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may be gone
		cmd.Wait()         //nolint:errcheck // killed
		log.Close()
		if said, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s said:\n%s", args[0], said[max(0, len(said)-4000):])
		}
	})
}
