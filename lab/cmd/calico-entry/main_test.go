package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func env(values map[string]string) func(string) string {
	return func(key string) string { return values[key] }
}

func TestDaemons(t *testing.T) {
	always := []string{"-allocate-tunnel-addrs", "-complete-startup", "-status-reporter"}
	for _, test := range []struct {
		name string
		env  map[string]string
		more []string
	}{
		{"vxlan", map[string]string{"CALICO_NETWORKING_BACKEND": "vxlan"}, []string{"-felix", "-monitor-addresses", "-monitor-token"}},
		{"policy only", map[string]string{"CALICO_NETWORKING_BACKEND": "none"}, []string{"-felix", "-monitor-token"}},
		{"CNI managed elsewhere", map[string]string{"CALICO_MANAGE_CNI": "false"}, []string{"-felix", "-monitor-addresses"}},
		{"Felix elsewhere", map[string]string{"CALICO_DISABLE_FELIX": "true"}, []string{"-monitor-addresses", "-monitor-token"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, want := daemons(env(test.env)), append(slices.Clone(always), test.more...)
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
	want := map[string]string{"NODENAME": "a-node-1", "FELIX_FELIXHOSTNAME": "a-node-1", "FELIX_DATASTORETYPE": "kubernetes"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestKeep runs a daemon that asks to be restarted twice and then waits to be told to end.
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
		keep(ctx, "-felix")
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
	if got := strings.Join(strings.Fields(string(runs)), " "); got != "run run run told" {
		t.Errorf("the daemon saw %q; want three runs and one request to end", got)
	}
}
