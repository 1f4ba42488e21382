package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	// soon is how long a reader waits for the next event of a watch, before it asks for the versions of all objects.
	soon = poll / 2
	// catchUp is how long a reader waits for a watch that is behind, and firstSync for one that has just begun.
	catchUp, firstSync = 5 * time.Second, callTimeout
	// watchPage is how many objects one page of the first list has, where the API server does not stream them.
	watchPage = 100
	// rewatch is the time between two tries to watch.
	rewatch = time.Second
	// glance is the time between two looks at what a watch has brought.
	glance = 10 * time.Millisecond
)

// Follow keeps the probe plans and the reports of the probes by a watch, from their first use until stop is called. A
// look at them then costs what has changed since the one before; without Follow, each look lists all of them. Looks
// return the same as a list by the API server would, or fail like that. Agents' answers to tasks come by a watch too;
// without Follow, each task is read again and again.
func (a *Actor) Follow(ctx context.Context, client *Client) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	running := &sync.WaitGroup{}
	begin := func(kind string, list, example runtime.Object, keep cache.TransformFunc) *watched {
		w, failed := newWatched(client.Config, kind, list, example, keep)
		err = errors.Join(err, failed)
		w.say = a.Note
		w.run = func(reflector *cache.Reflector) {
			running.Go(func() { reflector.RunWithContext(klog.NewContext(ctx, klog.Logger{})) })
		}
		return w
	}
	plans := begin("ProbePlan", &objects[planObject]{}, &planObject{}, bare)
	reports := begin("ProbeReport", &objects[reportObject]{}, &reportObject{}, func(object any) (any, error) {
		if report, ok := object.(*reportObject); ok {
			a.complete(report)
		}
		return bare(object)
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch the probes: %w", err)
	}
	reports.watch = reports.watchShort
	a.plans, a.reports = plans, reports
	a.answers.say = a.Note
	a.answers.begin = func(version string) (watch.Interface, error) { return a.watchTasks(ctx, version) }
	return func() {
		cancel()
		running.Wait()
		a.answers.running.Wait()
	}, nil
}

// watched has all objects of one of Theseus' own kinds. client-go's reflector keeps them by a watch. Readers share the
// objects, and must not change them.
type watched struct {
	kind      string
	store     cache.Store
	reflector *cache.Reflector
	heads     metadata.ResourceInterface
	list      func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch     func(context.Context, metav1.ListOptions) (watch.Interface, error)
	run       func(*cache.Reflector)
	begun     sync.Once

	say func(string) // may be nil

	proving sync.Mutex // held by the reader that asks for a proof; the others share it
	lock    sync.Mutex
	behind  bool      // the last reader had to list
	told    bool      // that the watch does not work
	proven  time.Time // when the store was last known to be current
}

func newWatched(config *rest.Config, kind string, list, example runtime.Object,
	keep cache.TransformFunc) (*watched, error) {
	gv := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	known := runtime.NewScheme()
	known.AddKnownTypeWithName(gv.WithKind(kind), example)
	known.AddKnownTypeWithName(gv.WithKind(kind+"List"), list)
	metav1.AddToGroupVersion(known, gv)
	w := &watched{kind: kind, store: cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithTransformer(keep))}
	heads, err := metadata.NewForConfig(config)
	if err != nil {
		return w, err
	}
	w.heads = heads.Resource(gv.WithResource(manifest.Plural(kind))).Namespace(v1alpha1.Namespace)
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return w, err
	}
	get := func(options metav1.ListOptions) *rest.Request {
		return client.Get().Namespace(v1alpha1.Namespace).Resource(manifest.Plural(kind)).VersionedParams(&options,
			metav1.ParameterCodec)
	}
	w.list = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if options.ResourceVersion == "0" {
			options.ResourceVersion = "" // what the cluster has, not what a cache of the API server had once
		}
		return get(options).Do(ctx).Get()
	}
	w.watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return get(options).Watch(ctx)
	}
	w.reflector = cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return w.list(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := w.watch(ctx, options)
			w.refused(err)
			return events, err
		},
	}, example, w.store, cache.ReflectorOptions{Name: kind, Backoff: &wait.Backoff{Duration: rewatch, Jitter: 0.2}})
	w.reflector.WatchListPageSize = watchPage
	return w, nil
}

// refused says that a watch is not allowed. The reflector lists every rewatch then.
func (w *watched) refused(err error) {
	if apierrors.IsForbidden(err) {
		w.lock.Lock()
		defer w.lock.Unlock()
		w.tell(err.Error())
	}
}

