package rehearsal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// podOfWeb is a pod of the Deployment shop/web.
func podOfWeb(edit func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-a", UID: "a",
		Labels:          map[string]string{"pod-template-hash": "1"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", Controller: new(true)}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a",
			ReadinessProbe: &corev1.Probe{InitialDelaySeconds: 600, PeriodSeconds: 5}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", Image: "a:1", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	if edit != nil {
		edit(&pod)
	}
	return pod
}

// noon is a time.
var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func deleted(p *corev1.Pod) {
	p.DeletionTimestamp = new(metav1.NewTime(noon))
	p.Spec.TerminationGracePeriodSeconds = new(int64(3600))
}

// TestSleeps: how long a hook sleeps is read from what people write; other hooks are not guessed.
func TestSleeps(t *testing.T) {
	for command, want := range map[string]int64{"sleep 15": 15, "/bin/sleep 15": 15, "sleep 2m": 30,
		"sleep infinity": 30, "sh -c sleep 5; nginx -s quit": 5, "/bin/bash -c sleep 5 && stop": 5, "sleep 1.5": 1,
		"sleep 99999999999": 0, "sleep 0": 0, "sleep": 0, "sleep $N": 0, "stop; sleep 5": 0, "sh -c ": 0, "": 0,
		"sleep 5x": 0} {
		words := strings.Fields(command)
		if shell, script, is := strings.Cut(command, " -c "); is {
			words = []string{shell, "-c", script}
		}
		got := sleeps(&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: words}}, 30)
		if (got == nil) != (want == 0) || got != nil && got.Seconds != want {
			t.Errorf("%q: %+v, want %d", command, got, want)
		}
	}
	for _, hook := range []*corev1.LifecycleHandler{nil, {HTTPGet: &corev1.HTTPGetAction{}}} {
		if got := sleeps(hook, 30); got != nil {
			t.Errorf("%+v", got)
		}
	}
}

// TestHold: only finalizers that have kept ended pods for a minute are in the copy; others are told.
func TestHold(t *testing.T) {
	over := func(p *corev1.Pod) { deleted(p); p.Status.Phase = "Failed" }
	for name, c := range map[string]struct {
		finalizers []string
		edit       func(*corev1.Pod)
		after      time.Duration // the snapshot
		want       string
		noted      int
	}{
		"none":           {nil, over, time.Hour, "[]", 0},
		"kept":           {[]string{"example.com/a"}, over, heldFor + time.Second, "[rehearsal.theseus.dev/a]", 0},
		"has just ended": {[]string{"example.com/a"}, over, heldFor, "[]", 1},
		"files":          {[]string{"example.com/a"}, over, -1, "[]", 1}, // which do not say when they were made
		"runs":           {[]string{"example.com/a"}, deleted, time.Hour, "[]", 1},
		"in use":         {[]string{"example.com/a"}, nil, time.Hour, "[]", 1},
		"Kubernetes": {[]string{"batch.kubernetes.io/job-tracking", "foregroundDeletion", "a/"}, over, time.Hour, "[]",
			0},
	} {
		original := read(t, "odd.yaml")
		if original.TakenAt = (metav1.Time{}); c.after >= 0 {
			original.TakenAt = metav1.NewTime(noon.Add(c.after))
		}
		pod := podOfWeb(c.edit)
		pod.Finalizers, pod.OwnerReferences[0].Name = c.finalizers, "web-x"
		original.Pods = append(original.Pods, pod)
		made, err := Make(original, read(t, "scratch.yaml"), nil, nil, Options{Certify: certified})
		if err != nil {
			t.Fatal(err)
		}
		got, noted := "", 0
		for _, object := range made.Objects {
			if object.GetKind() == "Deployment" && object.GetName() == "web" {
				var d appsv1.Deployment
				decode(t, object.Object, &d)
				got = fmt.Sprint(d.Spec.Template.Finalizers)
			}
		}
		for _, lack := range made.Lacks {
			if lack.What == "finalizers of the pods of 1 workload" {
				noted++
			}
		}
		if got != c.want || noted != c.noted {
			t.Errorf("%s: %s, noted %d", name, got, noted)
		}
	}
}

func decode(t *testing.T, fields map[string]any, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, to); err != nil {
		t.Fatal(err)
	}
}
