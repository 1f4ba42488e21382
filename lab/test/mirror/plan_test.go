package mirror

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/names"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

const (
	services        = 12
	blueAt, greenAt = "127.0.0.13", "127.0.0.14"
	origin          = "shop.example.org"
)

// world is two clusters, a zone on BIND behind unbound, a dozen services at an address of each cluster, and clients.
type world struct {
	*pair
	t       *testing.T
	dir     string
	servers names.Zone
	http    int
	// down makes the original answer 503: nobody may be there then. spoilt makes it answer so for one service. broken
	// is the service that is, at the mirror.
	down   string
	spoilt string
	broken atomic.Int64
	// as is the kubeconfig of the user who runs theseus; empty for an administrator.
	as   string
	idle atomic.Int64 // requests to the original while it was down
}

func newWorld(t *testing.T) *world {
	w := &world{pair: newPair(t, true), t: t, dir: t.TempDir()}
	w.down, w.spoilt = filepath.Join(w.dir, "down"), filepath.Join(w.dir, "spoilt")
	w.broken.Store(-1)
	w.serve()
	w.zone()
	for _, c := range []*cluster{w.blue, w.green} {
		c.kubectl(t, "", "create", "namespace", "shop", "--dry-run=server") // it lets us in
	}
	var objects []string
	for i := range services {
		objects = append(objects, fmt.Sprintf(
			`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"s%[1]d","namespace":"shop"},"spec":{"rules":[{"host":"s%[1]d.%[2]s"}]}}`,
			i, origin),
			fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s%d","namespace":"shop"},"data":{"a":"b"}}`,
				i))
	}
	w.blue.kubectl(t, "", "create", "namespace", "shop")
	w.blue.kubectl(t, `{"apiVersion":"v1","kind":"List","items":[`+strings.Join(objects, ",")+`]}`, "apply", "-f", "-")
	w.addresses(w.blue, blueAt)
	return w
}

// rehearse copies once, so that the mirror's services have addresses.
func (w *world) rehearse() {
	w.must(0, "in step: ", "mirror", "copy", "-n", "shop", "--mirror-kubeconfig", w.mirror)
	w.addresses(w.green, greenAt)
}

// addresses does what a controller of load balancers does.
func (w *world) addresses(c *cluster, address string) {
	for i := range services {
		c.kubectl(w.t, "", "-n", "shop", "patch", "ingress", fmt.Sprint("s", i),
			"--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, address))
	}
}

// serve answers for every service at both addresses, on one port.
func (w *world) serve() {
	first := listen(w.t, blueAt+":0")
	w.http = first.Addr().(*net.TCPAddr).Port
	second := listen(w.t, net.JoinHostPort(greenAt, strconv.Itoa(w.http)))
	for name, listener := range map[string]net.Listener{"blue": first, "green": second} {
		server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			host, _, _ := strings.Cut(r.Host, ":")
			if _, err := os.Stat(w.down); name == "blue" && err == nil {
				w.idle.Add(1)
				http.Error(out, "the network is being changed", http.StatusServiceUnavailable)
				return
			}
			if _, err := os.Stat(w.spoilt); name == "blue" && err == nil && host == "s7."+origin {
				http.Error(out, "spoilt by the change", http.StatusServiceUnavailable)
				return
			}
			if name == "green" && host == fmt.Sprintf("s%d.%s", w.broken.Load(), origin) {
				http.Error(out, "broken here", http.StatusBadGateway)
				return
			}
			service, _, _ := strings.Cut(host, ".")
			fmt.Fprintf(out, "%s-%s", service, name)
		})}
		go server.Serve(listener) //nolint:errcheck // it is closed
		w.t.Cleanup(func() { server.Close() })
	}
}

