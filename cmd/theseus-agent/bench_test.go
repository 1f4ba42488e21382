package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestBenchEnds: every part of a benchmark's pods ends by itself: a kubelet that is lost ends none. Without an end they
// do not begin.
func TestBenchEnds(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, part := range []string{"serve", "work", "conduct"} {
		for _, args := range [][]string{{part}, {part, "--within", "0s"}, {part, "--within", "-1m"}} {
			if err := runBench(t.Context(), log, args); !errors.As(err, &usage{}) {
				t.Errorf("%v: %v", args, err)
			}
		}
	}
	// It would wait for an hour until its target answers.
	plan, err := json.Marshal(bench.Plan{Run: 1, Runs: 1, Reach: time.Hour,
		Tasks: []bench.Task{{Kind: bench.Connections, Target: "127.0.0.1:1", Rate: 1, Duration: time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("THESEUS_BENCH", string(plan))
	begun := time.Now()
	if err := runBench(t.Context(), log, []string{"conduct", "--within", "300ms"}); err != nil ||
		time.Since(begun) < 300*time.Millisecond {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
}

// TestBootIsHashed: nodes of one machine have the same answer in one benchmark; it is not the boot ID, and another
// benchmark has another one.
func TestBootIsHashed(t *testing.T) {
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "kernel/random"), 0o755); err != nil {
		t.Fatal(err)
	}
	of := func(id string) string {
		limits, _ := kernel{&node.Node{Sys: sys}, "192.0.2.1", id, nil}.Limits()
		return limits.Boot
	}
	if got := of("a"); got != "" {
		t.Errorf("without a boot ID: %q", got)
	}
	if err := os.WriteFile(filepath.Join(sys, "kernel/random/boot_id"), []byte("the-boot\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := of("a"); got == "" || strings.Contains(got, "the-boot") || got != of("a") || got == of("b") {
		t.Errorf("%q, and in another benchmark %q", got, of("b"))
	}
}

// TestKernelCounts: next to the kernel's counters are those of the network's own programs; how busy the node is and how
// many processors it has are limits. Readings that are no JSON are refused.
func TestKernelCounts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "dropped 7\n") //nolint:errcheck // the test sees it
	}))
	defer server.Close()
	k := kernel{&node.Node{Sys: "/proc/sys"}, "192.0.2.1", "id", []step.Reading{
		{URL: server.URL, Counters: map[string]string{"router.dropped": "dropped"}}, {URL: "http://127.0.0.1:1/"}}}
	all, err := k.Counters()
	if err != nil || all["router.dropped"] != 7 || all[bench.Busy] == 0 || all["softnet.processed"] == 0 {
		t.Errorf("%v, %v", all, err)
	}
	if limits, err := k.Limits(); err != nil || limits.Processors == 0 || limits.Busy == 0 {
		t.Errorf("%+v, %v", limits, err)
	}
	t.Setenv(manifest.BenchReadings, "{")
	err = runBench(t.Context(), slog.New(slog.DiscardHandler), []string{"serve", "--host", "--address", "127.0.0.1",
		"--within", "1s"})
	if !errors.As(err, &usage{}) {
		t.Error(err)
	}
}
