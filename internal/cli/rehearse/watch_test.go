package rehearse

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/mirror/scratch"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestHurry: patience shortens only evictions, never lengthens one, and gives the plan another identity.
func TestHurry(t *testing.T) {
	made := func() *plan.Plan {
		p := &plan.Plan{Steps: []step.Step{{Actions: []step.Action{
			{Do: step.Evict{}, Timeout: step.Duration(time.Hour)},
			{Do: step.Evict{}, Timeout: step.Duration(time.Second)},
			{Do: step.Wait{}, Timeout: step.Duration(time.Hour)}}, Undo: []step.Action{
			{Do: step.Evict{}, Timeout: step.Duration(time.Hour)}}}}}
		p.Hash = plan.Hash(p)
		return p
	}
	if p := hurry(made(), 0); p.Hash != made().Hash || time.Duration(p.Steps[0].Actions[0].Timeout) != time.Hour {
		t.Error("no patience is asked for, and the plan is another one")
	}
	p := hurry(made(), time.Minute)
	for i, want := range []time.Duration{time.Minute, time.Second, time.Hour} {
		if got := time.Duration(p.Steps[0].Actions[i].Timeout); got != want {
			t.Errorf("action %d waits %s, want %s", i, got, want)
		}
	}
	if got := time.Duration(p.Steps[0].Undo[0].Timeout); got != time.Minute {
		t.Errorf("what takes the step back waits %s", got)
	}
	if p.Hash == made().Hash || p.Hash != plan.Hash(p) {
		t.Error("the hash is that of the plan before")
	}
}

// TestHurriedPlan: a plan for impatient people is as sound as the one before, also when it was written and read.
func TestHurriedPlan(t *testing.T) {
	trap := traps["budget"]
	in := propose.Input{Snapshot: newWorld(t, "flannel", 1).Snapshot, Change: trap.change,
		Manifest: cnitest.Fixture(t, "calico-manifest.yaml"), Options: propose.Options(trap.change, time.Now())}
	checked, err := propose.Check(in)
	if err != nil {
		t.Fatal(err)
	}
	p, err := propose.Plan(checked, trap.change, plan.Options{Version: "v0", Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Sound(hurry(p, time.Minute)); err != nil {
		t.Error(err)
	}
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	evictions := 0
	for _, one := range again.Steps {
		for _, action := range slices.Concat(one.Actions, one.Undo) {
			if action.Op() == step.OpEvict {
				evictions++
				if time.Duration(action.Timeout) > time.Minute {
					t.Errorf("%s waits %s", one.ID, time.Duration(action.Timeout))
				}
			}
		}
	}
	if evictions == 0 {
		t.Error("the plan evicts nothing")
	}
}

// TestSeen: Theseus' own pods are not those of the copy.
func TestSeen(t *testing.T) {
	pod := func(namespace string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	}
	now, err := seen(t.Context(), &kube.Client{Typed: fake.NewClientset(pod("shop"), pod(v1alpha1.Namespace))})
	if err != nil || len(now.Pods) != 1 || now.Pods[0].Namespace != "shop" || now.At.IsZero() {
		t.Errorf("%v: %+v", err, now)
	}
	w, stop := watching(t.Context(), &kube.Client{Typed: fake.NewClientset(pod("shop"))}, &rehearsal.Copy{}, nil)
	w.denied(pod("shop"), "")
	stop()
	if got := w.shown(nil); len(got) > 0 {
		t.Errorf("what lasted no time is shown: %+v", got)
	}
}

// says is a writer that calls a function.
type says func(text string)

func (s says) Write(data []byte) (int, error) { s(string(data)); return len(data), nil }

// TestFaultUnwatched: nothing is taken in while the change runs with a fault, and the watch begins anew after it.
func TestFaultUnwatched(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("THESEUS_STATE_DIR", state) // so that the run ends before it begins
	w := &watcher{}
	told := false
	a := &app.App{Streams: app.Streams{Out: io.Discard, Err: says(func(text string) {
		told = told || strings.Contains(text, "with the fault") && w.off
	})}}
	s := &scratch.Scratch{Client: &kube.Client{Typed: fake.NewClientset(), Dynamic: migrations()}}
	p := &plan.Plan{Name: "p", Steps: []step.Step{{ID: "a", Title: "Adopt"}}}
	f := placed{Fault: rehearsal.Fault{Name: "agent", At: 1}, node: "a"}
	if err := (&result{}).fault(t.Context(), a, s, p, 1, f, nil, nil, 0, w); err == nil {
		t.Error("the run did not end")
	}
	if !told || w.off {
		t.Errorf("paused while it ran: %v, and after it: %v", told, w.off)
	}
}

// TestPause: troubles while a watcher pauses, in a run with a fault, are not shown, nor are those that the fault left.
func TestPause(t *testing.T) {
	w := &watcher{watch: rehearsal.Watch{Users: map[string]bool{"shop": true}}}
	at := time.Now()
	look := func(waiting string) {
		for range 10 {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"}}
			if waiting != "" {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}}}
			}
			at = at.Add(10 * time.Second)
			w.look(rehearsal.Seen{At: at, Pods: []corev1.Pod{pod}})
		}
	}
	look("")
	w.pause()
	look("ErrImagePull")
	w.resume()
	look("ErrImagePull")
	look("")
	if got := w.shown(nil); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	look("CrashLoopBackOff")
	if got := w.shown(nil); len(got) != 1 {
		t.Errorf("after the pause: %+v", got)
	}
}
