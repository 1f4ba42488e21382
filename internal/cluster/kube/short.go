package kube

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

const (
	// mostEvents is how many events of a watch are taken at a time, and mostReads how many reports are then read at
	// the same time.
	mostEvents, mostReads = 256, 8
)

// watchShort watches reports by their metadata, in which the short ones are, and reads those that were written in full.
// Its events are those of reports, in the same order and of the same versions. The content may be newer than its
// version, never older.
func (w *watched) watchShort(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil { // the metadata alone; the reflector lists instead
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Group, Kind: w.kind}, "", nil)
	}
	heads, err := w.heads.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	go func() { // ends with the context, or with the watch of the metadata
		defer close(events)
		defer heads.Stop()
		for some := range batches(ctx, heads.ResultChan()) {
			if w.fill(ctx, some) != nil {
				return // the reflector watches again from the last event that it has
			}
			for _, event := range some {
				if event.Object == nil {
					continue // it was deleted meanwhile, as a later event says
				}
				select {
				case events <- event:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return &filled{events, cancel}, nil
}

// filled is a watch whose events are made by watchShort.
type filled struct {
	events chan watch.Event
	cancel context.CancelFunc
}

// ResultChan implements watch.Interface.
func (f *filled) ResultChan() <-chan watch.Event { return f.events }

// Stop implements watch.Interface.
func (f *filled) Stop() { f.cancel() }

// batches yields the events of a channel: all that are there, and at least one.
func batches(ctx context.Context, from <-chan watch.Event) func(yield func([]watch.Event) bool) {
	return func(yield func([]watch.Event) bool) {
		for {
			var some []watch.Event
			select {
			case <-ctx.Done():
				return
			case event, more := <-from:
				if !more {
					return
				}
				some = append(some, event)
			}
			for waiting := true; waiting && len(some) < mostEvents; {
				select {
				case event, more := <-from:
					if waiting = more; more {
						some = append(some, event)
					}
				default:
					waiting = false
				}
			}
			if !yield(some) {
				return
			}
		}
	}
}

// fill replaces the metadata of reports in events by the reports.
func (w *watched) fill(ctx context.Context, events []watch.Event) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(mostReads)
	for i := range events {
		head, is := events[i].Object.(*metav1.PartialObjectMetadata)
		if !is {
			continue // an error
		}
		report := &reportObject{ProbeReport: v1alpha1.ProbeReport{ObjectMeta: head.ObjectMeta}}
		events[i].Object = report
		if events[i].Type != watch.Added && events[i].Type != watch.Modified {
			continue
		}
		if kept := w.sameInFull(head); kept != nil {
			report.full, report.former = kept.full, &kept.Status
			continue
		}
		reads.Go(func() error {
			read, err := w.read(ctx, head)
			if events[i].Object = read; read == nil {
				events[i].Object = nil
			}
			return err
		})
	}
	return reads.Wait()
}

// sameInFull is the kept report with this metadata, if its agent has not written it in full since; else nil. The API
// server counts what is written besides metadata.
func (w *watched) sameInFull(head *metav1.PartialObjectMetadata) *reportObject {
	object, _, _ := w.store.GetByKey(head.Namespace + "/" + head.Name)
	kept, is := object.(*reportObject)
	if !is || kept.full == nil || kept.UID != head.UID || kept.Generation != head.Generation || head.Generation == 0 {
		return nil
	}
	return kept
}

// read reads a report as it is now, under the version of an event; nil if there is none any more.
func (w *watched) read(ctx context.Context, head *metav1.PartialObjectMetadata) (*reportObject, error) {
	list, err := w.list(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + head.Name})
	if err != nil {
		return nil, fmt.Errorf("read the report of %s: %w", head.Name, err)
	}
	all, is := list.(*objects[reportObject])
	if !is || len(all.Items) == 0 {
		return nil, nil
	}
	report := &all.Items[0]
	report.ResourceVersion = head.ResourceVersion
	return report, nil
}

// complete makes of a report, as it was read or as an event has it, one with all results of its node's paths.
func (a *Actor) complete(report *reportObject) {
	if report.full == nil {
		full := a.unpacked(&report.ProbeReport)
		report.full = &full
		return
	}
	report.Status = *report.full
	a.restored(&report.ProbeReport, nil)
	// the former may have been read after this event
	if former := report.former; former != nil && former.Seq > report.Status.Seq &&
		report.Status.Generation == former.Generation {
		report.Status = *former
	}
	report.former = nil
}
