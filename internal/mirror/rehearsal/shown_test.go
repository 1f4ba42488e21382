package rehearsal

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "a", Image: "a:1", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}
	}
}

// TestShown: a trouble is shown when it has lasted, by the name of its workload; one that ends before, that was there
// before the change, or that pods of others have, is not.
func TestShown(t *testing.T) {
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	failure := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: new(true)}}},
		Status: appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			Message: `failed calling webhook "hook"`}}}}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		sets []appsv1.ReplicaSet
		deny string
		want string
	}{
		"nothing": {},
		"denied": {deny: "The disruption budget never needs 2 healthy pods and has 2 currently", want: "budget: " +
			"Deployment shop/web: a PodDisruptionBudget denies the eviction of its pods: The disruption budget never " +
			"needs 2 healthy pods and has 2 currently; found before by pdb/blocks"},
		"runs on": {edit: deleted, want: "drain: Deployment shop/web: deleted pods go on running; their grace period " +
			"is 3600 s; found before by no check"},
		"held": {edit: func(p *corev1.Pod) {
			deleted(p)
			p.Finalizers, p.Status.Phase = []string{HeldPrefix + "sink"}, corev1.PodSucceeded
		}, want: "finalizer: Deployment shop/web: deleted pods have ended, and stay: the finalizer " +
			"rehearsal.theseus.dev/sink is not removed; found before by no check"},
		"ends": {edit: func(p *corev1.Pod) { // the API server is about to remove it
			deleted(p)
			p.Status.Phase = corev1.PodSucceeded
		}},
		"no image": {edit: waits("ImagePullBackOff"), want: "image: Deployment shop/web: the image a:1 cannot be " +
			"pulled; found before by node/image-absent"},
		"crashes": {edit: waits("CrashLoopBackOff"), want: "start: Deployment shop/web: its container a does not " +
			"start: CrashLoopBackOff: why; found before by no check"},
		"is being made": {edit: waits("ContainerCreating")},
		"not ready": {edit: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false },
			want: "probe: Deployment shop/web: its container a runs, and is not ready: its probe begins after 600 s, " +
				"and asks every 5 s; found before by workload/unready"},
		"no node": {edit: func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: "0/2 nodes"}}
		}, want: "node: Deployment shop/web: its pods find no node: 0/2 nodes; found before by no check"},
		"refused": {sets: []appsv1.ReplicaSet{failure}, want: "refused: Deployment shop/web: the API server refuses " +
			`new pods: failed calling webhook "hook"; found before by webhook/deadlock`},
	} {
		found := []finding.Finding{
			{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "other"}},
			{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "never"}},
			{ID: "node/image-absent", Subject: finding.Subject{Kind: "Image", Name: "a:1"}},
			{ID: "webhook/deadlock", Subject: finding.Subject{Kind: "ValidatingWebhookConfiguration", Name: "hook"}},
			{ID: "workload/unready", Subject: finding.Subject{Kind: "Deployment", Namespace: "shop", Name: "web"}},
			{ID: "workload/readiness", Subject: finding.Subject{Kind: "Deployment", Namespace: "shop", Name: "else"}}}
		if name == "crashes" {
			found = nil
		}
		well := Seen{Pods: []corev1.Pod{podOfWeb(nil)}}
		ill := Seen{Pods: []corev1.Pod{podOfWeb(c.edit)}, ReplicaSets: c.sets}
		for when, looks := range map[string]struct {
			first, then Seen
			after       time.Duration
			of          string
			shown       bool
		}{
			"lasts":     {well, ill, Lasts, "shop", true},
			"ends":      {well, ill, Lasts - time.Second, "shop", false},
			"was there": {ill, ill, 2 * Lasts, "shop", c.deny != ""}, // denied by a run that looks came before
			"is of others": {well, ill, Lasts, "else",
				slices.Contains([]string{"denied", "no image", "crashes", "refused"}, name)},
		} {
			w := Watch{Users: map[string]bool{looks.of: true}}
			look := func(s Seen, at time.Duration) { s.At = start.Add(at); w.Look(s) }
			look(looks.first, 0)
			if c.deny != "" {
				w.Denied("shop", "web-1-a", c.deny)
			}
			look(looks.then, time.Second)
			look(looks.then, time.Second+looks.after)
			look(Seen{}, time.Second+looks.after+time.Second) // what is shown stays
			look(well, 5*Lasts)
			var said []string
			for _, one := range w.Shown(found) {
				said = append(said,
					strings.NewReplacer("the run showed a trap (", "", "): ", ": ").Replace(one.String()))
			}
			want := ""
			if looks.shown {
				want = c.want
			}
			if got := strings.Join(said, "\n"); got != want {
				t.Errorf("%s, %s: %s\nwant %s", name, when, got, want)
			}
		}
	}
}

// TestShownAgain: a pod that was denied and then evicted is not shown, nor is a trouble that comes and goes.
func TestShownAgain(t *testing.T) {
	w, at := Watch{Users: map[string]bool{"shop": true}}, time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	w.Denied("shop", "web-1-a", "")
	w.Denied("shop", "gone", "")
	for i := range 10 {
		pod := podOfWeb(nil)
		if i%2 == 1 {
			pod = podOfWeb(deleted)
		}
		w.Look(Seen{At: at.Add(time.Duration(i) * (Lasts - time.Second)), Pods: []corev1.Pod{pod}})
	}
	if got := w.Shown(nil); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
