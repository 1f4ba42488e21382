// Package mirror tests the commands of the mirror strategy against two real clusters, as far as these need no node:
// etcd, API server and controller manager of each, on loopback.
package mirror

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/loopback"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

const bin = "../../../bin"

// patience only ends a test that has failed.
const patience = 2 * time.Minute

// cluster is a control plane on loopback.
type cluster struct {
	name, dir  string
	kube       string
	kubeconfig string
	etcd       string // its address
	port       int    // of the API server
	admin      pki.Pair
}

var kube = sync.OnceValues(func() (string, error) { return rigtest.Program(build.Kube(build.KubernetesVersions()[0])) })

// start brings a control plane up; the end of the test takes it down.
func start(t testing.TB, name string, withControllers bool) *cluster {
	t.Helper()
	binary, err := kube()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{name: name, dir: t.TempDir(), kube: binary}
	lab := spec.Lab{Name: name, Nodes: 1}
	secrets, err := pki.NewLab(lab, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		"ca.crt": secrets.CA, "ca.key": secrets.CAKey, "apiserver.crt": secrets.APIServer.Cert,
		"apiserver.key": secrets.APIServer.Key, "sa.pub": secrets.ServiceAccount.Cert,
		"sa.key": secrets.ServiceAccount.Key,
	} {
		if err := os.WriteFile(filepath.Join(c.dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.port = port(t)
	config := controlplane.Config{Lab: lab, Data: c.dir, Ports: controlplane.Ports{Etcd: port(t), Peer: port(t)}}
	c.etcd = fmt.Sprintf("http://127.0.0.1:%d", config.Ports.Etcd)
	c.run(t, "etcd", config.Commands()[0]...)
	c.admin = secrets.Admin
	c.kubeconfig = c.server(t, c.port)
	if withControllers {
		config := filepath.Join(c.dir, "controllers.kubeconfig")
		c.write(t, config, c.port, secrets.ControllerManager)
		c.run(t, "controllers", "kube-controller-manager", "--kubeconfig="+config, "--leader-elect=false",
			"--use-service-account-credentials=true", "--root-ca-file="+c.file("ca.crt"),
			"--service-account-private-key-file="+c.file("sa.key"), "--kube-api-qps=500", "--kube-api-burst=1000",
			"--secure-port=0", "--profiling=false")
	}
	return c
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// server starts an API server of the cluster on a port, and returns the kubeconfig of an administrator.
func (c *cluster) server(t testing.TB, port int, flags ...string) string {
	t.Helper()
	name := fmt.Sprint("apiserver-", port)
	c.run(t, name, append([]string{"kube-apiserver", "--etcd-servers=" + c.etcd, "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", fmt.Sprint("--secure-port=", port), "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--client-ca-file=" + c.file("ca.crt"),
		"--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"),
		"--service-account-issuer=https://" + c.name + ".test", "--service-account-key-file=" + c.file("sa.pub"),
		"--service-account-signing-key-file=" + c.file("sa.key"), "--profiling=false"}, flags...)...)
	kubeconfig := filepath.Join(c.dir, name+".kubeconfig")
	c.write(t, kubeconfig, port, c.admin)
	rigtest.Until(t, name+" lets us in", func() bool {
		_, err := c.try(kubeconfig, "", "get", "namespace", "kube-system")
		return err == nil
	})
	return kubeconfig
}

func (c *cluster) write(t testing.TB, file string, port int, client pki.Pair) {
	t.Helper()
	ca, err := os.ReadFile(c.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pki.Kubeconfig(c.name, fmt.Sprintf("https://127.0.0.1:%d", port), ca, client),
		0o600); err != nil {
		t.Fatal(err)
	}
}

// run keeps a program of Kubernetes running until the test ends. One that ends by itself is started again.
func (c *cluster) run(t testing.TB, name string, args ...string) {
	t.Helper()
	c.keep(t, name, true, c.kube, args...)
}

// keep keeps a program running until the test ends, and returns the file of all that it says. The end of the file is
// shown if the test fails. again says whether a program that ends by itself is started again.
func (c *cluster) keep(t testing.TB, name string, again bool, program string, args ...string) string {
	t.Helper()
	p := loopback.Program{Path: program, Args: args, Dir: c.dir, Log: c.file(name + ".log"), Again: again}
	stop, err := p.Keep()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if said, err := os.ReadFile(p.Log); t.Failed() && err == nil {
			t.Logf("%s of %s said at last:\n%s", name, c.name, said[max(0, len(said)-3000):])
		}
	})
	return p.Log
}

// port finds one that is free.
func port(t testing.TB) int {
	t.Helper()
	free, err := loopback.Port()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func (c *cluster) try(kubeconfig, stdin string, args ...string) (string, error) {
	cmd := exec.Command(c.kube, append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// kubectl must succeed, and returns what it printed.
func (c *cluster) kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := c.try(c.kubeconfig, stdin, args...)
	if err != nil {
		t.Fatalf("%s: kubectl %s: %v\n%s", c.name, strings.Join(args, " "), err, out)
	}
	return out
}

// get is a field of an object.
func (c *cluster) get(t testing.TB, object, path string) string {
	t.Helper()
	return c.kubectl(t, "", "-n", "shop", "get", object, "-o", "jsonpath="+path)
}

// pair is the original and its mirror.
type pair struct {
	t           testing.TB
	blue, green *cluster
	mirror      string // kubeconfig of the mirror
}

func newPair(t testing.TB, controllers bool) *pair {
	t.Helper()
	if _, err := os.Stat(filepath.Join(bin, "theseus")); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	p := &pair{t: t, blue: start(t, "blue", controllers), green: start(t, "green", controllers)}
	p.mirror = p.green.kubeconfig
	return p
}

func (p *pair) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "theseus"), append([]string{"mirror"}, args...)...)
	cmd.Args = append(cmd.Args, "--kubeconfig", p.blue.kubeconfig)
	if args[0] == "copy" || args[0] == "diff" || args[0] == "certs" && args[1] == "prove" {
		cmd.Args = append(cmd.Args, "--mirror-kubeconfig", p.mirror)
	}
	return cmd
}

// theseus runs a mirror command, and demands an exit code and texts in what it prints.
func (p *pair) theseus(code int, texts []string, args ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := p.command(ctx, args...)
	out, _ := cmd.CombinedOutput() // the exit code tells
	said := string(out)
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("%s: exit %d, want %d:\n%s", strings.Join(args, " "), got, code, said)
	}
	if code != 0 && code != 3 {
		texts = append(texts, "error: ", "hint: ")
	}
	for _, text := range texts {
		if !strings.Contains(said, text) {
			p.t.Errorf("%s: %q is not in:\n%s", strings.Join(args, " "), text, said)
		}
	}
	return said
}

// refuser is an admission webhook that denies everything. It returns its address and its authority.
func refuser(t testing.TB) (url string, authority []byte) {
	t.Helper()
	ca, err := pki.NewAuthority("refuser", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now(), "refuser", nil, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"nothing passes here"}}}`,
			review.Request.UID)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, ca.Cert
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