// zone runs BIND with the services' names, and unbound in front of it.
func (w *world) zone() {
	w.servers = names.Zone{Dir: w.dir, Origin: origin, Bind: port(w.t), Unbound: port(w.t)}
	for i := range services {
		w.servers.Records = append(w.servers.Records, fmt.Sprintf("s%d 2 IN A %s", i, blueAt),
			fmt.Sprintf("a-s%d 2 IN TXT \"heritage=external-dns,external-dns/owner=blue\"", i))
	}
	if err := w.servers.Write(w.http); err != nil {
		w.t.Fatal(err)
	}
	for i, server := range w.servers.Servers() {
		stop, err := server.Start(filepath.Join(w.dir, fmt.Sprint("server-", i)))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(stop)
		address := fmt.Sprint("127.0.0.1:", []int{w.servers.Bind, w.servers.Unbound}[i])
		rigtest.Until(w.t, "the name server answers", func() bool {
			return len(names.Lookup(address, "s0."+origin)) == 1
		})
	}
}

// under does something while clients ask without pause, and demands that they noticed nothing.
func (w *world) under(t *testing.T, do func()) {
	t.Helper()
	clients := &names.Clients{Resolver: fmt.Sprint("127.0.0.1:", w.servers.Unbound), Port: w.http,
		Pause: 20 * time.Millisecond}
	for i := range services {
		clients.Targets = append(clients.Targets,
			names.Target{Host: fmt.Sprintf("s%d.%s", i, origin), Original: blueAt, Mirror: greenAt})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	counted := make(chan names.Tally, 1)
	go func() { counted <- clients.Run(ctx) }()
	do()
	stop()
	seen := <-counted
	t.Logf("%d requests, %d of them to the mirror, %d failed; %d to the original while it was changed",
		seen.Requests, seen.Mirror, seen.Failed, w.idle.Load())
	if seen.Failed > 0 || w.idle.Load() > 0 || seen.Requests == 0 || seen.Mirror == 0 {
		t.Errorf("clients noticed:\n%s", strings.Join(seen.Wrong, "\n"))
	}
}

func (w *world) cmd(args ...string) *exec.Cmd {
	binary, err := filepath.Abs(filepath.Join(bin, "theseus"))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(binary, append(args, "--kubeconfig", cmp.Or(w.as, w.blue.kubeconfig))...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "THESEUS_STATE_DIR="+filepath.Join(w.dir, "state"))
	return cmd
}

// must runs theseus and demands an exit code and a text.
func (w *world) must(code int, says string, args ...string) string {
	w.t.Helper()
	cmd := w.cmd(args...)
	limit := time.AfterFunc(patience, func() { cmd.Process.Kill() }) //nolint:errcheck // it may be gone
	defer limit.Stop()
	out, _ := cmd.CombinedOutput() // the exit code tells
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), says) {
		w.t.Fatalf("theseus %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, says, out)
	}
	return string(out)
}

// planArgs ask for a plan whose switch makes the original unusable for a while.
func (w *world) planArgs() []string {
	return []string{"plan", "--strategy", "mirror", "--mirror-kubeconfig", w.mirror, "--zones", "zones.yaml",
		"-n", "shop", "--because", "CHG-7", "--ttl", "1", "--bake", "1s", "--first", "2", "--yes-really",
		"--switch-command=touch down; sleep 2; rm down", "-o", "plan.yaml"}
}

// records are the addresses of all names, as BIND has them.
func (w *world) records() string {
	var all []string
	for i := range services {
		name := fmt.Sprintf("s%d.%s", i, origin)
		all = append(all, name+" "+strings.Join(names.Lookup(fmt.Sprint("127.0.0.1:", w.servers.Bind), name), ","))
	}
	return strings.Join(all, "\n")
}

// home demands that everything is as it was before.
func (w *world) home(before string) {
	w.t.Helper()
	if after := w.records(); after != before {
		w.t.Errorf("the zone is\n%s\nand was\n%s", after, before)
	}
	w.blue.kubectl(w.t, "", "-n", "shop", "create", "configmap", "thawed", "--dry-run=server")
}

