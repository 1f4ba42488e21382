package mirror

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// nameServers is where lab/install.sh unpacks BIND and unbound.
const nameServers = "/usr/local/lib/theseus-lab/dns"

const (
	services        = 12
	blueAt, greenAt = "127.0.0.13", "127.0.0.14"
	origin          = "shop.example.org"
)

// program runs one of the unpacked name servers until the test ends.
func program(t testing.TB, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(nameServers, path), args...)
	libraries, _ := filepath.Glob(filepath.Join(nameServers, "usr/lib/*-linux-gnu*"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: lab/install.sh unpacks the name servers", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may be gone
		cmd.Wait()         //nolint:errcheck // killed
	})
}

// world is two clusters, a zone on BIND behind unbound, a dozen services at an address of each cluster, and clients.
type world struct {
	*pair
	t             *testing.T
	dir           string
	bind, unbound string
	http          int
	// down makes the original answer 503: nobody may be there then. broken is the service that is, at the mirror.
	down   string
	broken atomic.Int64
	idle   atomic.Int64 // requests to the original while it was down
	stop   func() tally
}

// tally is what the clients saw.
type tally struct {
	requests, mirror int64
	wrong            []string
}

func newWorld(t *testing.T) *world {
	w := &world{pair: newPair(t, true), t: t, dir: t.TempDir()}
	w.down = filepath.Join(w.dir, "down")
	w.broken.Store(-1)
	w.serve()
	w.zone()
	for _, c := range []*cluster{w.blue, w.green} {
		c.kubectl(t, "", "create", "namespace", "shop", "--dry-run=server") // it lets us in
	}
	var objects []string
	for i := range services {
		objects = append(objects, fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"s%[1]d","namespace":"shop"},"spec":{"rules":[{"host":"s%[1]d.%[2]s"}]}}`, i, origin),
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s%d","namespace":"shop"},"data":{"a":"b"}}`, i))
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
		c.kubectl(w.t, "", "-n", "shop", "patch", "ingress", fmt.Sprint("s", i), "--subresource=status", "--type=merge", "-p",
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
			if name == "green" && host == fmt.Sprintf("s%d.%s", w.broken.Load(), origin) {
				http.Error(out, "broken here", http.StatusBadGateway)
				return
			}
			fmt.Fprintf(out, "%s %s", name, host)
		})}
		go server.Serve(listener) //nolint:errcheck // it is closed
		w.t.Cleanup(func() { server.Close() })
	}
}

