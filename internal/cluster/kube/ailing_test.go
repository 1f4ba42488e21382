package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/step"
)

// crashing makes a pod whose agent has been started again so often, and is not up now: as the kubelet tells of it.
func crashing(restarts int32, words string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		unready(p)
		ended := &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: words}
		status := corev1.ContainerStatus{Name: "agent", RestartCount: restarts,
			State: corev1.ContainerState{Terminated: ended}}
		if restarts > 0 {
			status.LastTerminationState.Terminated = ended
			status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	}
}

// running makes the agent of such a pod run again.
func running(ready corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = ready
		status := &p.Status.ContainerStatuses[0]
		status.Ready = ready == corev1.ConditionTrue
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
}

// crashLoop plays a kubelet whose agent on node a ends as soon as it is started: 10, 20, 40 ... s after another.
// Where up is not 0, the start of that number lasts.
func crashLoop(w *world, words string, up int32) {
	pods := w.typed.CoreV1().Pods("theseus-system")
	began, pause, next := w.Now(), 10*time.Second, time.Duration(0)
	restarts := int32(-1)
	w.slept = func(int) {
		since := w.now.Sub(began)
		if since < next || up > 0 && restarts == up {
			return
		}
		restarts++
		change := []func(*corev1.Pod){label("app", "agent"), crashing(restarts, words)}
		if restarts > 0 {
			next, pause = since+pause, 2*pause
		}
		if up > 0 && restarts == up {
			change = append(change, running(corev1.ConditionTrue))
		}
		now := pod("theseus-system", "agent-1", "a", "", change...)
		if _, err := pods.UpdateStatus(w.t.Context(), now, metav1.UpdateOptions{}); err != nil {
			w.t.Error(err)
		}
	}
}

func newCrashWorld(t *testing.T) *world {
	return newWorld(t, []runtime.Object{nodeThatIs("True"),
		pod("theseus-system", "agent-1", "a", "", label("app", "agent"), waiting("ContainerCreating", ""))}, agentSet)
}

func agentReady() step.Condition {
	return step.Condition{Is: step.PodReady{Node: "a", Namespace: "theseus-system", Selector: "app=agent"}}
}

func agentWait() step.Action { return step.Action{ID: "w", Do: step.Wait{Condition: agentReady()}} }

// TestCrashLoop: what ends again and again is said as soon as it is seen, and given up when it was seen to be started
// again three times, long before the time is over.
func TestCrashLoop(t *testing.T) {
	for _, test := range []struct{ words, told string }{
		{"first\nof all\n\nno route to\tthe \x1b[31mAPI server\nterminating\n",
			"of all | no route to the [31mAPI server | terminating"},
		{"", "fake logs"}, // of client-go's fake
	} {
		w := newCrashWorld(t)
		crashLoop(w, test.words, 0)
		begun := w.Now()
		_, err := w.do(agentWait())
		took := w.Now().Sub(begun)
		wantError(t, err, "pod theseus-system/agent-1 on a is not Ready: container agent of pod "+
			"theseus-system/agent-1 on node a does not stay up: it ended 4 times, the last with code 2 (Error): "+
			test.told)
		if temporary(err) || took < 30*time.Second || took > time.Minute {
			t.Errorf("after %s, temporary %v", took, temporary(err))
		}
		if at := slices.IndexFunc(w.notes,
			func(note string) bool { return strings.Contains(note, "does not stay up") }); at < 0 {
			t.Errorf("nobody was told: %q", w.notes)
		}
	}
}

// TestCrashBetweenSteps: what the engine waits for before a step is told and given up in the same way, but for a node
// that may come back.
func TestCrashBetweenSteps(t *testing.T) {
	rolled := step.Condition{Is: step.Rolled{
		Ref: step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "theseus-system", Name: "agent"}}}
	const crashes = "container agent of pod theseus-system/agent-1 on node a does not stay up: it ended "
	ask := func(w *world, c step.Condition) (all []string, err error) {
		for range 300 {
			holds, missing, err := w.Holds(t.Context(), c)
			if holds || err != nil {
				return all, err
			}
			if len(all) == 0 || all[len(all)-1] != missing {
				all = append(all, missing)
			}
			if err := w.Sleep(t.Context(), time.Second); err != nil {
				return all, err
			}
		}
		return all, nil
	}
	for _, c := range []step.Condition{rolled, agentReady()} {
		w := newCrashWorld(t)
		crashLoop(w, "no route", 0)
		begun := w.Now()
		told, err := ask(w, c)
		wantError(t, err, crashes+"4 times, the last with code 2 (Error): no route")
		if took := w.Now().Sub(begun); took < 30*time.Second || took > time.Minute {
			t.Errorf("%s: after %s", c.Kind(), took)
		}
		if !slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, crashes+"2 times") }) ||
			len(w.notes) > 0 {
			t.Errorf("%s: told %q, noted %q", c.Kind(), told, w.notes)
		}
	}

	// What mends itself is asked about as if for the first time when it ails again.
	w := newCrashWorld(t)
	crashLoop(w, "too early", 3)
	if _, err := ask(w, agentReady()); err != nil {
		t.Fatal(err)
	}
	crashLoop(w, "once more", 3)
	w.slept(0)
	if told, err := ask(w, agentReady()); err != nil || len(told) < 2 {
		t.Errorf("told %q, %v", told, err)
	}

	w = newWorld(t, []runtime.Object{nodeThatIs("Unknown"),
		pod("theseus-system", "agent-1", "a", "", label("app", "agent"), unready)}, agentSet)
	if _, err := ask(w, rolled); err != nil {
		t.Errorf("a node that is down: %v", err)
	}
}

