package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestVerifyRefusesForeignTasks: no plan may have an agent remove what is not a network's, on the way there or back.
func TestVerifyRefusesForeignTasks(t *testing.T) {
	for name, of := range map[string]func(s *step.Step) []step.Action{
		"there": func(s *step.Step) []step.Action { return s.Actions },
		"back":  func(s *step.Step) []step.Action { return s.Undo },
	} {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, flannelToCalico(t))
			for i := range p.Steps {
				for j, a := range of(&p.Steps[i]) {
					if a.Op() != step.OpNode {
						continue
					}
					evil := &of(&p.Steps[i])[j]
					evil.Do = step.Node{NodeName: a.Node(), Verb: step.VerbClean, Args: json.RawMessage(`{"chains":["KUBE-*"]}`)}
					if err := plan.Verify(p); err == nil ||
						!strings.Contains(err.Error(), "no known network leaves") {
						t.Errorf("verify: %v", err)
					}
					return
				}
			}
			t.Fatal("the plan has no task for an agent")
		})
	}
}