// zone runs BIND with the services' names, and unbound in front of it.
func (w *world) zone() {
	t := w.t
	secret := make([]byte, 32)
	rand.Read(secret)
	key := base64.StdEncoding.EncodeToString(secret)
	bind, unbound := port(t), port(t)
	w.bind, w.unbound = fmt.Sprint("127.0.0.1:", bind), fmt.Sprint("127.0.0.1:", unbound)
	var records []string
	for i := range services {
		records = append(records, fmt.Sprintf("s%d 2 IN A %s", i, blueAt), fmt.Sprintf("a-s%d 2 IN TXT \"heritage=external-dns,external-dns/owner=blue\"", i))
	}
	for name, text := range map[string]string{
		"zone": "$TTL 2\n@ 2 IN SOA ns hostmaster 1 3600 600 86400 1\n@ 2 IN NS ns\nns 2 IN A 127.0.0.1\n" + strings.Join(records, "\n") + "\n",
		"key":  key,
		"named.conf": fmt.Sprintf(`options { directory %[1]q; pid-file "named.pid"; session-keyfile "session.key"; listen-on port %[2]d { 127.0.0.1; };
  listen-on-v6 { none; }; recursion no; notify no; allow-query { any; }; dnssec-validation no; };
controls { };
key "cut" { algorithm hmac-sha256; secret %[3]q; };
zone %[4]q { type primary; file "zone"; update-policy { grant cut zonesub ANY; }; allow-transfer { key "cut"; }; };
`, w.dir, bind, key, origin),
		"unbound.conf": fmt.Sprintf("server:\n  interface: 127.0.0.1@%d\n  directory: %q\n  pidfile: %q\n  chroot: \"\"\n  username: \"\"\n  use-syslog: no\n  do-daemonize: no\n  do-ip6: no\n"+
			"  num-threads: 1\n  module-config: \"iterator\"\n  do-not-query-localhost: no\n  access-control: 127.0.0.0/8 allow\nremote-control:\n  control-enable: no\nstub-zone:\n  name: %q\n  stub-addr: 127.0.0.1@%d\n",
			unbound, w.dir, filepath.Join(w.dir, "unbound.pid"), origin, bind),
		"zones.yaml": fmt.Sprintf("apiVersion: theseus.dev/v1alpha1\nkind: Zones\nzones:\n- name: %s\n  rfc2136: {server: %q, key: cut, secretFile: key}\n  authoritative: [%[2]q]\nresolvers: [%q]\n"+
			"owners: {original: blue, mirror: green}\nports: {80: %d}\n", origin, w.bind, w.unbound, w.http),
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program(t, "usr/sbin/named", "-g", "-n", "1", "-c", filepath.Join(w.dir, "named.conf"))
	until(t, "BIND answers", func() bool { return len(w.ask(w.bind, "s0."+origin)) == 1 })
	program(t, "usr/sbin/unbound", "-c", filepath.Join(w.dir, "unbound.conf"), "-d")
	until(t, "unbound answers", func() bool { return len(w.ask(w.unbound, "s0."+origin)) == 1 })
}

// ask asks a server for the addresses of a name.
func (w *world) ask(server, name string) []string {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, _ := resolver.LookupHost(ctx, name+".") // none is what counts
	return found
}

// clients resolve and request every service without pause, each a connection of its own, until stopped.
func (w *world) clients() {
	var lock sync.Mutex
	var all sync.WaitGroup
	seen := tally{}
	done := make(chan struct{})
	for i := range services {
		all.Go(func() {
			host := fmt.Sprintf("s%d.%s", i, origin)
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
				at, problem := w.request(host)
				lock.Lock()
				seen.requests++
				if at == "green" {
					seen.mirror++
				}
				if problem != "" && len(seen.wrong) < 20 {
					seen.wrong = append(seen.wrong, time.Now().Format("15:04:05.000 ")+host+": "+problem)
				}
				lock.Unlock()
			}
		})
	}
	w.stop = func() tally {
		close(done)
		all.Wait()
		return seen
	}
}

