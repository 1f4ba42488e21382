package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLinkSpeed: the speed is that of the interface with the address, and unknown is 0: virtual interfaces say -1, or
// nothing.
func TestLinkSpeed(t *testing.T) {
	class := t.TempDir()
	if err := os.Mkdir(filepath.Join(class, "lo"), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int64{"10000\n": 10000, "-1\n": 0, "": 0, "fast\n": 0} {
		if err := os.WriteFile(filepath.Join(class, "lo", "speed"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LinkSpeed(class, "127.0.0.1"); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	for _, address := range []string{"192.0.2.1", "", "no address"} {
		if got := LinkSpeed(class, address); got != 0 {
			t.Errorf("%s: %d", address, got)
		}
	}
	if err := os.RemoveAll(filepath.Join(class, "lo")); err != nil {
		t.Fatal(err)
	}
	if got := LinkSpeed(class, "127.0.0.1"); got != 0 {
		t.Errorf("without a file: %d", got)
	}
}
