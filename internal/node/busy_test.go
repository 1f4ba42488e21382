package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestBusy: what processors did but idle, wait and run guests; a file of another form is an error.
func TestBusy(t *testing.T) {
	proc := t.TempDir()
	n := &Node{Sys: filepath.Join(proc, "sys")}
	for _, c := range []struct {
		text string
		want time.Duration
		bad  bool
	}{
		{"cpu  100 10 20 5000 7 1 2 9 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", 1330 * time.Millisecond, false},
		{"cpu  1 2 3\n", 0, true}, {"", 0, true}, {"cpu  -1 10 20 5000 7 1 2 9 50 0\n", 0, true},
		{"intr 100 10 20 5000 7 1 2 9 50 0\n", 0, true},
		{"cpu  99999999999999999999 10 20 5000 7 1 2 9 50 0\n", 0, true},
	} {
		if err := os.WriteFile(filepath.Join(proc, "stat"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := n.Busy(); got != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %s, %v", c.text, got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(proc, "stat"), []byte("cpu  1 2 3\ncpu0 1\ncpu11 1\ncpu\ncpux\nintr 1\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := n.Processors(); got != 2 {
		t.Errorf("%d processors", got)
	}
	if got := (&Node{Sys: filepath.Join(proc, "none", "sys")}).Processors(); got != 0 {
		t.Errorf("%d processors without a file", got)
	}
	if n.Boot() != "" {
		t.Errorf("without a file: %q", n.Boot())
	}
	if own := (&Node{Sys: "/proc/sys"}).Boot(); len(own) != 36 {
		t.Errorf("of this machine: %q", own)
	}
}
