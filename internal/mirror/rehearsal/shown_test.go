package rehearsal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	failure := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: new(true)}}},
		Status: appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			Message: `failed calling webhook "hook.a.io"`}}}}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		sets []appsv1.ReplicaSet
		deny string
		want string
	}{
		"nothing": {},
		"denied": {deny: "The disruption budget never needs 2 healthy pods and has 2 currently", want: "budget: " +
			"Deployment shop/web: a PodDisruptionBudget denies the eviction of its pods: The disruption budget never " +
			"needs 2 healthy pods and has 2 currently; already reported by pdb/blocks"},
		"runs on": {edit: deleted, want: "drain: Deployment shop/web: its deleted pods do not terminate; their grace " +
			"period is 3600 s; no check had reported it"},
		"held": {edit: func(p *corev1.Pod) {
			deleted(p)
			p.Finalizers, p.Status.Phase = []string{HeldPrefix + "sink"}, corev1.PodSucceeded
		}, want: "finalizer: Deployment shop/web: its deleted pods have terminated but remain: nothing removes the " +
			"finalizer rehearsal.theseus.dev/sink; no check had reported it"},
		"ends": {edit: func(p *corev1.Pod) { // the API server is about to remove it
			deleted(p)
			p.Status.Phase = corev1.PodSucceeded
		}},
		"no image": {edit: waits("ImagePullBackOff"), want: "image: Deployment shop/web: the image a:1 cannot be " +
			"pulled; already reported by agent/image, node/image-absent"},
		"crashes": {edit: waits("CrashLoopBackOff"), want: "start: Deployment shop/web: its container a does not " +
			"start: CrashLoopBackOff: why; no check had reported it"},
		"is being made": {edit: waits("ContainerCreating")},
		"not ready": {edit: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false },
			want: "probe: Deployment shop/web: its container a runs but is not ready: the probe starts after 600 s " +
				"and repeats every 5 s; already reported by workload/unready"},
		"no node": {edit: func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: "0/2 nodes"}}
		}, want: "node: Deployment shop/web: its pods cannot be scheduled: 0/2 nodes; no check had reported it"},
		"refused": {sets: []appsv1.ReplicaSet{failure}, want: "refused: Deployment shop/web: the API server refuses " +
			`new pods: failed calling webhook "hook.a.io"; already reported by webhook/deadlock`},
	} {
		found := []finding.Finding{
			{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "other"}},
			{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "never"}},
			{ID: "node/image-absent", Subject: finding.Subject{Kind: "Image", Name: "a:1"}},
			{ID: "agent/image", Subject: finding.Subject{Kind: "Change"}, Message: "no image a:1, and"},
			{ID: "webhook/deadlock", Subject: finding.Subject{Kind: "ValidatingWebhookConfiguration", Name: "hook"},
				Evidence: map[string]any{"webhook": "hook.a.io"}},
			{ID: "workload/unready", Subject: finding.Subject{Kind: "Deployment", Namespace: "shop", Name: "web"}}}
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
			look := func(s Seen, at time.Duration) { s.At = noon.Add(at); w.Look(s) }
			look(looks.first, 0)
			for at := time.Duration(0); at <= looks.after; at += time.Second {
				if c.deny != "" {
					w.Denied(noon.Add(at), &looks.then.Pods[0], c.deny)
				}
				look(looks.then, time.Second+at)
			}
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

// watched looks at pods of shop every 2 s, from a time to another.
func watched(w *Watch, from, to time.Duration, pods func(at time.Duration) []corev1.Pod) {
	w.Users = map[string]bool{"shop": true}
	for at := from; at <= to; at += 2 * time.Second {
		w.Look(Seen{At: noon.Add(at), Pods: pods(at)})
	}
}

// podsOf are pods of web, each with its UID.
func podsOf(edit func(*corev1.Pod), uids ...string) (all []corev1.Pod) {
	for _, uid := range uids {
		pod := podOfWeb(edit)
		pod.UID = types.UID(uid)
		all = append(all, pod)
	}
	return all
}

