package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestNotices: each problem that keeps a migration is one event, with what to do, when its condition is written first;
// and another one if it comes back.
func TestNotices(t *testing.T) {
	decided := func(change func(*Situation), more ...func(*v1alpha1.Migration)) Conditions {
		s := Situation{Migration: migration(more...), Needed: 1, Policy: Policy{Since: noon}, Now: noon}
		change(&s)
		return Decide(s).Conditions
	}
	well := Conditions{Approved: yes(v1alpha1.ReasonEnoughApprovals, "approved by ann"), Degraded: initial.Degraded,
		Progressing: yes(v1alpha1.ReasonRunning, "a")}
	rolledBack, _ := ended(engine.State{Phase: engine.PhaseRolledBack, Cause: "x"}, "make a new plan")
	stopped, _ := ended(engine.State{Phase: engine.PhaseRolledBack, Asked: true}, "make a new plan")
	person, _ := ended(engine.State{Phase: engine.PhaseNeedsPerson, Cause: "x"}, "resume it")
	for name, test := range map[string]struct {
		told       Conditions
		want, says string
	}{
		"no problem":            {well, "", ""},
		"it waits for approval": {decided(func(*Situation) {}), "", ""},
		"CRDs of an older version": {decided(func(s *Situation) { s.OldCRDs = true }),
			"Warning OldCRDs this cluster does not know the kind Approval", "upgrade the chart"},
		"no policy": {decided(func(s *Situation) {
			s.Policy = Policy{Reason: v1alpha1.ReasonPolicyMissing, Object: "V/x"}
		}), "Warning PolicyMissing V/x", "install or upgrade the chart"},
		"another policy": {decided(func(s *Situation) {
			s.Policy = Policy{Reason: v1alpha1.ReasonPolicyChanged, Object: "V/x"}
		}), "Warning PolicyChanged V/x", "install or upgrade the chart"},
		"Kubernetes without policies, and no signers": {decided(func(s *Situation) {
			s.Policy = Policy{Reason: v1alpha1.ReasonPolicyMissing, Object: "V/x", Unserved: true}
		}), "Warning SignersMissing this API server does not check who approves", "allowedSigners"},
		"bad windows": {decided(func(s *Situation) { s.Approvals = []v1alpha1.Approval{by("ann")} },
			within("22:00-05:00 UTC"), zone("Nowhere")), "Warning BadWindows ", "change spec.windows"},
		"a plan that cannot run here": {decided(func(s *Situation) {
			s.Unfit = &Obstacle{v1alpha1.ReasonNotSupported, "it has a hook; run it with theseus apply"}
		}), "Warning NotSupported it has a hook", "theseus apply"},
		"a stale plan": {obstructed(Obstacle{v1alpha1.ReasonStalePlan, "the cluster has changed; plan again"}),
			"Warning StalePlan", "plan again"},
		"rolled back":    {rolledBack, "Warning RolledBack every step was undone: x", "make a new plan"},
		"as requested":   {stopped, "Normal Stopped every step was undone, as requested", "make a new plan"},
		"needs a person": {person, "Warning NeedsPerson x", "resume it"},
	} {
		m := migration()
		c, events := holding(t, m), record.NewFakeRecorder(10)
		c.Events = events
		write := func(all ...Conditions) (got []string) {
			for _, told := range all {
				if err := c.write(t.Context(), m, told, nil); err != nil {
					t.Fatal(err)
				}
			}
			for len(events.Events) > 0 {
				got = append(got, <-events.Events)
			}
			return got
		}
		again := test.told
		if again.Degraded.True { // a retry says how often
			again.Degraded.Message += ", again"
		}
		got := write(test.told, again, test.told)
		if test.want == "" && len(got) > 0 ||
			test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want) ||
				!strings.Contains(got[0], test.says)) {
			t.Errorf("%s: events %q, want one %q with %q", name, got, test.want, test.says)
		}
		if test.told.Degraded.True || test.told.Approved.Reason != "" {
			if back := write(well, test.told); len(back) != len(got) {
				t.Errorf("%s: it came back: %q", name, back)
			}
		}
	}
	if text := fits(strings.Repeat("ä", 600) + "; do this"); len(text) > 1010 || !strings.HasSuffix(text, "; do this") {
		t.Errorf("a long event: %q", text)
	}
}

