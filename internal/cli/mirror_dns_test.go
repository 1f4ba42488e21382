package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
)

const dnsOrigin = "shop.example.org."

// TestMirrorDNS moves a dozen names of a real BIND, behind a real unbound, there and back by the command line. On the
// way there the process is killed again and again, and run once more.
func TestMirrorDNS(t *testing.T) {
	dnstest.NotShort(t)
	const n, blue, green = 12, "127.0.0.13", "127.0.0.14"
	dir := t.TempDir()
	var zone []string
	hosts := ""
	for i := range n {
		zone = append(zone, fmt.Sprintf("s%d 2 IN A %s", i, blue),
			fmt.Sprintf("a-s%d 2 IN TXT \"heritage=external-dns,external-dns/owner=blue\"", i))
		hosts += fmt.Sprintf("  - host: s%d.shop.example.org\n", i)
	}
	server := dnstest.BIND(t, dnsOrigin, dnstest.ZoneText(dnsOrigin, zone...))
	resolver := dnstest.Unbound(t, server)
	files := map[string]string{
		"key": server.Key.Secret,
		"zones.yaml": fmt.Sprintf("apiVersion: theseus.dev/v1alpha1\nkind: Zones\nzones:\n- name: shop.example.org\n"+
			"  rfc2136: {server: %q, key: cut, secretFile: key}\n  authoritative: [%[1]q]\nresolvers: [%q]\n"+
			"owners: {original: blue, mirror: green}\nports: {80: %d}\nfrom: [[%q]]\n",
			server.Address, resolver.Address, serveBoth(t, blue, green), filepath.Join(dir, "theseus")),
	}
	for name, address := range map[string]string{"blue.yaml": blue, "green.yaml": green} {
		files[name] = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, namespace: shop}\n" +
			"spec:\n  rules:\n" + hosts +
			"status: {loadBalancer: {ingress: [{ip: " + address + "}]}}\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(kill time.Duration, args ...string) (int, string) { return theseus(t, dir, kill, args...) }
	inputs := []string{"--zones", "zones.yaml", "--from", "blue.yaml", "--mirror-from", "green.yaml"}
	must := func(want int, says string, args ...string) {
		t.Helper()
		if code, said := run(0, args...); code != want || !strings.Contains(said, says) {
			t.Fatalf("theseus %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), code, want, says, said)
		}
	}
	plan := append([]string{"mirror", "dns", "plan", "-o", "move.yaml", "--ttl", "1", "--bake",
		"100ms", "--first", "2"}, inputs...)
	must(0, "13 names: 12 move", append([]string{"mirror", "dns", "inventory"}, inputs...)...)
	must(3, "12 of 13 names of shop.example.org. (92 %)", plan...)
	must(1, `no name matches "nobody.shop.example.org"`, append(plan, "--name", "nobody.shop.example.org")...)
	must(0, "written to move.yaml", append(plan, "--yes-really")...)
	must(2, "read the plan, then add --yes", "mirror", "dns", "move", "move.yaml", "--zones", "zones.yaml")
	must(1, "no name of dns-", "mirror", "dns", "back", "move.yaml", "--zones", "zones.yaml", "--yes")
	killed := 0
	for code := -1; code != 0; {
		var said string
		// a busy machine needs longer to get anywhere
		kill := time.Duration(100+rand.IntN(600)+100*killed) * time.Millisecond
		if killed >= 10 {
			kill = 0
		}
		if code, said = run(kill, "mirror", "dns", "move", "move.yaml", "--zones", "zones.yaml", "--yes"); code == -1 {
			killed++
		} else if code != 0 {
			t.Fatalf("exit code %d:\n%s", code, said)
		}
	}
	t.Logf("killed %d times", killed)
	if killed < 3 {
		t.Errorf("killed only %d times", killed)
	}
	must(0, "done, ", "mirror", "dns", "status", "move.yaml")
	must(0, "12 already moved", append([]string{"mirror", "dns", "inventory"}, inputs...)...)
	must(0, "finished: done", "mirror", "dns", "back", "move.yaml", "--zones", "zones.yaml", "--yes")
	must(0, "12 move,", append([]string{"mirror", "dns", "inventory"}, inputs...)...)

	// A signal that fails when the move begins, or whose program is not here, moves no name.
	var down atomic.Bool
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(shop.Close)
	check := filepath.Join(dir, "check.sh")
	if err := os.WriteFile(check, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	must(0, "written to move.yaml", append(plan, "--yes-really", "--slo", shop.URL, "--slo", "command: ./check.sh")...)
	down.Store(true)
	must(3, "no name has moved: "+shop.URL+": HTTP status 503", "mirror", "dns", "move", "move.yaml",
		"--zones", "zones.yaml", "--yes")
	if err := os.Remove(check); err != nil {
		t.Fatal(err)
	}
	must(1, check, "mirror", "dns", "move", "move.yaml", "--zones", "zones.yaml", "--yes")
	must(1, "no name of dns-", "mirror", "dns", "back", "move.yaml", "--zones", "zones.yaml", "--yes")

	// From a place that reaches nobody, as a pod whose policy lets it go nowhere, and from one where there is no
	// theseus.
	for place, says := range map[string]string{
		fmt.Sprintf("[unshare, -n, %q]",
			filepath.Join(dir, "theseus")): "theseus` 2 of 2 probes fail at the name's new address: s",
		"[sh, -c, 'echo no such pod >&2; exit 1', theseus]": "theseus` failed: exit status 1: no such pod",
		"[echo, hello]": "the answer of `echo hello` cannot be read",
	} {
		elsewhere := strings.Replace(files["zones.yaml"], "from: [[", "from: ["+place+"] #", 1)
		if err := os.WriteFile(filepath.Join(dir, "zones.yaml"), []byte(elsewhere), 0o600); err != nil {
			t.Fatal(err)
		}
		must(0, "written to move.yaml", append(plan, "--yes-really")...)
		must(4, says, "mirror", "dns", "move", "move.yaml", "--zones", "zones.yaml", "--yes")
	}
	must(0, "12 move,", append([]string{"mirror", "dns", "inventory"}, inputs...)...)
	must(1, "standard input is not a question", "mirror", "dns", "ask")
}

// serveBoth answers HTTP at two addresses on one port.
func serveBoth(t *testing.T, one, other string) int {
	t.Helper()
	first, err := net.Listen("tcp", one+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := first.Addr().(*net.TCPAddr).Port
	second, err := net.Listen("tcp", net.JoinHostPort(other, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	for _, listener := range []net.Listener{first, second} {
		server := &http.Server{Handler: http.NotFoundHandler()}
		go server.Serve(listener) //nolint:errcheck // it is closed
		t.Cleanup(func() { server.Close() })
	}
	return port
}

// theseus runs this binary as theseus, and kills it after a while, unless that is 0: then the exit code is -1.
func theseus(t *testing.T, dir string, kill time.Duration, args ...string) (int, string) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "theseus")
	if err := os.Symlink(binary, link); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), link, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &out, &out
	command.Env = append(os.Environ(), "THESEUS_STATE_DIR="+filepath.Join(dir, "state"))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if kill > 0 {
		timer := time.AfterFunc(kill, func() { command.Process.Kill() }) //nolint:errcheck // it may be gone
		defer timer.Stop()
	}
	err = command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String()
}

// TestMirrorDNSPlan plans moves in shares at the fake of Route 53, with the services' own error rate: what would only
// be found while names move is found here.
func TestMirrorDNSPlan(t *testing.T) {
	var sets []dnstest.R53Set
	for _, host := range []string{"web", "api"} {
		sets = append(sets, dnstest.R53(host+"."+dnsOrigin, "A", 60, "192.0.2.1"))
	}
	fake := dnstest.NewRoute53(t, dnsOrigin, sets...)
	rate := fmt.Sprintf(`{"status":"success","data":{"resultType":"scalar","result":[%d,"0.02"]}}`, time.Now().Unix())
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, rate)
	}))
	t.Cleanup(prometheus.Close)
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "fake", "AWS_SECRET_ACCESS_KEY": "fake",
		"AWS_REGION": "us-east-1"} {
		t.Setenv(name, value)
	}
	const ingress = "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %s, namespace: shop}\n" +
		"spec: {rules: [{host: %[1]s.shop.example.org}]}\nstatus: {loadBalancer: {ingress: [{%s}]}}\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"zones.yaml": fmt.Sprintf("apiVersion: theseus.dev/v1alpha1\nkind: Zones\nzones:\n- {name: shop.example.org, "+
			"route53: {id: Z1, endpoint: %q}, authoritative: [%q]}\n", fake.URL, fake.Address),
		"blue.yaml": fmt.Sprintf(ingress, "web", "ip: 192.0.2.1") + fmt.Sprintf(ingress, "api", "ip: 192.0.2.1"),
		"green.yaml": fmt.Sprintf(ingress, "web", "ip: 192.0.2.2") + fmt.Sprintf(ingress, "api",
			"hostname: green.example.net"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(want int, says []string, args ...string) {
		t.Helper()
		code, said := theseus(t, dir, 0, append([]string{"mirror", "dns", "plan", "--zones", "zones.yaml", "--from",
			"blue.yaml", "--mirror-from", "green.yaml"}, args...)...)
		if code != want {
			t.Errorf("%q: exit code %d, want %d:\n%s", args, code, want, said)
		}
		for _, text := range says {
			if !strings.Contains(said, text) {
				t.Errorf("%q: %q is not in\n%s", args, text, said)
			}
		}
	}
	plan(0, []string{"note: api.shop.example.org moves as a whole", "move 1 name to the mirror",
		"move 1 name 1 % to the mirror", "10 % to the mirror", "50 % to the mirror", "100 % to the mirror"},
		"--weights", "1,10,50,100")
	plan(2, []string{"weights must grow"}, "--weights", "10,1,100")
	with := []string{"--slo", "errors <= 0.05", "--prometheus"}
	plan(0, []string{"errors must be <= 0.05, asked at " + prometheus.URL, "holds; and every signal holds"},
		append(with, prometheus.URL)...)
	plan(3, []string{"a signal fails already before the change, and no name has moved: errors is 0.02, and must be " +
		"< 0.02", "hint: fix the services"}, "--slo", prometheus.URL+" errors < 0.02")
	rate = `{"status":"success","data":{"resultType":"vector","result":[]}}`
	plan(1, []string{"no answer to errors: the query yields no data", "hint: ask the signal from this machine"},
		append(with, prometheus.URL)...)
	plan(2, []string{"the text of --prometheus is not an address"}, append(with, "prometheus:9090")...)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("HOME", dir)
	plan(1, []string{"error: reading of zone shop.example.org.", "hint: give credentials"})
}