// TestCrashThatHeals: an agent that comes up at its third start again is waited for.
func TestCrashThatHeals(t *testing.T) {
	w := newCrashWorld(t)
	crashLoop(w, "too early", 3)
	if _, err := w.do(agentWait()); err != nil {
		t.Fatal(err)
	}
	if len(w.notes) == 0 || !strings.Contains(strings.Join(w.notes, "\n"), "does not stay up") {
		t.Errorf("nobody was told: %q", w.notes)
	}
}

// TestCrashesOfBefore: a wait that begins next to an agent that has crashed for long, as after an outage, sees it tried
// again.
func TestCrashesOfBefore(t *testing.T) {
	w := newWorld(t, []runtime.Object{nodeThatIs("True"),
		pod("theseus-system", "agent-1", "a", "", label("app", "agent"), crashing(7, ""))}, agentSet)
	_, err := w.Do(w.end(400), agentWait(), nil)
	wantError(t, err, "it ended 8 times, the last with code 2 (Error)")
}

// TestRestartThatFails: an agent of a new version that does not start is not waited for to the end, as its node has
// none meanwhile.
func TestRestartThatFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		node  corev1.ConditionStatus
		ails  func(*corev1.Pod)
		words string
	}{
		{"no image", "True", waiting("ErrImagePull", "not found"), "pod agent-a-new is not Ready: node a cannot get " +
			"the image registry.test/agent:v9 of pod net/agent-a-new: ErrImagePull: not found"},
		{"a dead node", "Unknown", unready, "pod agent-a-new is not Ready: node a is down"},
	} {
		t.Run(test.name, func(t *testing.T) {
			set, revision, of := daemonSet()
			w := newWorld(t, []runtime.Object{nodeThatIs(test.node), set, revision(2, "new"),
				of("a", "new", test.ails)})
			begun := w.Now()
			_, err := w.Do(w.end(400), restartOnA, nil)
			wantError(t, err, test.words)
			if took := w.Now().Sub(begun); took > 2*stuckFor {
				t.Errorf("after %s", took)
			}
		})
	}
}

// unschedulable makes a pod one that no node takes, in the words of a real scheduler.
func unschedulable(p *corev1.Pod) {
	unready(p)
	p.Spec.NodeName = ""
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled,
		Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. no new claims to " +
			"deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."})
}

// TestEvictedPodThatDoesNotStart: of what the change only moves, an image that does not come is borne for longer, a
// crash and nodes without room are told and left to the limit of the action, and what ailed before is no matter.
func TestEvictedPodThatDoesNotStart(t *testing.T) {
	like := ownedBy("ReplicaSet", "web-1")
	for _, test := range []struct {
		name        string
		ails, early func(*corev1.Pod)
		words       string
		least, most time.Duration
	}{
		{"no image", waiting("ErrImagePull", "not found"), nil,
			"Deployment/shop/web has 0 of 1 pods ready: node b cannot get the image registry.test/agent:v9 of " +
				"pod shop/p1-again: ErrImagePull: not found", stuckForOthers, stuckForOthers + stuckFor},
		{"it crashes", crashing(5, "no database"), nil, "Deployment/shop/web has 0 of 1 pods ready: container agent " +
			"of pod shop/p1-again on node b does not stay up: it ended 6 times, the last with code 2 (Error): no " +
			"database (context canceled)",
			140 * time.Second, 200 * time.Second},
		{"no node has room", unschedulable, nil,
			"Deployment/shop/web has 0 of 1 pods ready: no node takes pod shop/p1-again: " +
				"0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable (context canceled)",
			140 * time.Second, 200 * time.Second},
		{"a slow start beside one that ailed before", unready, waiting("ErrImagePull", "not found"),
			"has 0 of 1 pods ready (context canceled)", 140 * time.Second, 200 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := []runtime.Object{pod("shop", "p1", "a", "10.244.1.5", like)}
			if test.early != nil {
				objects = append(objects, pod("shop", "p0", "b", "10.244.2.5", like, test.early))
			}
			w := newWorld(t, objects, webSet, webDeployment)
			w.evictions(always)
			ctx := w.end(600)
			over := w.slept
			w.slept = func(n int) {
				if n == 4 {
					w.recreate("p1", func(p *corev1.Pod) { like(p); test.ails(p) })
				}
				over(n)
			}
			begun := w.Now()
			_, err := w.Do(ctx, onA, w.see(onA).Before)
			wantError(t, err, test.words)
			if took := w.Now().Sub(begun); took < test.least || took > test.most {
				t.Errorf("after %s", took)
			}
		})
	}
}

func TestPrintable(t *testing.T) {
	long := strings.Repeat("a", lineLength) + strings.Repeat("z", lineLength)
	for line, want := range map[string]string{
		" \x1b[31mno\troute\r\n to\x00 host\xff ": "[31mno route   to host\ufffd",
		long: strings.Repeat("a", lineLength/3) + " ... " + strings.Repeat("z", 2*lineLength/3),
	} {
		if got := printable(line); got != want {
			t.Errorf("%q of %q", got, line)
		}
	}
}
