package report

import "testing"

// TestFates: a node of whose wave some steps are done is not "not reached", also where its steps are for all nodes of
// the wave.
func TestFates(t *testing.T) {
	const reached, waits = "node-1", "node-2"
	both := []string{reached, waits}
	for name, test := range map[string]struct {
		steps []Step
		want  State
	}{
		"no step": {[]Step{{Group: "wave-1", Nodes: both, State: StepNotReached}}, StepNotReached},
		"a step for both": {[]Step{{Group: "wave-1", Nodes: both, State: StepDone},
			{Group: "wave-1", Nodes: both, State: StepNotReached}}, StepRunning},
		"all steps": {[]Step{{Group: "wave-1", Nodes: both, State: StepDone}}, StepDone},
		"one that failed": {[]Step{{Group: "wave-1", Nodes: both, State: StepFailed},
			{Group: "wave-1", Nodes: both, State: StepDone}}, StepFailed},
		"another wave's": {[]Step{{Group: "wave-2", Nodes: both, State: StepDone}}, StepNotReached},
	} {
		nodes := map[string]*Node{reached: {Name: reached, Wave: "wave-1", State: StepNotReached},
			waits: {Name: waits, Wave: "wave-1", State: StepNotReached}}
		(&history{steps: test.steps}).fates(nodes)
		for _, node := range nodes {
			if node.State != test.want {
				t.Errorf("%s: %s is %q, want %q", name, node.Name, node.State, test.want)
			}
		}
	}
}
