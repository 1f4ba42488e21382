package journal

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/plan"
)

// TestFits: what the cluster cannot hold is refused, before and when it would be written, and all else is read as it was written.
func TestFits(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	noise := make([]byte, maxGzip*3/2)
	_, _ = random.Read(noise)
	large := &plan.Plan{Name: "large", Reason: hex.EncodeToString(noise)}
	text, err := plan.Write(large)
	if err != nil {
		t.Fatal(err)
	}
	if err := Fits(text); err == nil || !strings.Contains(err.Error(), "at most 1048576 fit") {
		t.Errorf("%v", err)
	}
	if _, err := pack(large); err == nil || !strings.Contains(err.Error(), "plan large: it has ") {
		t.Errorf("%v", err)
	}
	large.Reason = large.Reason[:maxGzip] // half a byte of noise each
	packed, err := pack(large)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := unpack(packed); err != nil || again.Reason != large.Reason {
		t.Errorf("%v", err)
	}
}