// TestPlan is the whole way there and back under clients that never pause: on two control planes, a zone on BIND behind
// unbound, and services at an address of each cluster.
func TestPlan(t *testing.T) {
	w := newWorld(t)
	before := w.records()
	w.must(3, "nothing was copied to it", w.planArgs()...)
	w.rehearse()
	w.must(2, "give one with --because",
		slices.DeleteFunc(w.planArgs(), func(arg string) bool { return arg == "--because" || arg == "CHG-7" })...)
	w.must(1, "the plan cannot tell when the original is changed: neither --to nor --switch-command is given",
		slices.DeleteFunc(w.planArgs(), func(arg string) bool { return strings.HasPrefix(arg, "--switch-command") })...)

	t.Run("there and back", func(t *testing.T) {
		w.t = t
		w.under(t, func() {
			w.must(0, "written to plan.yaml", w.planArgs()...)
			defer w.operator(t)()
			w.must(0, "POINT OF NO RETURN", "apply", "plan.yaml", "--dry-run")
			w.must(0, "finished: done", "apply", "plan.yaml", "--yes")
		})
		w.home(before)
		w.must(0, "12 names at the original, 0 at the mirror; deploys are not stopped", "mirror", "status")
		w.must(0, "has no copied objects left", "mirror", "teardown")
		w.must(0, "the original -> the mirror and back by mirror", "report")
		if out, err := w.green.try(w.green.kubeconfig, "", "get", "namespace", "shop"); err == nil {
			t.Errorf("the mirror still has it: %s", out)
		}
	})
	t.Run("killed at each step", func(t *testing.T) {
		w.t = t
		w.rehearse()
		killed := 0
		w.under(t, func() {
			w.must(0, "written to plan.yaml", append(w.planArgs(), "--keep-mirror")...)
			reached := map[string]bool{}
			args := []string{"apply", "plan.yaml", "--yes"}
			for code := -1; code != 0; args = []string{"resume"} {
				var said string
				if code, said = killedAt(t, w.cmd(args...), reached); code > 0 {
					t.Fatalf("exit code %d:\n%s", code, said)
				} else if code < 0 {
					killed++
				}
			}
		})
		t.Logf("killed %d times", killed)
		if killed < 10 {
			t.Errorf("killed only %d times", killed)
		}
		w.home(before)
		w.forgotten()
		w.must(2, "delete Ingress.networking.k8s.io shop/s3", "mirror", "teardown")
		w.green.kubectl(t, "", "-n", "shop", "get", "ingress", "s3")
	})
	t.Run("with certificates", func(t *testing.T) { w.t = t; w.certificates(t, before) })
	t.Run("broken by the change", func(t *testing.T) {
		w.t = t
		w.under(t, func() {
			w.must(0, "written to plan.yaml", append(w.planArgs(), "--keep-mirror", "--switch-command=touch spoilt")...)
			w.must(6, "that step was undone, and no other step was", "apply", "plan.yaml", "--yes")
			status := w.must(0, "deploys are stopped in shop", "mirror", "status")
			if !strings.Contains(status, "mirror    s7."+origin) || !strings.Contains(status, "original  s0."+origin) {
				t.Errorf("the names are\n%s", status)
			}
			w.must(3, "has not ended", "mirror", "teardown")
			w.must(6, "is past its point of no return", "rollback")
			if err := os.Remove(w.spoilt); err != nil {
				t.Fatal(err)
			}
			w.must(0, "finished: done", "resume")
		})
		w.home(before)
	})
	t.Run("broken on the mirror", func(t *testing.T) {
		w.t = t
		w.broken.Store(7)
		defer w.broken.Store(-1)
		w.under(t, func() {
			w.must(0, "written to plan.yaml", w.planArgs()...)
			w.must(4, "s7.shop.example.org", "apply", "plan.yaml", "--yes")
		})
		w.home(before)
		w.must(0, "12 names at the original, 0 at the mirror; deploys are not stopped", "mirror", "status")
	})
	t.Run("taken down by hand", func(t *testing.T) {
		w.t = t
		w.forgotten()
		w.must(0, "objects deleted; ", "mirror", "teardown", "--yes")
		if out, err := w.green.try(w.green.kubeconfig, "", "get", "namespace", "shop"); err == nil {
			t.Errorf("the mirror still has it: %s", out)
		}
	})
}

