package supervise

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// One supervisor only, and no os/exec: it reaps every child of this process.
func TestSupervisor(t *testing.T) {
	logs, pids := t.TempDir(), t.TempDir()
	s := New(logs, pids)

	t.Run("run", func(t *testing.T) {
		err := s.Run(t.Context(), Program{Name: "good", Argv: []string{"sh", "-c", "echo said"}})
		if err != nil {
			t.Error(err)
		}
		if raw, err := os.ReadFile(filepath.Join(logs, "good.log")); err != nil || string(raw) != "said\n" {
			t.Errorf("log %q, %v", raw, err)
		}
		err = s.Run(t.Context(), Program{Name: "bad", Argv: []string{"sh", "-c", "exit 3"}})
		if err == nil || !strings.Contains(err.Error(), "status 3") {
			t.Errorf("got %v, want status 3", err)
		}
		if err := s.Run(t.Context(), Program{Name: "none", Argv: []string{"no-such-program"}}); err == nil {
			t.Error("a program that is not there ran")
		}
	})
	t.Run("output", func(t *testing.T) {
		out, err := s.Output(t.Context(), "in", "sh", "-c", "cat; echo err >&2")
		if err != nil || out != "inerr\n" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx, Program{Name: "long", Argv: []string{"sleep", "1000"}}); err != context.Canceled {
			t.Errorf("got %v", err)
		}
	})
	t.Run("keep", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := &stopAfter{n: 3, stop: cancel}
		s.Keep(ctx, Program{Name: "again", Argv: []string{"sh", "-c", "kill -9 $$"}}, events)
		if want := strings.Repeat("again ended: signal killed\n", 3); events.text.String() != want {
			t.Errorf("got %q", events.text.String())
		}
		if _, err := os.Stat(filepath.Join(pids, "again.pid")); err != nil {
			t.Error(err)
		}
	})
	t.Run("orphans and many at once", func(t *testing.T) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := s.Run(t.Context(),
					Program{Name: "many", Argv: []string{"sh", "-c", "true & exit 0"}}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

type stopAfter struct {
	n    int
	stop func()
	text strings.Builder
}

func (w *stopAfter) Write(p []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.stop()
	}
	return w.text.Write(p)
}
