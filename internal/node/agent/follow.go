package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	// watchTimeout is the longest time of one watch. The next one goes on after its last event.
	watchTimeout = 10 * time.Minute
	// watchSilence is how long a watch may bring nothing. The API server sends a bookmark every minute, so a watch
	// without one is dead, although its connection answers: client-go ends a connection that does not, within 45 s.
	watchSilence = 75 * time.Second
)

// follow calls changed with all objects that the options select, at first and whenever one of them has
// changed, until the context ends. It lists again after any failure, a second later at most, so that a task
// does not wait for a back-off that an outage has grown.
func (a *Agent) follow(ctx context.Context, what string, client dynamic.ResourceInterface, options metav1.ListOptions,
	changed func(map[string]*unstructured.Unstructured)) {
	trouble := trouble{log: a.Log, what: "cannot follow " + what}
	for ctx.Err() == nil {
		err := followOnce(ctx, client, options, changed)
		trouble.note(ctx, err)
		if err != nil {
			_ = outage.Sleep(ctx, retryInterval)
		}
	}
}

// followOnce lists, and watches until a watch cannot go on after the one before. That is no error if one has brought
// nothing for too long.
func followOnce(ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions,
	changed func(map[string]*unstructured.Unstructured)) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	list, err := client.List(call, options)
	cancel()
	if err != nil {
		return err
	}
	f := followed{client: client, options: options, changed: changed, objects: map[string]*unstructured.Unstructured{}}
	for i := range list.Items {
		f.objects[list.Items[i].GetName()] = &list.Items[i]
	}
	changed(f.objects)

	f.options.ResourceVersion, f.options.AllowWatchBookmarks = list.GetResourceVersion(), true
	for ctx.Err() == nil {
		begun := time.Now()
		if goesOn, err := f.watch(ctx); err != nil || !goesOn {
			return err
		}
		if time.Since(begun) < retryInterval {
			_ = outage.Sleep(ctx, retryInterval)
		}
	}
	return nil
}

// followed are the objects that are followed. The version in the options is that of the last event.
type followed struct {
	client  dynamic.ResourceInterface
	options metav1.ListOptions
	changed func(map[string]*unstructured.Unstructured)
	objects map[string]*unstructured.Unstructured
}

// watch takes events over until the watch ends. goesOn is true if another one can go on after the last event.
func (f *followed) watch(ctx context.Context) (goesOn bool, err error) {
	// Agents that begin at the same moment must not watch again at the same moment.
	limit := watchTimeout/2 + spread(watchTimeout/2)
	f.options.TimeoutSeconds = new(int64(limit / time.Second))
	ctx, cancel := context.WithTimeout(ctx, limit+callTimeout)
	defer cancel()
	silence := time.AfterFunc(watchSilence, cancel) // the API server may be silent from the start
	defer silence.Stop()
	events, err := f.client.Watch(ctx, f.options)
	if err != nil {
		return false, err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case event, more := <-events.ResultChan():
			if !more {
				return f.options.ResourceVersion != "", nil
			}
			if event.Type == watch.Error {
				return false, apierrors.FromObject(event.Object)
			}
			silence.Reset(watchSilence)
			f.apply(event)
		}
	}
}

// apply takes an event over.
func (f *followed) apply(event watch.Event) {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	f.options.ResourceVersion = object.GetResourceVersion()
	switch event.Type {
	case watch.Added, watch.Modified:
		f.objects[object.GetName()] = object
	case watch.Deleted:
		delete(f.objects, object.GetName())
	default: // a bookmark
		return
	}
	f.changed(f.objects)
}

// decode reads an object into its type, by way of JSON, which keeps raw JSON as it is.
func decode(object *unstructured.Unstructured, into any) error {
	encoded, err := object.MarshalJSON()
	if err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if err := json.Unmarshal(encoded, into); err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