// current returns all objects as they are now: everything that was written before the call is in them. ok is false if
// the watch does not bring it in time; the reader must list then. The proof may be as old as age; what has changed
// since is then in the objects only if the watch has brought it. Readers that call at the same time share a proof that
// one of them asks for after the others have called.
//
// The proof is the revision of the API server at the time of the call: events come in order, so one of that revision or
// later says that the watch has brought all before it. While no events come, the versions of all objects are compared.
func (w *watched) current(ctx context.Context, age time.Duration) (objects []any, ok bool, err error) {
	since := time.Now().Add(-age)
	if fresh, _ := w.provenAfter(since); fresh {
		return w.store.List(), true, nil
	}
	w.proving.Lock()
	defer w.proving.Unlock()
	fresh, behind := w.provenAfter(since)
	if fresh {
		return w.store.List(), true, nil
	}
	now := time.Now()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// no object: the revision only
	latest, err := w.heads.List(call, metav1.ListOptions{FieldSelector: "metadata.name=-"})
	if err != nil {
		return nil, false, err
	}
	w.begun.Do(func() { w.run(w.reflector) })
	reached := func() bool { return !older(w.reflector.LastSyncResourceVersion(), latest.ResourceVersion) }
	if ok, err = until(ctx, soon, reached); !ok && err == nil {
		ok, err = w.compared(ctx, behind)
	}
	if err != nil {
		return nil, false, err
	}
	if w.lag(!ok, now); !ok {
		return nil, false, nil
	}
	return w.store.List(), true, nil
}

// provenAfter reports whether the store was proven to be current after a time, and whether the last reader had to list.
func (w *watched) provenAfter(since time.Time) (fresh, behind bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.proven.After(since), w.behind
}

// lag records whether the store was behind at a time.
func (w *watched) lag(behind bool, at time.Time) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.behind = behind
	if behind {
		w.tell("it brings nothing")
	} else {
		w.proven = at
	}
}

// tell says once that the watch does not work. The caller holds the lock.
func (w *watched) tell(why string) {
	if w.told || w.say == nil {
		return
	}
	w.told = true
	w.say(fmt.Sprintf("warning: %ss cannot be watched (%s): Theseus lists them instead, which costs the API server "+
		"more", w.kind, why))
}

// compared waits until the store has the versions of all objects that the API server has now.
func (w *watched) compared(ctx context.Context, behind bool) (bool, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	heads, err := w.heads.List(call, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	patience := catchUp
	if w.reflector.LastSyncResourceVersion() == "" {
		patience = firstSync
	}
	if behind {
		patience = 0 // an earlier reader has waited for the same
	}
	return until(ctx, patience, func() bool { return w.has(heads) })
}

// has reports whether the store is not older than a list of all objects.
func (w *watched) has(list *metav1.PartialObjectMetadataList) bool {
	if w.reflector.LastSyncResourceVersion() == "" {
		return false
	}
	listed := make(map[string]string, len(list.Items))
	for i := range list.Items {
		listed[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	for _, object := range w.store.List() {
		kept, isObject := object.(metav1.Object)
		version, exists := listed[kept.GetName()]
		if !exists {
			version = list.ResourceVersion // it was made after the list, or its deletion has not come yet
		}
		if !isObject || older(kept.GetResourceVersion(), version) {
			return false
		}
		delete(listed, kept.GetName())
	}
	return len(listed) == 0
}

// older reports whether version a is before b, or cannot be compared.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order < 0
}

// until looks again and again whether something holds.
func until(ctx context.Context, patience time.Duration, holds func() bool) (bool, error) {
	for end := time.Now().Add(patience); ; {
		if holds() {
			return true, nil
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		if err := outage.Sleep(ctx, glance); err != nil {
			return false, err
		}
	}
}

// kept reads all objects of one of Theseus' own kinds from its watch, or, if there is none that is current, by a list.
// They are in the order of their names. There are none if the kind is not defined. listed is true if a list was read.
func kept[T any, O metav1.Object](ctx context.Context, a *Actor, w *watched, kind string, age time.Duration,
	value func(O) T) (all []T, listed bool, err error) {
	if w == nil {
		all, err = allOf[T](ctx, a, kind)
		return all, true, err
	}
	objects, ok, err := w.current(ctx, age)
	if err != nil {
		return nil, false, ignoreNoKind(err)
	}
	if !ok {
		all, err = allOf[T](ctx, a, kind)
		return all, true, err
	}
	slices.SortFunc(objects, func(x, y any) int { return strings.Compare(x.(O).GetName(), y.(O).GetName()) })
	for _, object := range objects {
		all = append(all, value(object.(O)))
	}
	return all, false, nil
}

// planObject and reportObject are what the reflector needs of the types of the API.
type (
	planObject   struct{ v1alpha1.ProbePlan }
	reportObject struct {
		v1alpha1.ProbeReport
		// full is the report as its agent last wrote it in full, and former what was known of it before; both are nil
		// until it is complete.
		full, former *v1alpha1.ProbeReportStatus
	}
)

// DeepCopyObject implements runtime.Object.
func (o *planObject) DeepCopyObject() runtime.Object { return copyOf(o) }

// DeepCopyObject implements runtime.Object.
func (o *reportObject) DeepCopyObject() runtime.Object { return copyOf(o) }

// objects is a list of either.
type objects[T any] struct {
	metav1.TypeMeta
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (o *objects[T]) DeepCopyObject() runtime.Object { return copyOf(o) }

// copyOf copies plain data.
func copyOf[T any](of *T) *T {
	copied := new(T)
	if err := json.Unmarshal(jsonOf(of), copied); err != nil {
		panic(fmt.Sprintf("decoding plain data: %v", err))
	}
	return copied
}

// bare removes from an object what no reader needs. Its name and version stay.
func bare(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}
