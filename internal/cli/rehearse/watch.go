package rehearse

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/step"
)

// lookEvery is the time between two looks at the pods of the copy.
const lookEvery = 2 * time.Second

// watcher looks at the pods of the copy while changes run.
type watcher struct {
	lock    sync.Mutex
	watch   rehearsal.Watch
	talk    rehearsal.Talk
	ears    *ears
	maxLost int64 // of the change
	// off says that a run with a fault is under way: its troubles are of the fault.
	off bool
}

// watching looks at the pods of the copy until it is stopped.
// unlike are its connections that are not compared, by their places.
func watching(ctx context.Context, client *kube.Client, made *rehearsal.Copy,
	unlike map[int]string) (w *watcher, stop func()) {
	w = &watcher{watch: rehearsal.Watch{Users: map[string]bool{}}, talk: *made.NewTalk(unlike)}
	w.ears = newEars(client, made, w.answered)
	for _, one := range made.Workloads {
		w.watch.Users[one.Namespace] = true
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			if now, err := seen(ctx, client); err == nil { // one that failed shows nothing
				w.look(now)
				w.ears.follow(ctx, now.Pods)
			}
			if outage.Sleep(ctx, lookEvery) != nil {
				return
			}
		}
	})
	return w, func() { cancel(); done.Wait(); w.ears.done.Wait() }
}

func seen(ctx context.Context, client *kube.Client) (now rehearsal.Seen, err error) {
	ctx, cancel := client.Call(ctx)
	defer cancel()
	pods, err := client.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, err
	}
	sets, err := client.Typed.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, err
	}
	pods.Items = slices.DeleteFunc(pods.Items,
		func(p corev1.Pod) bool { return p.Namespace == v1alpha1.Namespace }) // Theseus' own
	events, err := client.Typed.CoreV1().Events("").List(ctx,
		metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
	if err != nil {
		return now, err
	}
	now = rehearsal.Seen{Pods: pods.Items, ReplicaSets: sets.Items, Events: events.Items}
	if len(events.Items) > 0 {
		err = refusers(ctx, client, &now)
	}
	now.At = time.Now()
	return now, err
}

// refusers reads the workloads that say only in events that their pods are refused.
func refusers(ctx context.Context, client *kube.Client, now *rehearsal.Seen) error {
	stateful, err := client.Typed.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	daemons, err := client.Typed.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	jobs, err := client.Typed.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	now.StatefulSets, now.DaemonSets, now.Jobs = stateful.Items, daemons.Items, jobs.Items
	return nil
}

func (w *watcher) look(now rehearsal.Seen) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.off {
		w.watch.Look(now)
		w.talk.Look(now)
	}
}

// answered takes in what a stand-in saw of a connection at a time.
func (w *watcher) answered(at time.Time, pod types.UID, number int, through bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.off {
		w.talk.Answer(at, pod, number, through)
	}
}

// hearing bounds the wait for stand-ins to have opened each of their connections a few times.
const hearing = 40 * time.Second

// hear waits until stand-ins have opened each of their connections a few times from now on. Those that are not heard of
// in time are not compared (Begin, End).
func (w *watcher) hear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hearing)
	defer cancel()
	heard := func(begin bool) bool {
		w.lock.Lock()
		defer w.lock.Unlock()
		if begin {
			w.talk.Listen(time.Now())
		}
		return w.talk.Heard()
	}
	for all := heard(true); !all && outage.Sleep(ctx, time.Second/2) == nil; {
		all = heard(false)
	}
}

// begin says that the change begins.
func (w *watcher) begin() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.talk.Begin()
}

// final says that the run to the end begins.
func (w *watcher) final() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.talk.Final(time.Now())
}

// ended is what became of the connections when nothing is looked at any more.
func (w *watcher) ended() []rehearsal.Asked {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.talk.End()
	w.watch.Heard(w.talk.Asked())
	return w.talk.Asked()
}

// wrong says what is wrong with the connections so far; empty if nothing is.
func (w *watcher) wrong() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return rehearsal.TalkWrong(w.talk.Asked(), w.maxLost)
}

// denied takes in that a budget denies an eviction.
func (w *watcher) denied(pod *corev1.Pod, why string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.off {
		w.watch.Denied(time.Now(), pod, why)
	}
}

// pause takes in nothing until resume, which begins anew: what is there then is not of the runs that follow.
func (w *watcher) pause() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.off = true
}

func (w *watcher) resume() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.off = false
	w.watch.Again()
	w.talk.Again()
}

// shown is what lasted until now.
func (w *watcher) shown(found []finding.Finding) []rehearsal.Shown {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.watch.Shown(found)
}

// hurry shortens the timeouts of evictions to what a person wants to wait for, 0 for as long as the plan does.
func hurry(p *plan.Plan, patience time.Duration) *plan.Plan {
	if patience == 0 {
		return p
	}
	for i := range p.Steps {
		for _, actions := range [][]step.Action{p.Steps[i].Actions, p.Steps[i].Undo} {
			for j := range actions {
				if actions[j].Op() == step.OpEvict {
					actions[j].Timeout = min(actions[j].Timeout, step.Duration(patience))
				}
			}
		}
	}
	p.Hash = plan.Hash(p)
	return p
}