// TestNotShown: troubles that each pod ends in time, that come and go since before the change, or that nobody saw
// last, are not shown.
func TestNotShown(t *testing.T) {
	unready := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }
	crashed := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			FinishedAt: metav1.NewTime(noon.Add(-time.Minute))}
	}
	backOff := waits("CrashLoopBackOff")
	turn := func(at time.Duration) string { return fmt.Sprint(int(at / (20 * time.Second))) }
	for name, pods := range map[string]func(at time.Duration) []corev1.Pod{
		"pods that end one after another": func(at time.Duration) []corev1.Pod {
			if at == 0 {
				return podsOf(nil, "0")
			}
			return podsOf(deleted, turn(at))
		},
		"pods that start one after another": func(at time.Duration) []corev1.Pod {
			if at == 0 {
				return podsOf(nil, "0")
			}
			return podsOf(unready, turn(at))
		},
		"containers that start one after another": func(at time.Duration) []corev1.Pod {
			pod := podOfWeb(nil)
			first := pod.Status.ContainerStatuses[0]
			second := pod.Spec.Containers[0]
			second.Name = "b"
			pod.Spec.Containers = append(pod.Spec.Containers, second)
			first.Ready = at == 0 || at > 30*time.Second
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{first, first}
			pod.Status.ContainerStatuses[1].Name = "b"
			pod.Status.ContainerStatuses[1].Ready = at <= 30*time.Second || at > time.Minute
			return []corev1.Pod{pod}
		},
		"it crashed before": func(at time.Duration) []corev1.Pod {
			if at > 0 && at < 10*time.Second || at >= 2*time.Minute && at < 200*time.Second {
				return podsOf(nil, "0")
			}
			return podsOf(backOff, "0")
		},
		"it had crashed, and ran at the first look": func(at time.Duration) []corev1.Pod {
			if at < 10*time.Second {
				return podsOf(crashed, "0")
			}
			return podsOf(backOff, "0")
		},
		"it is gone for a while": func(at time.Duration) []corev1.Pod {
			if at == 0 || at > 2*Lasts {
				return podsOf(backOff, turn(at/10))
			}
			return nil
		},
	} {
		var w Watch
		watched(&w, 0, 6*time.Minute, pods)
		if got := w.Shown(nil); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	var w Watch
	watched(&w, 0, 0, func(time.Duration) []corev1.Pod { return podsOf(nil, "0") })
	stuck := func(time.Duration) []corev1.Pod { return podsOf(deleted, "0") }
	watched(&w, 2*time.Second, 30*time.Second, stuck)
	watched(&w, 2*time.Minute, 2*time.Minute+30*time.Second, stuck) // the API server was away, and knows no better
	if got := w.Shown(nil); len(got) > 0 {
		t.Errorf("nobody looked: %+v", got)
	}
	watched(&w, 152*time.Second, 3*time.Minute, stuck)
	if got := w.Shown(nil); len(got) != 1 {
		t.Errorf("it lasted: %+v", got)
	}
}

// TestAgain: what is there when a watch begins again is not of the runs after it; what was shown stays, and what comes
// after is shown.
func TestAgain(t *testing.T) {
	var w Watch
	of := func(edit func(*corev1.Pod)) func(time.Duration) []corev1.Pod {
		return func(time.Duration) []corev1.Pod { return podsOf(edit, "0") }
	}
	pod := podOfWeb(nil)
	watched(&w, 0, 0, of(nil))
	watched(&w, 2*time.Second, time.Minute, of(deleted))
	w.Denied(noon.Add(50*time.Second), &pod, "")
	w.Again()
	watched(&w, 62*time.Second, 3*time.Minute, of(waits("ImagePullBackOff")))
	for at := range 40 {
		w.Denied(noon.Add(time.Minute+time.Duration(at)*time.Second), &pod, "")
	}
	if got := w.Shown(nil); len(got) != 1 || got[0].Trap != TrapDrain {
		t.Errorf("%+v", got)
	}
	watched(&w, 182*time.Second, 5*time.Minute, of(waits("CrashLoopBackOff")))
	if got := w.Shown(nil); len(got) != 2 || got[1].Trap != TrapStart {
		t.Errorf("%+v", got)
	}
}

