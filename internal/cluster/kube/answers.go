package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// rewatchTasks is how long a run reads its tasks after the API server has refused the watch, before it watches again:
// the user may get the right, and an API server that has just begun refuses for a moment.
const rewatchTasks = time.Minute

// answers brings what agents write to the tasks that a run waits for, by one watch of all tasks. It keeps no task: a
// run of many nodes has many of them. The zero value has no watch, and brings nothing.
type answers struct {
	// begin watches all tasks from a version on; nil if the run does not watch.
	begin func(version string) (watch.Interface, error)
	say   func(string) // may be nil

	lock    sync.Mutex
	live    bool      // the watch runs
	last    string    // the newest version that it had; "" before the first watch
	denied  time.Time // when the API server last refused the watch; each task is read again and again then
	told    bool      // that it refuses the watch
	waiting map[string]chan *v1alpha1.NodeTask
	running sync.WaitGroup
}

// watchTasks watches all tasks from a version on, until the context ends.
func (a *Actor) watchTasks(ctx context.Context, version string) (watch.Interface, error) {
	client, err := a.tasks()
	if err != nil {
		return nil, err
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // which would write to the terminal
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, options)
		}})
}

// expect returns a channel of what becomes of a task, until done is called. It has the last version alone, or nil if
// the task must be read: it was deleted, or the watch has ended. Call it before the task is created.
func (a *answers) expect(name string) (news <-chan *v1alpha1.NodeTask, done func()) {
	c := make(chan *v1alpha1.NodeTask, 1)
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]chan *v1alpha1.NodeTask{}
	}
	a.waiting[name] = c
	return c, func() {
		a.lock.Lock()
		defer a.lock.Unlock()
		delete(a.waiting, name)
	}
}

// from reports whether the watch runs. It begins one after the given version of a task if there is none, but never
// after an older one than the watch before: the API server may have forgotten what came then. All others that wait may
// have missed something, and read their tasks.
func (a *answers) from(version string) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.live || a.begin == nil || time.Since(a.denied) < rewatchTasks || a.last != "" && !older(a.last, version) {
		return a.live
	}
	events, err := a.begin(version)
	if err != nil {
		return false
	}
	a.live, a.last = true, version
	for _, c := range a.waiting {
		replace(c, nil)
	}
	a.running.Go(func() { a.read(events) })
	return true
}

// read passes events on until the watch ends: with the run, since it is not allowed, or since the API server does not
// have the version any more after which it must go on.
func (a *answers) read(events watch.Interface) {
	defer events.Stop()
	for event := range events.ResultChan() {
		object, is := event.Object.(*unstructured.Unstructured)
		a.lock.Lock()
		if !is {
			a.refused(apierrors.FromObject(event.Object))
			a.lock.Unlock()
			continue
		}
		a.last = object.GetResourceVersion()
		if c := a.waiting[object.GetName()]; c != nil {
			task, err := toTask(object)
			if err != nil || event.Type == watch.Deleted {
				task = nil // its reader finds the same, and says it
			}
			replace(c, task)
		}
		a.lock.Unlock()
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	a.live = false
	for _, c := range a.waiting {
		replace(c, nil)
	}
}

// refused says once that a watch is not allowed. The caller holds the lock.
func (a *answers) refused(err error) {
	if !apierrors.IsForbidden(err) {
		return
	}
	if a.denied = time.Now(); !a.told && a.say != nil {
		a.told = true
		a.say(fmt.Sprintf("warning: NodeTasks cannot be watched (%v): Theseus polls each task instead, which "+
			"loads the API server more, and retries the watch every %s", err, rewatchTasks))
	}
}

// replace puts a value into a channel that has room for one. There is one writer at a time.
func replace(c chan *v1alpha1.NodeTask, task *v1alpha1.NodeTask) {
	select {
	case <-c:
	default:
	}
	c <- task
}
