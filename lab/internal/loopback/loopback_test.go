package loopback

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKeep: a program that ends by itself is started again only where that is asked for, and stop ends it.
func TestKeep(t *testing.T) {
	for _, again := range []bool{true, false} {
		dir := t.TempDir()
		p := Program{Path: "/bin/sh", Args: []string{"-c", "echo here; test -e second && exec sleep 600; : >second"},
			Dir: dir, Log: filepath.Join(dir, "log"), Again: again}
		stop, err := p.Keep()
		if err != nil {
			t.Fatal(err)
		}
		said := func() string {
			text, err := os.ReadFile(p.Log)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		for _, err := os.Stat(filepath.Join(dir, "second")); err != nil && t.Context().Err() == nil; {
			time.Sleep(10 * time.Millisecond)
			_, err = os.Stat(filepath.Join(dir, "second"))
		}
		for again && !strings.HasSuffix(said(), "again.\nhere\n") && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		if got := said(); strings.Contains(got, "It is started again.") != again {
			t.Errorf("again %t: %s", again, got)
		}
	}
	if _, err := (Program{Path: "/absent", Log: filepath.Join(t.TempDir(), "log")}).Keep(); err == nil {
		t.Error("a program that does not exist was started")
	}
}
