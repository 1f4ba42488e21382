package bench

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// TestDryNeedsNoImage: a dry run makes nothing, so it needs no image and no consent.
func TestDryNeedsNoImage(t *testing.T) {
	t.Setenv("THESEUS_AGENT_IMAGE", "")
	o := &options{bounds: bench.Defaults(), dry: true}
	if _, err := o.read(&app.App{}); err != nil {
		t.Error(err)
	}
}