// TestDeniedOnce: only denials that go on for long are shown, each of one pod.
func TestDeniedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		times []int // in seconds
		pods  int
		shown bool
	}{
		"once":                 {[]int{0}, 1, false},
		"and again much later": {[]int{0, 100}, 1, false},
		"goes on":              {[]int{0, 15, 30, 45}, 1, true},
		"ends before":          {[]int{0, 15, 30, 44}, 1, false},
		"pauses":               {[]int{0, 15, 31, 45}, 1, false},
		"one after another":    {[]int{0, 15, 30, 45, 60, 75}, 2, false},
	} {
		var w Watch
		for i, at := range c.times {
			pod := podOfWeb(nil)
			pod.UID = types.UID(fmt.Sprint(i * c.pods / len(c.times)))
			w.Denied(noon.Add(time.Duration(at)*time.Second), &pod, "")
		}
		look := Seen{At: noon.Add(5 * time.Minute), Pods: []corev1.Pod{podOfWeb(nil)}}
		for range 100 { // the pod stays
			w.Look(look)
			look.At = look.At.Add(2 * time.Second)
		}
		if got := w.Shown(nil); len(got) > 0 != c.shown {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestReported: a check has reported only what its finding is about.
func TestReported(t *testing.T) {
	denied := "a PodDisruptionBudget denies the eviction of its pods: The disruption budget never needs 2 healthy pods"
	refused := `the API server refuses new pods: Internal error occurred: failed calling webhook "hook.a.io": away`
	for _, c := range []struct {
		trap Trap
		what string
		f    finding.Finding
		want bool
	}{
		{TrapBudget, denied, finding.Finding{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget",
			Namespace: "shop", Name: "never"}}, true},
		{TrapBudget, denied, finding.Finding{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget",
			Namespace: "shop", Name: "healthy"}}, false},
		{TrapBudget, denied, finding.Finding{ID: "pdb/blocks", Subject: finding.Subject{Kind: "PodDisruptionBudget",
			Namespace: "else", Name: "never"}}, false},
		{TrapImage, "the image a:1 cannot be pulled", finding.Finding{ID: "node/image-absent",
			Subject: finding.Subject{Kind: "Image", Name: "b/a:1"}}, false},
		{TrapImage, "the image a:1 cannot be pulled", finding.Finding{ID: "agent/image",
			Subject: finding.Subject{Kind: "Change"}, Message: "no image b:1, and"}, false},
		{TrapRefused, refused, finding.Finding{ID: "webhook/deadlock", Subject: finding.Subject{
			Kind: "ValidatingWebhookConfiguration", Name: "a"}, Evidence: map[string]any{"webhook": "hook.a.io"}},
			true},
		{TrapRefused, refused, finding.Finding{ID: "webhook/deadlock", Subject: finding.Subject{
			Kind: "ValidatingWebhookConfiguration", Name: "a"}, Evidence: map[string]any{"webhook": "a.io"}}, false},
		{TrapRefused, "exceeded quota", finding.Finding{ID: "webhook/deadlock", Subject: finding.Subject{
			Kind: "ValidatingWebhookConfiguration", Name: "a"}}, false},
		{TrapNode, "its pods cannot be scheduled: 0/2", finding.Finding{ID: "labels/removed-in-use",
			Subject: finding.Subject{Kind: "Label", Name: "disk"}}, false},
		{TrapNode, "its pods cannot be scheduled: 0/2", finding.Finding{ID: "labels/removed-in-use",
			Subject: finding.Subject{Kind: "Deployment", Namespace: "shop", Name: "web"}}, true},
		{TrapNode, "its pods cannot be scheduled: 0/2", finding.Finding{ID: "labels/removed-in-use",
			Severity: finding.Info, Subject: finding.Subject{Kind: "Deployment", Namespace: "shop", Name: "web"}},
			false},
		{TrapNode, "its pods cannot be scheduled: 0/2", finding.Finding{ID: "node/capacity",
			Subject: finding.Subject{Kind: "Node", Name: "0/2"}}, false},
	} {
		var w Watch
		w.show(Shown{Trap: c.trap, Object: "Deployment shop/web", What: c.what})
		if got := w.Shown([]finding.Finding{c.f}); len(got) != 1 || len(got[0].Checks) > 0 != c.want {
			t.Errorf("%s of %s: %v", c.f.ID, c.f.Subject, got)
		}
	}
}

// TestSlowHook: a pod that sleeps before it stops, and wakes in its grace period, is no trouble until it should have
// ended.
func TestSlowHook(t *testing.T) {
	for name, c := range map[string]struct {
		sleep, grace int64
		until        time.Duration // no trap is shown before
	}{
		"in time":    {60, 90, time.Minute + Lasts},
		"too late":   {90, 90, Lasts},
		"far too":    {3000, 3600, Lasts},
		"no hook":    {0, 90, Lasts},
		"ten minute": {600, 700, 10*time.Minute + Lasts},
	} {
		pod := podOfWeb(func(p *corev1.Pod) {
			p.DeletionTimestamp = new(metav1.NewTime(noon.Add(time.Duration(c.grace) * time.Second)))
			p.DeletionGracePeriodSeconds = &c.grace
			if c.sleep > 0 {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
					Sleep: &corev1.SleepAction{Seconds: c.sleep}}}
			}
		})
		w := Watch{Users: map[string]bool{"shop": true}}
		w.Look(Seen{At: noon.Add(-time.Second)})
		for at := time.Duration(0); at <= c.until; at += time.Second {
			w.Look(Seen{At: noon.Add(at), Pods: []corev1.Pod{pod}})
			if shown := len(w.Shown(nil)) > 0; shown != (at >= c.until) {
				t.Errorf("%s: after %s, a trap is shown: %v", name, at, shown)
				break
			}
		}
	}
}

