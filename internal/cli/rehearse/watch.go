package rehearse

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	lock  sync.Mutex
	watch rehearsal.Watch
	// off says that a run with a fault is under way: its troubles are of the fault.
	off bool
}

// watching looks at the pods of the copy until it is stopped.
func watching(ctx context.Context, client *kube.Client, made *rehearsal.Copy) (w *watcher, stop func()) {
	w = &watcher{watch: rehearsal.Watch{Users: map[string]bool{}}}
	for _, one := range made.Workloads {
		w.watch.Users[one.Namespace] = true
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			if now, err := seen(ctx, client); err == nil { // one that failed shows nothing
				w.look(now)
			}
			if outage.Sleep(ctx, lookEvery) != nil {
				return
			}
		}
	})
	return w, func() { cancel(); done.Wait() }
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
	return rehearsal.Seen{At: time.Now(), Pods: pods.Items, ReplicaSets: sets.Items}, nil
}

func (w *watcher) look(now rehearsal.Seen) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.off {
		w.watch.Look(now)
	}
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
