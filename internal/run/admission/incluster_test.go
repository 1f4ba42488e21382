package admission

import (
	"errors"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
)

// TestSignals: the controller asks Prometheus and addresses, and runs no command of a user's machine.
func TestSignals(t *testing.T) {
	for text, runs := range map[string]bool{"http://prometheus:9090 a < 1": true,
		"https://shop.example.org/healthz": true, "command: /opt/check.sh": false, "a < 1": false} {
		p := &plan.Plan{Name: "p", Change: v1alpha1.ChangeSpec{SLO: []string{text}}}
		err := InCluster(p)
		var refusal *Refusal
		if refused := errors.As(err, &refusal); refused == runs ||
			refused && refusal.Reason != v1alpha1.ReasonNotSupported {
			t.Errorf("%s: %v", text, err)
		}
	}
}
