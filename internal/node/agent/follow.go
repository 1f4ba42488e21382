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

// followOnce lists and watches until the watch ends, which is no error.
func followOnce(ctx context.Context, client dynamic.ResourceInterface, options metav1.ListOptions,
	changed func(map[string]*unstructured.Unstructured)) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	list, err := client.List(call, options)
	cancel()
	if err != nil {
		return err
	}
	objects := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		objects[list.Items[i].GetName()] = &list.Items[i]
	}
	changed(objects)

	options.ResourceVersion = list.GetResourceVersion()
	options.TimeoutSeconds = new(int64(watchTimeout / time.Second))
	ctx, cancel = context.WithTimeout(ctx, watchTimeout+callTimeout)
	defer cancel()
	events, err := client.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, more := <-events.ResultChan():
			if !more {
				return nil
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			apply(objects, event)
			changed(objects)
		}
	}
}

// apply takes an event over into the objects.
func apply(objects map[string]*unstructured.Unstructured, event watch.Event) {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		objects[object.GetName()] = object
	case watch.Deleted:
		delete(objects, object.GetName())
	}
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
