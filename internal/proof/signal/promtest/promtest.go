// Package promtest runs a real Prometheus, Debian's, for tests.
package promtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// programs is where lab/install.sh unpacks Debian's prometheus.
const programs = "/usr/local/lib/theseus-lab/prometheus/usr/bin"

// Program is the path of prometheus or promtool. With -short, it skips the test.
func Program(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a real Prometheus: not with -short")
	}
	path := filepath.Join(programs, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no %s: %v (lab/install.sh unpacks it)", name, err)
	}
	return path
}

// Start starts a Prometheus that scrapes a target (HOST:PORT) once a second and evaluates the rules of the given files.
// It returns the address (http://HOST:PORT) when the Prometheus is ready.
func Start(t *testing.T, target string, rules ...string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+
		"scrape_configs: [{job_name: theseus, static_configs: [{targets: [%q]}]}]\n", target)
	for i, file := range rules {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			config += "rule_files:\n"
		}
		config += fmt.Sprintf("- %q\n", path)
	}
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, Program(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	command.Stdout, command.Stderr = &out, &out
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", out.String())
		}
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		answer, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
		if time.Now().After(until) {
			t.Fatalf("Prometheus is not ready after a minute: %v", err)
		}
	}
}