// TestHindered: what keeps pods from starting is the reason of Progressing while the run waits, and one event a step.
func TestHindered(t *testing.T) {
	var events []string
	v := viewOf(&events)
	v.Record(engine.Record{Seq: 1, Event: engine.Started, Data: []byte(`{"plan":"hash"}`), By: "x"})
	v.Record(engine.Record{Seq: 2, Event: engine.StepBegan, Step: "a"})
	v.take()
	v.Note("waiting: DaemonSet/theseus-system/theseus-agent has 0 of 3 pods")
	if told := v.take(); told != nil || len(events) != 1 {
		t.Fatalf("%+v, %q", told, events)
	}
	const why = "node n1 cannot get the image reg.test/a:v1 of pod theseus-system/theseus-agent-x: "
	v.Note("waiting: " + why + "ErrImagePull")
	v.Note("waiting: " + why + "ImagePullBackOff")
	told := v.take()
	if told == nil || !told.conditions.Progressing.True || told.observed == nil ||
		told.conditions.Progressing.Reason != v1alpha1.ReasonImageUnavailable ||
		!strings.Contains(told.conditions.Progressing.Message,
			"[1/2] Adopt a: waiting: "+why+"ImagePullBackOff; correct") {
		t.Errorf("%+v", told)
	}
	if len(events) != 2 || !strings.HasPrefix(events[1], "Warning ImageUnavailable: [1/2] Adopt a: waiting: "+why) ||
		!strings.Contains(events[1], "--agent-image") {
		t.Errorf("events %q", events)
	}
	v.Record(engine.Record{Seq: 3, Event: engine.StepDone, Step: "a"})
	if told := v.take(); told == nil || told.conditions.Progressing.Reason != v1alpha1.ReasonRunning {
		t.Errorf("after it: %+v", told)
	}
	v.Record(engine.Record{Seq: 4, Event: engine.StepBegan, Step: "b"})
	v.Note("waiting: " + why + "ErrImagePull")
	if len(events) < 3 || !strings.Contains(events[len(events)-1], "[2/2]") {
		t.Errorf("the next step: %q", events)
	}
}

// TestHindranceEnds: what no longer keeps pods from starting is told no longer, though no record follows; what another
// pod still waits for is.
func TestHindranceEnds(t *testing.T) {
	var events []string
	v := viewOf(&events)
	v.Record(engine.Record{Seq: 1, Event: engine.Started, Data: []byte(`{"plan":"hash"}`), By: "x"})
	v.Record(engine.Record{Seq: 2, Event: engine.StepBegan, Step: "a"})
	lacks := func(pod, reason string) string {
		return outage.Unpulled("n1", "reg.test/a:v1", "kube-system/"+pod, reason)
	}
	step := running(v.state, v.where()).Progressing
	for i, said := range []struct {
		note, reason, says string
	}{
		{"waiting: " + lacks("one", "ErrImagePull"), v1alpha1.ReasonImageUnavailable, "/one: ErrImagePull"},
		{"waiting: " + lacks("two", "ErrImagePull"), v1alpha1.ReasonImageUnavailable, "/two: ErrImagePull"},
		{"step a waits after its actions: 1 of 3: " + lacks("two", "ImagePullBackOff"),
			v1alpha1.ReasonImageUnavailable, "/two: ImagePullBackOff"},
		{outage.Resolved(lacks("three", "ErrImagePull")), "", ""},
		{outage.Resolved(lacks("two", "ErrImagePull")), v1alpha1.ReasonImageUnavailable, "/one: ErrImagePull"},
		{outage.Resolved("node n1 is down"), "", ""},
		{outage.Resolved(lacks("one", "ImagePullBackOff")), step.Reason, step.Message},
		{outage.Resolved(lacks("one", "ImagePullBackOff")), "", ""},
	} {
		v.Note(said.note)
		told := v.take()
		if told == nil && said.reason != "" || told != nil && (told.conditions.Progressing.Reason != said.reason ||
			!strings.Contains(told.conditions.Progressing.Message, said.says) || told.observed == nil) {
			t.Errorf("%d: %s: %+v", i, said.note, told)
		}
	}
	if len(events) != 2 {
		t.Errorf("events %q", events)
	}
}

// hurried is a clock that does not wait.
type hurried struct {
	at    time.Time
	slept func() // may be nil
}

func (h *hurried) Now() time.Time { return h.at }

func (h *hurried) Sleep(ctx context.Context, d time.Duration) error {
	h.at = h.at.Add(d)
	if h.slept != nil {
		h.slept()
	}
	return ctx.Err()
}

