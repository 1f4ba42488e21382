package run

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// idle does every action at once, and lets every gate pass.
type idle struct{}

func (idle) Observe(context.Context, step.Action, json.RawMessage) (engine.Observation, error) {
	return engine.Observation{}, nil
}
func (idle) Do(context.Context, step.Action, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}
func (idle) Holds(context.Context, step.Condition) (bool, string, error) { return true, "", nil }
func (idle) Ask(context.Context, step.Gate, func(context.Context) error) (engine.Verdict, error) {
	return engine.Verdict{Pass: true}, nil
}

// TestAPIServer: a guard that measures stands in the cluster. Another machine marks it and looks at it; what happened
// between two looks is kept in the cluster, and who runs it next counts from the baseline that is kept there.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "a guard in a real API server")
	client, err := kube.New(clustertest.ControlPlane(t, program, clustertest.Options{}), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := Prepare(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	p := guardPlan(t)
	nodes := client.Typed.CoreV1().Nodes()
	ready := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version, BootID: "b"},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.Now()}}}}
	}
	if _, err := nodes.Create(t.Context(), ready("v1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.UpdateStatus(t.Context(), ready("v1"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	goesOn(t, client, p, false)
	first := kube.NewEvidence(kube.Collected{Paths: []v1alpha1.Path{{ID: "n/old>m", Class: "pod-pod"}},
		Results: []v1alpha1.PathResult{{ID: "n/old>m", Sent: 9, Answered: 9, Since: time.Now().UTC(),
			Last: time.Now().UTC()}}})
	first.Count([]v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: v1alpha1.ProbeReportStatus{Seq: 7, Paths: []v1alpha1.PathResult{{ID: "n/old>m", Sent: 5}}}}})
	if _, err := first.Observe(t.Context(), client, time.Now(), true); err != nil {
		t.Fatal(err)
	}
	if err := newArchive(client.Dynamic, p.Name).save(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	if _, err := nodes.UpdateStatus(t.Context(), ready("v2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Typed.CoreV1().Events("default").Create(t.Context(),
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, Reason: "Rebooted",
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n"}, FirstTimestamp: metav1.NewTime(
				time.Now().Add(time.Second)), LastTimestamp: metav1.NewTime(time.Now().Add(time.Second)), Count: 1},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var said []string
	there := &Looking{Client: client, Plan: p, Dir: t.TempDir(), Holder: "ann@there", Say: func(text string) {
		said = append(said, text)
	}}
	if err := there.Mark(t.Context(), "node pool b"); err != nil {
		t.Fatal(err)
	}
	m, seen, err := there.Report(t.Context())
	if err != nil || len(said) > 0 || seen.Sent != 9 || m.Run.Outcome != report.Measuring {
		t.Fatalf("%+v, %+v, %v, said %q", m.Run, seen, err, said)
	}
	var lines []string
	for _, one := range m.Moments {
		lines = append(lines, one.String())
	}
	for _, want := range []string{"mark: node pool b (ann@there)", "node n runs kubelet v2, before v1",
		"node n was restarted"} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("%q is not told: %q", want, lines)
		}
	}
	lease, ctx, err := journal.Acquire(t.Context(), Leases(client), "bob@elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Mark(ctx, "too late"); err == nil || !strings.Contains(err.Error(), "bob@elsewhere") {
		t.Errorf("a mark while a process runs it: %v", err)
	}
	if _, err := there.Look(ctx); err != nil {
		t.Errorf("a look while a process runs it: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	past, err := journal.NewCluster(client.Dynamic, p.Name).Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, gate := &Run{Client: client, Plan: p, Ended: true,
		View: &Lines{Out: &strings.Builder{}, Script: NewScript(p)}}, &kube.Gate{Since: []v1alpha1.ProbeReport{}}
	if err := next.recall(t.Context(), newArchive(client.Dynamic, next.Plan.Name), kube.NewEvidence(kube.Collected{}),
		gate, past); err != nil || len(gate.Since) != 1 || gate.Since[0].Status.Seq != 7 || gate.Lacks != "" {
		t.Errorf("it counts from %+v, lacks %q, %v", gate.Since, gate.Lacks, err)
	}
	empty := &plan.Plan{Name: "other", Steps: p.Steps}
	lacking := &kube.Gate{Since: []v1alpha1.ProbeReport{}}
	next.Plan = empty
	if err := next.recall(t.Context(), newArchive(client.Dynamic, next.Plan.Name), kube.NewEvidence(kube.Collected{}),
		lacking, past); err != nil || lacking.Lacks == "" {
		t.Errorf("without the counts of the baseline: %+v, %v", lacking, err)
	}
}
