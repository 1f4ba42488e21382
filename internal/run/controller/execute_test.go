package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// holding is a cluster that holds these Migrations, and a controller of it.
func holding(t *testing.T, all ...*v1alpha1.Migration) *Controller {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "Approval", "PlanPage", "JournalPage"} {
		kinds[resource(kind)] = kind + "List"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	for _, m := range all {
		m.APIVersion, m.Kind, m.Namespace = v1alpha1.APIVersion, "Migration", v1alpha1.Namespace
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Tracker().Create(resource("Migration"), &unstructured.Unstructured{Object: fields},
			v1alpha1.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	return &Controller{Client: &kube.Client{Dynamic: client}, Holder: HolderPrefix + "here",
		Version: "v1", Out: &bytes.Buffer{}, plans: map[string]*loaded{}, again: map[string]*pause{},
		unsaid: map[string]*unsaid{}, unread: map[string]*pause{}}
}

// TestUnreadRests: a plan or a journal that cannot be read is read again after a pause, which grows, and at once when a
// person asks for something.
func TestUnreadRests(t *testing.T) {
	for _, what := range []struct {
		resource string
		read     func(c *Controller, m *v1alpha1.Migration) error
	}{
		{"planpages", func(c *Controller, m *v1alpha1.Migration) error {
			unfit, err := c.unfit(t.Context(), m)
			if err == nil && unfit == nil {
				return errors.New("it is fit")
			}
			return err
		}},
		{"journalpages", func(c *Controller, m *v1alpha1.Migration) error { return c.recount(t.Context(), m) }},
	} {
		c, _, m := entered(t)
		m.Status.Phase = string(engine.PhasePaused)
		reads := 0
		c.Client.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("*", what.resource,
			func(clienttesting.Action) (bool, runtime.Object, error) {
				reads++
				return true, nil, apierrors.NewBadRequest("it is no page")
			})
		reading := func() bool {
			t.Helper()
			before := reads
			if err := what.read(c, m); err != nil {
				t.Fatal(err)
			}
			return reads > before
		}
		if !reading() || reading() || reading() {
			t.Errorf("%s are read %d times", what.resource, reads)
		}
		if c.unread["m"] == nil {
			t.Fatalf("%s are read again in the next turn", what.resource)
		}
		c.unread["m"].until = time.Now()
		if !reading() || reading() || time.Until(c.unread["m"].until) < pauseAfter(2)-time.Second {
			t.Errorf("%s after the pause: %+v", what.resource, c.unread["m"])
		}
		m.Spec.Attempt++
		if !reading() || reading() {
			t.Errorf("%s after a person has asked to continue: %d times", what.resource, reads)
		}
	}
}

// twoSteps is a plan of two waves.
func twoSteps() *plan.Plan {
	return &plan.Plan{Name: "m", Hash: "hash", Steps: []step.Step{{ID: "a", Title: "Adopt a", Group: "wave",
		Wave: "wave-1"}, {ID: "b", Title: "Adopt b", Group: "wave", Wave: "wave-2"}}}
}

func viewOf(events *[]string) *view {
	return newView(&run.Lines{Out: &bytes.Buffer{}, Script: run.NewScript(twoSteps())}, twoSteps(),
		v1alpha1.Observed{Attempt: 3},
		func(kind, reason, message string) { *events = append(*events, kind+" "+reason+": "+message) },
		func(corev1.ObjectReference, string, string, string) {})
}

// TestView: what a run tells by events, and by conditions while it goes on.
func TestView(t *testing.T) {
	var events []string
	v := viewOf(&events)
	if v.begun() || v.take() != nil {
		t.Error("a run without records has begun")
	}
	for i, r := range []engine.Record{
		{Event: engine.Started, Data: []byte(`{"plan":"hash"}`), By: HolderPrefix + "here"},
		{Event: engine.StepBegan, Step: "a"}, {Event: engine.StepDone, Step: "a"}, {Event: engine.StepBegan, Step: "b"},
		{Event: engine.RollingBack, Step: "b", Result: engine.ResultFailed, Error: "the gate failed"},
	} {
		r.Seq = i + 1
		v.Record(r)
	}
	told := v.take()
	if told == nil || told.observed.Attempt != 3 || told.conditions.Progressing != yes(v1alpha1.ReasonRollingBack,
		"[2/2] Adopt b") || v.take() != nil {
		t.Errorf("%+v", told)
	}
	v.Record(engine.Record{Seq: 6, Event: engine.StepUndone, Step: "b"})
	v.Record(engine.Record{Seq: 7, Event: engine.StepUndone, Step: "a"})
	v.take()
	v.Record(engine.Record{Seq: 8, Event: engine.Finished, Result: engine.ResultRolledBack, Error: "the gate failed"})
	if next := v.take(); next != nil {
		t.Errorf("the end is told without its hint: %+v", next)
	}
	want := "Normal Began: began, by theseus-controller@here\nNormal GroupDone: wave-1 is done; next: [2/2] Adopt b\n" +
		"Warning RollingBack: rolling back: the gate failed" // the end is told as its condition is
	if got := strings.Join(events, "\n"); got != want {
		t.Errorf("events\n%s\nwant\n%s", got, want)
	}
}

// TestTold: which conditions follow from how a run ended, and whether the controller leaves the migration alone for a
// while.
func TestTold(t *testing.T) {
	running := engine.State{Phase: engine.PhaseRunning}
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "journalpages"}, "p",
		errors.New("unable to create new content in namespace theseus-system because it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "theseus", errors.New("no"))
	stopped := func() *halt { h := &halt{stop: make(chan struct{})}; h.end(false); return h }
	handed := func() *halt { h := &halt{stop: make(chan struct{})}; h.end(true); return h }
	for _, test := range []struct {
		name    string
		halt    *halt
		outcome engine.Outcome
		err     error
		want    Condition // one of the conditions
		says    string
		later   bool
	}{
		{"done", nil, engine.Outcome{End: engine.EndDone, State: engine.State{Phase: engine.PhaseDone}}, nil,
			Condition{true, v1alpha1.ReasonDone, ""}, "every step is done", false},
		{"done while it was taken", handed(), engine.Outcome{End: engine.EndDone,
			State: engine.State{Phase: engine.PhaseDone}}, nil, Condition{true, v1alpha1.ReasonDone, ""}, "", false},
		{"rolled back", nil, engine.Outcome{End: engine.EndRolledBack, Hint: "make a new plan",
			State: engine.State{Phase: engine.PhaseRolledBack, Cause: "x"}}, nil,
			Condition{false, v1alpha1.ReasonRolledBack, ""}, "every step was undone: x; make a new plan", false},
		{"needs a person", nil, engine.Outcome{End: engine.EndNeedsPerson, Hint: "do y",
			State: engine.State{Phase: engine.PhaseNeedsPerson, Cause: "x"}}, nil,
			Condition{true, v1alpha1.ReasonNeedsPerson, ""}, "x; do y", false},
		{"needs a person after one step was undone", nil, engine.Outcome{End: engine.EndNeedsPerson, Cause: "x",
			Hint: "do y", State: engine.State{Phase: engine.PhaseRunning, Back: "a"}}, nil,
			Condition{true, v1alpha1.ReasonNeedsPerson, ""}, "x; do y", false},
		{"a long outage", nil, engine.Outcome{End: engine.EndNeedsPerson, Cause: "gave up", State: running}, nil,
			Condition{false, v1alpha1.ReasonRetrying, ""}, "tries again in 10s: gave up", true},
		{"the lock was lost", nil, engine.Outcome{End: engine.EndInterrupted, Cause: "the lock was lost",
			State: running}, nil, Condition{false, v1alpha1.ReasonRetrying, ""}, "the lock was lost", true},
		{"an outage before it began", nil, engine.Outcome{}, fmt.Errorf("x: %w", engine.ErrUnavailable),
			Condition{false, v1alpha1.ReasonRetrying, ""}, "", true},
		{"stopped", stopped(), engine.Outcome{End: engine.EndInterrupted, State: running}, nil,
			Condition{false, v1alpha1.ReasonWaiting, ""}, "the next one continues", false},
		{"stopped before it began", stopped(), engine.Outcome{}, errors.New("context canceled"),
			Condition{}, "", false},
		{"handed over", handed(), engine.Outcome{End: engine.EndInterrupted, State: running}, nil,
			Condition{false, v1alpha1.ReasonHandedOver, ""}, "", false},
		{"held by a person", nil, engine.Outcome{}, &journal.HeldError{Holder: "ann@laptop/1", Since: noon},
			Condition{false, v1alpha1.ReasonHeldByAnother, ""}, "ann@laptop/1 is running", false},
		{"held by a controller", nil, engine.Outcome{}, &journal.HeldError{Holder: HolderPrefix + "there", Since: noon},
			Condition{}, "", false},
		{"its namespace is being deleted", nil, engine.Outcome{}, fmt.Errorf("writing record 1: %w", ending),
			Condition{true, v1alpha1.ReasonNamespaceTerminating, ""}, "terminated; wait until the namespace is gone",
			true},
		{"no permission for the lock", nil, engine.Outcome{}, forbidden, Condition{true, v1alpha1.ReasonRightsMissing,
			""}, "serviceaccount:theseus-system/theseus-controller", true},
	} {
		m := migration()
		c := holding(t, m)
		h := test.halt
		if h == nil {
			h = &halt{stop: make(chan struct{})}
		}
		var events []string
		told, _ := c.told(t.Context(), m, viewOf(&events), h, test.outcome, test.err)
		found := test.want == Condition{} && told == Conditions{}
		for _, one := range []Condition{told.Approved, told.Progressing, told.Paused, told.Degraded, told.Complete} {
			if one.Reason == test.want.Reason && one.True == test.want.True &&
				strings.Contains(one.Message, test.says) && one.Reason != "" {
				found = true
			}
		}
		if _, later := c.again["m"]; !found || later != test.later {
			t.Errorf("%s: %+v, later %t", test.name, told, later)
		}
	}
}

// TestToldOfAnotherRelease: a journal of another release is told in a condition and an event, which name that release,
// and is not read again in each turn. A process that can read it, or a person who asks again, need not wait for that.
func TestToldOfAnotherRelease(t *testing.T) {
	m := migration(func(m *v1alpha1.Migration) {
		m.Status.Phase = string(engine.PhaseRunning)
		m.Spec.PlanPages = nil
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write([]byte(`{"theseus":"v2","unknown":1}`)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		m.Spec.PlanGzip = packed.Bytes()
	})
	c := holding(t, m)
	const next = "theseus v2 wrote this migration, and this is v1: journal: record 9: unknown event; continue with " +
		"`theseus resume` of release v2, or install its chart"
	told, seen := c.told(t.Context(), m, viewOf(new([]string)), &halt{stop: make(chan struct{})}, engine.Outcome{},
		errors.New("journal: record 9: unknown event"))
	if told.Degraded != yes(v1alpha1.ReasonUnknownFormat, next) || seen == nil || *seen != asked(m) {
		t.Errorf("%+v, %v", told, seen)
	}
	if p := c.again["m"]; p == nil || p.failures != 1 || !p.until.After(time.Now()) {
		t.Errorf("the next turn tries again: %+v", p)
	}
	m.Status.Observed = seen
	m.Status.Conditions, _ = told.onto(nil, noon)
	if got := notices(nil, m.Status.Conditions); len(got) != 1 ||
		got[0] != (notice{corev1.EventTypeWarning, v1alpha1.ReasonUnknownFormat, next}) {
		t.Errorf("events: %+v", got)
	}
	if waits(m) {
		t.Error("a controller that can read the journal does not continue")
	}
}

// TestFollowed: a pause and a rollback that were asked of a run while it ran count as done.
func TestFollowed(t *testing.T) {
	began := v1alpha1.Observed{Attempt: 1}
	for _, test := range []struct {
		state engine.State
		want  v1alpha1.Desire
	}{
		{engine.State{Phase: engine.PhasePaused}, v1alpha1.DesirePause},
		{engine.State{Phase: engine.PhasePaused, Cause: "an upgrade"}, v1alpha1.DesireRun},
		{engine.State{Phase: engine.PhasePaused, Held: engine.ResultFrozen, Cause: "frozen"}, v1alpha1.DesireRun},
		{engine.State{Phase: engine.PhaseNeedsPerson, Undoing: true, Asked: true}, v1alpha1.DesireRollback},
		{engine.State{Phase: engine.PhaseNeedsPerson, Undoing: true}, v1alpha1.DesireRun},
	} {
		if got := followed(began, test.state); got != (v1alpha1.Observed{Attempt: 1, Desire: test.want}) {
			t.Errorf("%+v: %+v", test.state, got)
		}
	}
}

// TestWatch: a run ends after its action when its Migration is taken from the controller, and when the process is asked
// to end; before the engine runs, at once.
func TestWatch(t *testing.T) {
	for _, taken := range []bool{true, false} {
		for _, engaged := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				m := migration(func(m *v1alpha1.Migration) { m.Spec.InCluster = !taken })
				c := holding(t, m)
				ctx := t.Context()
				var abandoned bool
				h := &halt{stop: make(chan struct{})}
				if engaged {
					h.begin()
				}
				ended, end := ctx, context.CancelFunc(func() {})
				if !taken {
					ended, end = context.WithCancel(ctx)
				}
				stop := c.watch(ended, "m", h, func() { abandoned = true })
				end()
				time.Sleep(3 * time.Second)
				synctest.Wait()
				stop()
				select {
				case <-h.stop:
				default:
					t.Error("the run goes on")
				}
				if h.wanted() != taken || abandoned == engaged {
					t.Errorf("taken %t, engaged %t: handed over %t, abandoned %t",
						taken, engaged, h.wanted(), abandoned)
				}
			})
		}
	}
}

// TestUnread: a plan that cannot be read is told with the release that wrote it, and others are looked after all the
// same.
func TestUnread(t *testing.T) {
	m := migration()
	c := holding(t, m)
	m.Spec.PlanPages = nil
	obstacle, err := c.obstacle(t.Context(), m, engine.NeedsPerson("restore it", "the plan was edited"))
	if err != nil || obstacle.Reason != v1alpha1.ReasonNeedsPerson ||
		obstacle.Message != "the plan was edited; restore it" {
		t.Errorf("%+v, %v", obstacle, err)
	}
	if err := Removable(t.Context(), c.Client); err == nil || !strings.Contains(err.Error(), "m (not begun)") {
		t.Error(err)
	}
}
