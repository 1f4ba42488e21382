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

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
)

// TestUsage: what cannot be meant is refused before a cluster is asked.
func TestUsage(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"walk", `unknown command "walk"`},
		{"run now", `unexpected argument "now"`},
		{"--approvals=0", "at least one user must approve"},
		{"--api-server=10.0.0.1", "it must be HOST:PORT"},
		{"--notify-secret-file=/none", "without --notify"},
		{"uninstall-check --approvals=1", "flag provided but not defined"},
	} {
		err := start(t.Context(), strings.Fields(test.args))
		if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(hint(err), "theseus-controller [run]") {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}

// TestNotify: a target that cannot be is refused before a cluster is asked, with a hint.
func TestNotify(t *testing.T) {
	for _, args := range [][]string{{"--notify=events.example.com"}, {"--notify=@/none"}, {"--notify=https://a", "--notify-secret-file=/none"}} {
		if err := start(t.Context(), args); err == nil || strings.Contains(hint(err), "kubectl") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestRun: the program answers /healthz while it looks after a real API server, which it reaches at the address of --api-server, and ends
// when it is asked to. Nothing keeps it from being uninstalled.
func TestRun(t *testing.T) {
	program := os.Getenv("THESEUS_KUBE")
	if program == "" {
		t.Skip("NOT TESTED: the controller with a real API server; THESEUS_KUBE names the lab's program of Kubernetes (bin/kube/*/kube in its cache)")
	}
	config := clustertest.ControlPlane(t, program, clustertest.Options{})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: token}}],
clusters: [{name: c, cluster: {server: "https://192.0.2.1:443", insecure-skip-tls-verify: true}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	health := free(t)
	scraped := free(t)
	reach := []string{"--kubeconfig=" + kubeconfig, "--api-server=" + strings.TrimPrefix(config.Host, "https://")}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- start(ctx, append(reach, "--state-dir="+filepath.Join(dir, "state"), "--health="+health, "--metrics="+scraped))
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
	if text := get(t, "http://"+scraped+"/metrics"); !strings.Contains(text, `theseus_migrations{phase="running"} 0`) || !strings.Contains(text, `theseus_api_requests_total{code="404",method="get"}`) {
		t.Errorf("the metrics: %s", text)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// free is an address of loopback whose port is free.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
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