// TestRefusedByEvents: StatefulSets, DaemonSets and Jobs say in events that the API server refuses their pods. Old
// events, other failures, and workloads with all their pods are no trouble.
func TestRefusedByEvents(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}
	}
	event := func(of, why string, age time.Duration) corev1.Event {
		return corev1.Event{Reason: "FailedCreate", Message: why, InvolvedObject: corev1.ObjectReference{
			UID: types.UID(of)}, LastTimestamp: metav1.NewTime(noon.Add(-age))}
	}
	const hook = `failed calling webhook "hook.a.io": no answer`
	set := appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2))},
		Status: appsv1.StatefulSetStatus{Replicas: 1}}
	whole := *set.DeepCopy()
	whole.Status.Replicas = 2
	daemon := appsv1.DaemonSet{ObjectMeta: meta("log"), Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2}}
	job := batchv1.Job{ObjectMeta: meta("sum")}
	refusedJob := func(edit func(*batchv1.Job)) Seen {
		one := job.DeepCopy()
		edit(one)
		return Seen{Jobs: []batchv1.Job{*one}, Events: []corev1.Event{event("sum", hook, 0)}}
	}
	finished := func(condition batchv1.JobConditionType, status corev1.ConditionStatus) Seen {
		return refusedJob(func(one *batchv1.Job) {
			one.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: status}}
		})
	}
	for name, c := range map[string]struct {
		seen Seen
		want string
	}{
		"StatefulSet": {Seen{StatefulSets: []appsv1.StatefulSet{set}, Events: []corev1.Event{event("db", hook, 0)}},
			"StatefulSet shop/db"},
		"DaemonSet": {Seen{DaemonSets: []appsv1.DaemonSet{daemon}, Events: []corev1.Event{event("log",
			`pods "log-" is forbidden: exceeded quota`, 0)}}, "DaemonSet shop/log"},
		"Job": {Seen{Jobs: []batchv1.Job{job}, Events: []corev1.Event{event("sum",
			`admission webhook "a" denied the request`, 0)}}, "Job shop/sum"},
		"Job that is complete":   {finished(batchv1.JobComplete, corev1.ConditionTrue), ""},
		"Job that failed":        {finished(batchv1.JobFailed, corev1.ConditionTrue), ""},
		"Job that is suspended":  {finished(batchv1.JobSuspended, corev1.ConditionTrue), ""},
		"Job that was suspended": {finished(batchv1.JobSuspended, corev1.ConditionFalse), "Job shop/sum"},
		"Job that is nearly done": {refusedJob(func(one *batchv1.Job) {
			one.Spec.Parallelism, one.Spec.Completions = new(int32(3)), new(int32(5))
			one.Status.Succeeded, one.Status.Active = 4, 1
		}), ""},
		"Job with more to do": {refusedJob(func(one *batchv1.Job) {
			one.Spec.Parallelism, one.Spec.Completions = new(int32(3)), new(int32(5))
			one.Status.Succeeded, one.Status.Active = 3, 1
		}), "Job shop/sum"},
		"Job of which one succeeded": {refusedJob(func(one *batchv1.Job) {
			one.Spec.Parallelism = new(int32(3))
			one.Status.Succeeded, one.Status.Active = 1, 1
		}), ""},
		"whole": {Seen{StatefulSets: []appsv1.StatefulSet{whole}, Events: []corev1.Event{event("db", hook, 0)}}, ""},
		"old": {Seen{StatefulSets: []appsv1.StatefulSet{set},
			Events: []corev1.Event{event("db", hook, refusedLately)}}, ""},
		"others": {Seen{StatefulSets: []appsv1.StatefulSet{set}, Events: []corev1.Event{event("web", hook, 0)}}, ""},
		"exists": {Seen{StatefulSets: []appsv1.StatefulSet{set},
			Events: []corev1.Event{event("db", "object is being deleted: pods already exists", 0)}}, ""},
	} {
		w := Watch{}
		w.Look(Seen{At: noon.Add(-time.Second)})
		for at := time.Duration(0); at <= Lasts; at += time.Second {
			c.seen.At = noon.Add(at)
			w.Look(c.seen)
		}
		var got string
		for _, one := range w.Shown(nil) {
			got += one.Object
			if one.Trap != TrapRefused {
				t.Errorf("%s: %v", name, one)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
