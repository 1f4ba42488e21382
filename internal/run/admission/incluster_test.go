package admission

import (
	"errors"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
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

// TestCommands: the controller runs no command, wherever a plan has it, and says who can run the plan.
func TestCommands(t *testing.T) {
	for _, test := range []struct {
		op   step.Operation
		says string
	}{{step.Hook{}, "runs commands that add and remove nodes"},
		{step.Command{}, "runs a command on the user's machine"}, {step.Await{}, "waits for a confirmation of its " +
			"user"},
		{step.DNS{}, "needs a second cluster"}, {step.Mirror{}, "needs a second cluster"}} {
		op, says := test.op, test.says
		for _, undo := range []bool{false, true} {
			one := step.Step{ID: "a", Actions: []step.Action{{ID: "apply", Do: step.Apply{}}}}
			if action := (step.Action{ID: "b", Do: op}); undo {
				one.Undo = append(one.Undo, action)
			} else {
				one.Actions = append(one.Actions, action)
			}
			err := InCluster(&plan.Plan{Name: "p", Steps: []step.Step{one}})
			refusal, refused := errors.AsType[*Refusal](err)
			if !refused || refusal.Reason != v1alpha1.ReasonNotSupported || !strings.Contains(err.Error(), says) ||
				!strings.Contains(refusal.Hint(), "without --in-cluster") {
				t.Errorf("%T, undo %t: %v", op, undo, err)
			}
		}
	}
}
