package rehearse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/group"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

const (
	// imageAway is how long an agent's image cannot be pulled: longer than what a run waits for an image.
	imageAway = time.Minute
	// noImage is in no registry: .invalid is reserved (RFC 2606).
	noImage = "registry.invalid/theseus-rehearsal:none"
	// commandLasts bounds a command that makes a fault, and commandEnds how long it may take to take it back then.
	commandLasts, commandEnds = 10 * time.Minute, 30 * time.Second
	// healing bounds the end of a fault that Theseus made.
	healing = 2 * time.Minute
)

// placed is a fault at a step of the plan for the copy.
type placed struct {
	rehearsal.Fault
	node string
}

// place decides on the steps and the nodes of faults. The run is rolled back after n steps, so only these can have one.
// A step at random is one that is about nodes, if there is one. pick returns a number below another.
func place(faults []rehearsal.Fault, p *plan.Plan, n int, nodes []string, pick func(int) int) ([]placed, error) {
	var acting []int
	for i := range n {
		if len(p.Steps[i].Nodes()) > 0 {
			acting = append(acting, i+1)
		}
	}
	var all []placed
	for _, f := range faults {
		if n == 0 || f.At > n {
			return nil, exit.Fail(exit.Usage, fmt.Sprintf("name a step from 1 to %d, or random", max(n, 1)),
				"--faults %s: the runs with faults are rolled back after step %d of %d", f.Name, n, len(p.Steps))
		}
		switch {
		case f.At > 0:
		case len(acting) > 0:
			f.At = acting[pick(len(acting))]
		default:
			f.At = 1 + pick(n)
		}
		about := p.Steps[f.At-1].Nodes()
		if len(about) == 0 {
			about = nodes
		}
		one := placed{Fault: f}
		if len(about) > 0 {
			one.node = about[pick(len(about))]
		}
		all = append(all, one)
	}
	return all, nil
}

// faulted is what a run with a fault showed.
type faulted struct {
	Fault string `json:"fault"`
	// Step is the step with which the fault began, from 1, and Title its title.
	Step      int    `json:"step"`
	Title     string `json:"title"`
	Node      string `json:"node,omitempty"`
	Command   string `json:"command,omitempty"`
	Expected  string `json:"expected"`
	Happened  string `json:"happened"`
	Passed    bool   `json:"passed"`
	Migration string `json:"migration"`
}

// newFaulted is the run of a plan with a fault before it begins.
func newFaulted(p *plan.Plan, f placed) *faulted {
	return &faulted{Fault: f.Name, Step: f.At, Title: p.Steps[f.At-1].Title, Node: f.node,
		Command: shell.Words(f.Command...), Expected: f.Expected(), Migration: p.Name}
}

// when says where in the run the fault begins.
func (f *faulted) when() string { return fmt.Sprintf("step %d (%s), %s", f.Step, f.Title, f.Node) }

func (f *faulted) verdict() string {
	if f.Passed {
		return "as expected"
	}
	return "NOT as expected"
}

// String is the run with the fault in a line.
func (f *faulted) String() string {
	return fmt.Sprintf("fault %s with %s: %s: %s; expected: %s; `theseus report %s` shows that run", f.Fault, f.when(),
		f.verdict(), f.Happened, f.Expected, f.Migration)
}

// faultTable is what the runs with faults showed, a row each.
func faultTable(all []*faulted) report.HeadTable {
	t := report.HeadTable{Title: "Faults on purpose", Head: []string{"FAULT", "WHEN", "EXPECTED", "WHAT HAPPENED", ""}}
	for _, f := range all {
		t.Rows = append(t.Rows, []string{f.Fault, f.when(), f.Expected, f.Happened, f.verdict()})
	}
	return t
}

// withFault runs a plan on the copy with a fault, and has it rolled back after n steps. An error is of a run that did
// not end rolled back: then the cluster is not as before.
func withFault(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, n int, f placed,
	w *watcher) (*faulted, *back, error) {
	one := newFaulted(p, f)
	m := maker{client: client, migration: p.Name, step: p.Steps[f.At-1].ID, fault: f}
	var made error
	b, err := thereAndBack(ctx, a, client, p, n, w, func(working, running context.Context) {
		made = m.make(working, running)
	})
	if b == nil {
		return nil, nil, err
	}
	one.decide(f, made, b)
	if b.phase == engine.PhaseRolledBack {
		err = nil
	}
	return one, b, err
}

