package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/proof/bench"
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
		limits, _ := kernel{&node.Node{Sys: sys}, "192.0.2.1", id}.Limits()
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
