package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func env(values map[string]string) func(string) string {
	return func(key string) string { return values[key] }
}

func TestServices(t *testing.T) {
	always := []string{"allocate-tunnel-addrs", "complete-startup", "node-status-reporter"}
	for _, test := range []struct {
		name string
		env  map[string]string
		more []string
	}{
		{"vxlan", map[string]string{"CALICO_NETWORKING_BACKEND": "vxlan"},
			[]string{"felix", "monitor-addresses", "cni"}},
		{"BGP", map[string]string{"CALICO_NETWORKING_BACKEND": "bird"},
			[]string{"felix", "monitor-addresses", "cni", "bird", "bird6", "confd"}},
		{"BGP unless told otherwise", nil, []string{"felix", "monitor-addresses", "cni", "bird", "bird6", "confd"}},
		{"policy only", map[string]string{"CALICO_NETWORKING_BACKEND": "none"}, []string{"felix", "cni"}},
		{"CNI managed elsewhere", map[string]string{"CALICO_NETWORKING_BACKEND": "vxlan", "CALICO_MANAGE_CNI": "false"},
			[]string{"felix", "monitor-addresses"}},
		{"Felix elsewhere", map[string]string{"CALICO_NETWORKING_BACKEND": "none", "CALICO_DISABLE_FELIX": "true"},
			[]string{"cni"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, s := range services(env(test.env)) {
				got = append(got, s.name)
			}
			want := append(slices.Clone(always), test.more...)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	got := environment("a-node-1", env(map[string]string{"DATASTORE_TYPE": "kubernetes"}))
	want := map[string]string{"NODENAME": "a-node-1", "FELIX_FELIXHOSTNAME": "a-node-1",
		"FELIX_DATASTORETYPE": "kubernetes"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestKeep runs a daemon that asks to be restarted twice, and then is killed without being told.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho run >> " + dir + "/runs\n" +
		"[ $(wc -l < " + dir + "/runs) -lt 3 ] && exit 129\n" +
		"trap 'echo told >> " + dir + "/runs; exit 0' TERM\n" +
		"echo up > " + dir + "/up\nwhile :; do sleep 0.01; done\n"
	if err := os.WriteFile(filepath.Join(dir, "calico-node"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keep(ctx, t.TempDir(), node("felix", "-felix"))
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "up")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the daemon was not started a third time")
		}
	}
	cancel()
	<-done
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(string(runs)), " "); got != "run run run" {
		t.Errorf("the daemon saw %q; want three runs and nothing else", got)
	}
}

// TestSV hangs up a service that runs and asks for one that does not.
func TestSV(t *testing.T) {
	// Under nohup SIGHUP is ignored, and a shell sets no trap on a signal that it inherits as ignored: once notified, a
	// program's children inherit the default.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	up := filepath.Join(dir, "up")
	script := "trap 'exit 7' HUP; echo up > " + up + "; while :; do sleep 0.01; done"
	go func() { done <- service{name: "bird", argv: []string{"sh", "-c", script}}.run(ctx, dir) }()
	defer cancel()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(up); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the service was not started")
		}
	}
	var out strings.Builder
	if err := sv([]string{"status", "/etc/service/enabled/bird"}, dir, &out); err != nil ||
		!strings.HasPrefix(out.String(), "run: /etc/service/enabled/bird") {
		t.Errorf("status: %v, %q", err, out.String())
	}
	if err := sv([]string{"status", "confd"}, dir, &out); err == nil {
		t.Error("confd does not run, and sv says nothing")
	}
	if err := sv([]string{"hup", "bird"}, dir, &out); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("the service ended with %v; want the exit of its handler", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the service was hung up, and goes on")
	}
	if err := sv([]string{"hup", "bird"}, dir, &out); err == nil {
		t.Error("a service that ended was hung up")
	}
}