// operator lets a user go on who has in the original no roles but the plan's, and those of plans before it, until the
// returned function is called.
func (w *world) operator(t *testing.T) (back func()) {
	t.Helper()
	own := w.own()
	if text, err := os.ReadFile(w.blue.kubeconfig); err != nil || os.WriteFile(own, text, 0o600) != nil {
		t.Fatal(err, "cannot copy the kubeconfig")
	}
	const account = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"operator","namespace":"default"}}`
	w.blue.kubectl(t, account, "apply", "-f", "-")
	token := w.blue.kubectl(t, "", "-n", "default", "create", "token", "operator")
	for _, args := range [][]string{{"set-credentials", "operator", "--token", token},
		{"set-context", "--current", "--user", "operator"}} {
		if out, err := w.blue.try(own, "", append([]string{"config"}, args...)...); err != nil {
			t.Fatal(err, out)
		}
	}
	roles, err := w.cmd("rights", "operate", "--plan", "plan.yaml", "--for", "serviceaccount:default/operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	w.blue.kubectl(t, string(roles), "apply", "-f", "-")
	w.as = own
	return func() { w.as = "" }
}

// own is the operator's kubeconfig.
func (w *world) own() string { return filepath.Join(w.dir, "operator.kubeconfig") }

// certificates has a certificate get the mirror's name as the plan's first step, and lose it as its last.
func (w *world) certificates(t *testing.T, before string) {
	cm := newManager(t, w.blue, w.green)
	w.blue.kubectl(t, `
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: dns}
spec: {acme: {solvers: [{dns01: {webhook: {}}}]}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: shop}
spec: {secretName: web, dnsNames: [web.blue.example.org], issuerRef: {name: dns, kind: ClusterIssuer}}
`, "apply", "-f", "-")
	cm.issue(t, "web")
	names := func() string { return w.blue.get(t, "certificate/web", "{.spec.dnsNames[*]}") }
	w.under(t, func() {
		said := w.must(0, "written to plan.yaml",
			append(w.planArgs(), "--domain", "blue.example.org=green.example.org")...)
		if !strings.Contains(said, "add the names under green.example.org") ||
			!strings.Contains(said, "restore the former names") {
			t.Errorf("the plan is\n%s", said)
		}
		w.as = w.own()
		w.must(3, "may not get secrets", "apply", "plan.yaml", "--yes")
		w.as = ""
		defer w.operator(t)()
		apply := w.cmd("apply", "plan.yaml", "--yes")
		var out strings.Builder
		apply.Stdout, apply.Stderr = &out, &out
		if err := apply.Start(); err != nil {
			t.Fatal(err)
		}
		limit := time.AfterFunc(patience, func() { apply.Process.Kill() }) //nolint:errcheck // it may be gone
		defer limit.Stop()
		rigtest.Until(t, "the mirror's name is written", func() bool {
			return names() == "web.blue.example.org web.green.example.org"
		})
		cm.issue(t, "web")
		if err := apply.Wait(); err != nil ||
			!strings.Contains(out.String(), "restore the former names of every certificate") {
			t.Errorf("%v; it said\n%s", err, out.String())
		}
	})
	if names() != "web.blue.example.org" {
		t.Errorf("the certificate is for %s", names())
	}
	w.home(before)
	w.blue.kubectl(t, "", "-n", "shop", "delete", "certificate,secret", "web")
	w.rehearse()
}

// forgotten waits until no cache has the mirror's addresses, before which teardown refuses.
func (w *world) forgotten() {
	rigtest.Until(w.t, "caches have forgotten the mirror", func() bool {
		out, _ := w.cmd("mirror", "teardown").CombinedOutput() // the text tells
		return !strings.Contains(string(out), "caches may have")
	})
}

// killedAt runs theseus and kills it as soon as it is at a step that was not reached before; it returns the exit code,
// -1 if it was killed, and what it said.
func killedAt(t *testing.T, cmd *exec.Cmd, reached map[string]bool) (int, string) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the command that it runs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } //nolint:errcheck // it may be gone
	limit := time.AfterFunc(patience, end)
	defer limit.Stop()
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		_, place, found := strings.Cut(lines.Text(), "[")
		if place, _, ok := strings.Cut(place, "]"); found && ok && strings.Contains(place, "/") && !reached[place] {
			reached[place] = true
			end()
		}
	}
	cmd.Wait() //nolint:errcheck // the exit code tells
	return cmd.ProcessState.ExitCode(), strings.Join(said, "\n")
}