// records makes the controller write its events to the API server.
func records(t *testing.T, c *Controller) {
	t.Helper()
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	t.Cleanup(broadcaster.Shutdown)
	broadcaster.StartRecordingToSink(Sink(c.Client.Typed.CoreV1()))
	c.Events = broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: manifest.ControllerName})
}

// tells waits for an event of the Migration.
func tells(t *testing.T, admin *kube.Client, reason, says string) {
	t.Helper()
	awaited(t, "there is an event "+reason+" that says "+says, func() bool {
		list, err := admin.Typed.CoreV1().Events(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason && e.InvolvedObject.Kind == "Migration" &&
				e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, says) {
				return true
			}
		}
		return false
	})
}

// tellsUnpulled: the image of the agent that a node cannot pull is told while a run waits for it, as a condition and an
// event with what to do, and ends the wait within a minute.
func tellsUnpulled(t *testing.T, admin *kube.Client, c *Controller) {
	t.Helper()
	kubetest.Apply(t, admin,
		unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": map[string]any{"name": "default", "namespace": v1alpha1.Namespace}}},
		unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "theseus-agent-x", "namespace": v1alpha1.Namespace,
				"labels": map[string]any{"app": manifest.AgentName}},
			"spec": map[string]any{"nodeName": "n1", "automountServiceAccountToken": false,
				"containers": []any{map[string]any{"name": "agent", "image": "reg.test/agent:none"}}}}})
	pods := admin.Typed.CoreV1().Pods(v1alpha1.Namespace)
	pod, err := pods.Get(t.Context(), "theseus-agent-x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "agent",
		Image: "reg.test/agent:none", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: "dial tcp: lookup reg.test: no such host"}}}}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	m := read(t, admin)
	p := twoSteps()
	v := newView(&run.Lines{Out: t.Output(), Script: run.NewScript(p), Begun: time.Now()}, p, asked(&m),
		func(kind, reason, message string) { c.event(&m, kind, reason, message) },
		func(corev1.ObjectReference, string, string, string) {})
	actor, clock := run.NewActor(admin), &hurried{at: noon}
	actor.Clock, actor.Note = clock, v.Note
	ready := step.Condition{Is: step.PodReady{Node: "n1", Namespace: v1alpha1.Namespace,
		Selector: "app=" + manifest.AgentName}}
	_, err = actor.Do(t.Context(), step.Action{ID: "wait", Do: step.Wait{Condition: ready}}, nil)
	const says = "node n1 cannot get the image reg.test/agent:none of pod theseus-system/theseus-agent-x: " +
		"ImagePullBackOff"
	if reason, _ := outage.Hindering(errorText(err)); reason != v1alpha1.ReasonImageUnavailable ||
		!strings.Contains(engine.HintOf(err), "--agent-image") || clock.at.Sub(noon) > time.Minute {
		t.Errorf("after %s: %v; %s", clock.at.Sub(noon), err, engine.HintOf(err))
	}
	next := v.take()
	if next == nil {
		t.Fatal("no condition says what the run waits for")
	}
	if err := c.write(t.Context(), &m, next.conditions, next.observed); err != nil {
		t.Fatal(err)
	}
	wants(t, admin, v1alpha1.ConditionProgressing, "True", v1alpha1.ReasonImageUnavailable)
	wants(t, admin, v1alpha1.ConditionReconciling, "True", v1alpha1.ReasonImageUnavailable)
	tells(t, admin, v1alpha1.ReasonImageUnavailable, says)

	began, came := clock.at, false
	clock.slept = func() { // the image comes, and some time later the pod is ready
		is := corev1.ConditionFalse
		switch {
		case clock.at.Sub(began) < 10*time.Second:
			return
		case clock.at.Sub(began) > 20*time.Second:
			is = corev1.ConditionTrue
			if next := v.take(); next != nil {
				came = true
				if err := c.write(t.Context(), &m, next.conditions, next.observed); err != nil {
					t.Fatal(err)
				}
			}
		}
		if pod, err = pods.Get(t.Context(), "theseus-agent-x", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = actor.Do(t.Context(), step.Action{ID: "wait", Do: step.Wait{Condition: ready}}, nil)
	if err != nil || !came {
		t.Errorf("the image came: %t, %v", came, err)
	}
	wants(t, admin, v1alpha1.ConditionProgressing, "True", v1alpha1.ReasonRunning)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
