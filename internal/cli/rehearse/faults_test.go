package rehearse

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestPlace: a fault is at its step, on a node of the step if that has one; one at random is at a step that is about
// nodes. A step after the rollback is refused.
func TestPlace(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{Title: "install"}, {Node: "b"}, {Node: "a"}, {}, {Node: "c"}}}
	named := func(at int) []rehearsal.Fault { return []rehearsal.Fault{{Name: "agent", At: at}} }
	first, last := func(int) int { return 0 }, func(n int) int { return n - 1 }
	for name, c := range map[string]struct {
		at, n    int
		pick     func(int) int
		step     int
		node, no string
	}{
		"its own node":    {2, 4, last, 2, "b", ""},
		"of any node":     {1, 4, last, 1, "z", ""},
		"random, first":   {0, 4, first, 2, "b", ""},
		"random, last":    {0, 4, last, 3, "a", ""},
		"random, no node": {0, 1, last, 1, "z", ""},
		"too late":        {5, 4, last, 0, "", "are rolled back after step 4 of 5"},
		"no way back":     {0, 0, last, 0, "", "are rolled back after step 0 of 5"},
	} {
		got, err := place(named(c.at), p, c.n, []string{"y", "z"}, c.pick)
		if c.no != "" {
			if err == nil || !strings.Contains(err.Error(), c.no) || exit.HintOf(err) == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		want := []placed{{rehearsal.Fault{Name: "agent", At: c.step}, c.node}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestFaulted: a run with a fault passes if it ended as the rules say, and if the fault was made.
func TestFaulted(t *testing.T) {
	alone := back{phase: engine.PhaseRolledBack, Why: "a gate failed"}
	asked := back{phase: engine.PhaseRolledBack, asked: true, Passed: true, Why: "nothing was lost"}
	lost, leaked, stuck := asked, alone, back{phase: engine.PhaseNeedsPerson, Why: "stuck"}
	lost.Passed, leaked.leaked = false, true
	for name, c := range map[string]struct {
		fault  string
		made   error
		back   back
		passed bool
		says   string
	}{
		"goes on":               {"agent", nil, asked, true, "went on, and was rolled back when it was asked to"},
		"must go on":            {"agent", nil, alone, false, "was rolled back by itself: a gate failed"},
		"may be rolled back":    {"power", nil, alone, true, "was rolled back by itself: a gate failed"},
		"need not be":           {"image", nil, asked, true, "went on"},
		"lost too much":         {"api", nil, lost, false, "nothing was lost"},
		"leaked":                {"power", nil, leaked, false, "by itself"},
		"needs a person":        {"mine", nil, stuck, false, "stuck"},
		"not made":              {"agent", errors.New("no agent"), asked, false, "no agent; the run: nothing was lost"},
		"not made, rolled back": {"power", errors.New("no power"), alone, false, "no power; the run: a gate failed"},
	} {
		f := placed{Fault: rehearsal.Fault{Name: c.fault, At: 1}, node: "a"}
		one := newFaulted(&plan.Plan{Steps: []step.Step{{Title: "Adopt"}}}, f)
		one.decide(f, c.made, &c.back)
		if one.Passed != c.passed || !strings.Contains(one.Happened, c.says) || one.Expected == "" {
			t.Errorf("%s: %+v", name, one)
		}
		word := map[bool]string{true: "step 1 (Adopt), a: as expected: ", false: "step 1 (Adopt), a: NOT as expected: "}
		if !strings.Contains(one.String(), word[c.passed]) {
			t.Errorf("%s: %s", name, one)
		}
		r := &result{Passed: true, Why: "fine", Faults: []*faulted{one}}
		if r.broken(); r.Passed != c.passed || !c.passed && !strings.Contains(r.Why, "with the fault "+c.fault) {
			t.Errorf("%s: %+v", name, r)
		}
		if rows := faultTable(r.Faults).Rows; len(rows) != 1 || rows[0][3] != one.Happened {
			t.Errorf("%s: %v", name, rows)
		}
	}
}

// agentOn is a pod of an agent.
func agentOn(node, name string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.Namespace,
		Labels: map[string]string{"app.kubernetes.io/name": manifest.AgentName}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "agent", Image: "agent:1"}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

// TestAgentFaults: the agent of the node is killed, and no other; one whose image was taken away is killed too, so that
// its DaemonSet makes a good one. Without a ready agent, the fault is not made.
func TestAgentFaults(t *testing.T) {
	typed := fake.NewClientset(agentOn("a", "other", corev1.ConditionTrue), agentOn("b", "mine", corev1.ConditionTrue),
		agentOn("c", "starting", corev1.ConditionFalse))
	m := maker{client: &kube.Client{Typed: typed}, fault: placed{node: "b"}}
	ended, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	if err := m.image(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	verbs := ""
	for _, action := range typed.Actions() {
		if verb := action.GetVerb(); verb != "list" {
			verbs += verb + " "
		}
	}
	left, err := typed.CoreV1().Pods(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || verbs != "patch delete " || len(left.Items) != 2 || left.Items[0].Name != "other" {
		t.Errorf("%v: %s, %v", err, verbs, left.Items)
	}
	for _, node := range []string{"b", "c"} {
		m.fault.node = node
		soon, end := context.WithTimeout(t.Context(), time.Second/2)
		if _, err := m.onAgent(soon, m.kill); err == nil ||
			!strings.Contains(err.Error(), "no agent was ready on "+node) {
			t.Errorf("%s: %v", node, err)
		}
		end()
	}
}

// TestFaultCommand: the command gets the node, and its failure is that of the fault, with its last line.
func TestFaultCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node")
	m := maker{migration: "m", fault: placed{node: "node-b", Fault: rehearsal.Fault{Command: []string{"sh", "-c",
		`test "$THESEUS_FAULT_NODE $THESEUS_MIGRATION" = "node-b m" && touch ` + file}}}}
	if err := m.command(t.Context()); err != nil {
		t.Error(err)
	}
	for says, command := range map[string][]string{
		"exit status 3: no link": {"sh", "-c", "echo begin; echo no link >&2; exit 3"},
		"no-such-program":        {"no-such-program"},
	} {
		m.fault.Command = command
		if err := m.command(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", command, err)
		}
	}
}