// request does what a client does, and says what was wrong with it.
func (w *world) request(host string) (at, problem string) {
	found := w.ask(w.unbound, host)
	if len(found) != 1 || found[0] != blueAt && found[0] != greenAt {
		return "", fmt.Sprint("it has the addresses ", found)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	request, err := http.NewRequest(http.MethodGet, "http://"+net.JoinHostPort(found[0], strconv.Itoa(w.http)), nil)
	if err != nil {
		return "", err.Error()
	}
	request.Host = host
	response, err := client.Do(request)
	if err != nil {
		return "", err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err.Error()
	}
	at, who, _ := strings.Cut(string(body), " ")
	if response.StatusCode != http.StatusOK || who != host {
		return at, response.Status + " " + string(body)
	}
	return at, ""
}

// mustBeClean ends the clients, and demands that they noticed nothing.
func (w *world) mustBeClean(someAtMirror bool) {
	w.t.Helper()
	seen := w.stop()
	w.t.Logf("%d requests, %d of them to the mirror, %d wrong; %d to the original while it was changed", seen.requests, seen.mirror, len(seen.wrong), w.idle.Load())
	if len(seen.wrong) > 0 {
		w.t.Errorf("clients noticed:\n%s", strings.Join(seen.wrong, "\n"))
	}
	if w.idle.Load() > 0 || seen.requests == 0 || someAtMirror != (seen.mirror > 0) {
		w.t.Errorf("%d requests, %d to the mirror, %d to the original while it was changed", seen.requests, seen.mirror, w.idle.Load())
	}
}

func (w *world) cmd(args ...string) *exec.Cmd {
	binary, err := filepath.Abs(filepath.Join(bin, "theseus"))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(binary, append(args, "--kubeconfig", w.blue.kubeconfig)...)
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
	return []string{"plan", "--strategy", "mirror", "--mirror-kubeconfig", w.mirror, "--zones", "zones.yaml", "-n", "shop", "--because", "CHG-7",
		"--ttl", "1", "--bake", "1s", "--first", "2", "--yes-really", "--switch-command=touch down; sleep 2; rm down", "-o", "plan.yaml"}
}

// records are the addresses of all names, as BIND has them.
func (w *world) records() string {
	var all []string
	for i := range services {
		name := fmt.Sprintf("s%d.%s", i, origin)
		all = append(all, name+" "+strings.Join(w.ask(w.bind, name), ","))
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
	w.must(3, "nothing was copied to the mirror", w.planArgs()...)
	w.rehearse()
	w.must(2, "give one with --because", slices.DeleteFunc(w.planArgs(), func(arg string) bool { return arg == "--because" || arg == "CHG-7" })...)
	w.must(1, "nothing says when the original is changed", slices.DeleteFunc(w.planArgs(), func(arg string) bool { return strings.HasPrefix(arg, "--switch-command") })...)

	t.Run("there and back", func(t *testing.T) {
		w.under(t, true, func() {
			w.must(0, "written to plan.yaml", w.planArgs()...)
			w.must(0, "POINT OF NO RETURN", "apply", "plan.yaml", "--dry-run")
			w.must(0, "finished: done", "apply", "plan.yaml", "--yes")
		})
		w.home(before)
		w.must(0, "12 names at the original, 0 at the mirror; deploys go on", "mirror", "status")
		w.must(0, "nothing that was copied is left", "mirror", "teardown")
		if out, err := w.green.try(w.green.kubeconfig, "", "get", "namespace", "shop"); err == nil {
			t.Errorf("the mirror still has it: %s", out)
		}
	})
	t.Run("killed at each step", func(t *testing.T) {
		w.rehearse()
		killed := 0
		w.under(t, true, func() {
			w.must(0, "written to plan.yaml", append(w.planArgs(), "--keep-mirror")...)
			reached := map[string]bool{}
			args := []string{"apply", "plan.yaml", "--yes"}
			for code := -1; code != 0; args = []string{"resume"} {
				var said string
				if code, said = w.killedAt(reached, args...); code > 0 {
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
		w.must(2, "delete Ingress.networking.k8s.io shop/s3", "mirror", "teardown")
		w.green.kubectl(t, "", "-n", "shop", "get", "ingress", "s3")
	})
	t.Run("broken on the mirror", func(t *testing.T) {
		w.broken.Store(7)
		defer w.broken.Store(-1)
		w.under(t, true, func() {
			w.must(0, "written to plan.yaml", w.planArgs()...)
			w.must(4, "s7.shop.example.org", "apply", "plan.yaml", "--yes")
		})
		w.home(before)
		w.must(0, "12 names at the original, 0 at the mirror; deploys go on", "mirror", "status")
	})
	t.Run("taken down by hand", func(t *testing.T) {
		w.must(0, "objects are gone", "mirror", "teardown", "--yes")
		if out, err := w.green.try(w.green.kubeconfig, "", "get", "namespace", "shop"); err == nil {
			t.Errorf("the mirror still has it: %s", out)
		}
	})
}

// under does something while clients ask without pause.
func (w *world) under(t *testing.T, someAtMirror bool, do func()) {
	t.Helper()
	defer func(former *testing.T) { w.t = former }(w.t)
	w.t = t
	w.clients()
	do()
	w.mustBeClean(someAtMirror)
}

// killedAt runs theseus and kills it as soon as it is at a step that was not reached before; it returns the exit code, -1 if
// it was killed.
func (w *world) killedAt(reached map[string]bool, args ...string) (int, string) {
	cmd := w.cmd(args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the command that it runs
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
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
