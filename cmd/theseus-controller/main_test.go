package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestUsage: what cannot be meant is refused before a cluster is asked.
func TestUsage(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"walk", `unknown command "walk"`},
		{"run now", `unexpected argument "now"`},
		{"--approvals=0", "at least one user must approve"},
		{"--max-writes-per-second=5", "5 is too small: give at least 10 writes a second, or 0 for no bound"},
		{"--max-writes-per-second=many", "invalid value"},
		{"--api-server=10.0.0.1", "it must be HOST:PORT"},
		{"--notify-secret-file=/none", "without --notify"},
		{"--notify=events.example.com", "not valid"},
		{"--metrics=9464", "not HOST:PORT"},
		{"uninstall-check --approvals=1", "flag provided but not defined"},
	} {
		err := start(t.Context(), strings.Fields(test.args))
		if err == nil || !strings.Contains(err.Error(), test.says) ||
			!strings.Contains(hint(err), "theseus-controller [run]") {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}

// TestLater: a run does not end because the Secret of notifications is wrong, or because the port of the metrics is in
// use. Both are tried again.
func TestLater(t *testing.T) {
	before := againEvery
	againEvery = 10 * time.Millisecond
	t.Cleanup(func() { againEvery = before })
	file := filepath.Join(t.TempDir(), "url")
	target, stop := notifies(t.Context(), "@"+file, "")
	defer stop()
	if target() != nil {
		t.Error("there is a target without its file")
	}
	if err := os.WriteFile(file, []byte("https://events.example.com"), 0o600); err != nil {
		t.Fatal(err)
	}
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(&rest.Config{Host: "https://192.0.2.1"}, "v0")
	if err != nil {
		t.Fatal(err)
	}
	counts, stop, err := measure(t.Context(), used.Addr().String(), &client)
	if err != nil || counts == nil {
		t.Fatal(err)
	}
	defer stop()
	used.Close()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.Get("http://" + used.Addr().String() + "/metrics")
		if err == nil {
			answer.Body.Close()
		}
		if err == nil && target() != nil {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("after a minute, the target is %v, and the metrics %v", target(), err)
		}
	}
}

// TestRun: the program answers /healthz while it looks after a real API server, which it reaches at the address of
// --api-server, and ends when it is asked to. Nothing keeps it from being uninstalled.
func TestRun(t *testing.T) {
	program := clustertest.Program(t, "the controller with a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: token}}],
clusters: [{name: c, cluster: {server: "https://192.0.2.1:443", insecure-skip-tls-verify: true}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	health := clustertest.Free(t)
	scraped := clustertest.Free(t)
	reach := []string{"--kubeconfig=" + kubeconfig, "--api-server=" + strings.TrimPrefix(config.Host, "https://")}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- start(ctx, append(reach, "--state-dir="+filepath.Join(dir, "state"),
			"--health="+health, "--metrics="+scraped))
	}()
	healthy := func() bool {
		answer, err := http.Get("http://" + health + "/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	for until := time.Now().Add(time.Minute); !healthy(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("not healthy within a minute")
		}
	}
	if err := start(t.Context(), append([]string{"uninstall-check"}, reach...)); err != nil {
		t.Error(err)
	}
	if text := get(t, "http://"+scraped+"/metrics"); !strings.Contains(text, `theseus_migrations{phase="running"} 0`) ||
		!strings.Contains(text, `theseus_api_requests_total{code="404",method="get"}`) {
		t.Errorf("the metrics: %s", text)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