// decide compares how a run ended with what the rules say. made says why the fault was not made, or not taken back.
func (f *faulted) decide(fault placed, made error, b *back) {
	alone := b.phase == engine.PhaseRolledBack && !b.asked
	switch {
	case made != nil:
		f.Happened = fmt.Sprintf("%s; the run: %s", exit.OneLine(made.Error()), b.Why)
	case alone:
		f.Happened = "was rolled back by itself: " + b.Why
	case b.Passed:
		f.Happened = "went on, and was rolled back when it was asked to: " + b.Why
	default:
		f.Happened = b.Why
	}
	f.Passed = made == nil && (b.Passed || alone && fault.MayRollBack() && !b.leaked)
}

// maker makes a fault while a migration runs.
type maker struct {
	client          *kube.Client
	migration, step string
	fault           placed
}

// make makes the fault when its step begins, and takes it back. running ends with the run, and ctx when a person
// interrupts it.
func (m *maker) make(ctx, running context.Context) error {
	if !await(running, m.client, m.migration,
		func(state *engine.State) bool { return state.Find(m.step) != nil }) {
		return errors.New("the fault was not made: the run ended before its step began")
	}
	if len(m.fault.Command) > 0 {
		return m.command(ctx)
	}
	if m.fault.Name == rehearsal.FaultImage {
		return m.image(ctx, running)
	}
	_, err := m.onAgent(running, m.kill)
	return err
}

// onAgent does something to the agent's pod of the node, as soon as there is one that is ready.
func (m *maker) onAgent(running context.Context, do func(context.Context, *corev1.Pod) error) (*corev1.Pod, error) {
	for outage.Sleep(running, time.Second/5) == nil {
		pods, err := m.client.Typed.CoreV1().Pods(v1alpha1.Namespace).List(running, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=" + manifest.AgentName,
			FieldSelector: "spec.nodeName=" + m.fault.node})
		if err != nil {
			continue // the API server is away
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName == m.fault.node && pod.DeletionTimestamp == nil && cluster.PodReady(pod) &&
				do(running, pod) == nil {
				return pod, nil
			}
		}
	}
	return nil, fmt.Errorf("the fault was not made: no agent was ready on %s while the run lasted", m.fault.node)
}

// kill deletes a pod at once, with its processes.
func (m *maker) kill(ctx context.Context, pod *corev1.Pod) error {
	return m.client.Typed.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

// image gives the agent of the node an image that cannot be pulled, for a while. It is changed in the pod alone: the
// run would take a change of the DaemonSet for one that somebody made to what the run wrote.
func (m *maker) image(ctx, running context.Context) error {
	pod, err := m.onAgent(running, func(ctx context.Context, pod *corev1.Pod) error {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": pod.Spec.Containers[0].Name, "image": noImage}}}})
		if err != nil {
			return err
		}
		_, err = m.client.Typed.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	_ = outage.Sleep(running, imageAway)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healing)
	defer cancel()
	for {
		if err = m.kill(ctx, pod); err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if outage.Sleep(ctx, time.Second) != nil {
			return fmt.Errorf("the agent's pod %s has an image that does not exist: %w", pod.Name, err)
		}
	}
}

// command runs the user's command, which takes the fault back before it ends: it is not cut off by the end of the run.
func (m *maker) command(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commandLasts)
	defer cancel()
	command := exec.CommandContext(ctx, m.fault.Command[0], m.fault.Command[1:]...)
	command.Env = append(os.Environ(), "THESEUS_MIGRATION="+m.migration, "THESEUS_FAULT_NODE="+m.fault.node)
	var said strings.Builder
	command.Stdout, command.Stderr = &said, &said
	group.Own(command, syscall.SIGTERM, commandEnds)
	err := command.Run()
	if command.Process != nil {
		_ = group.Send(command, syscall.SIGKILL) // what it left behind
	}
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return fmt.Errorf("the command of the fault failed: %w: %s", err, printable.Line(lines[len(lines)-1]))
}
