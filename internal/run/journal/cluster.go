package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// The bounds of a page: whichever is reached first. The API server takes objects of up to 1.5 MiB; a page is
// rewritten with every append, which takes longer the more it holds.
const (
	pageRecords = 200
	pageBytes   = 32 << 10
	recordBytes = 1 << 20
)

// Cluster is the journal of a Migration, in JournalPages. A page is only written over the version that was
// read, so if two engines run, one of them fails before it acts. It is for one goroutine at a time.
type Cluster struct {
	client dynamic.Interface
	name   string
	bound  int  // records per page
	fresh  bool // the fields below match the cluster
	uid    types.UID
	pages  int
	page   *v1alpha1.JournalPage // the last one
	last   engine.Record
	state  engine.State
	status summary // as the Migration has it
}

// summary is the part of a Migration's status that comes from its journal.
type summary struct {
	phase, step, held  string
	done, total, pages int
}

// NewCluster is the journal of the Migration with this name, which must exist when it is first used.
func NewCluster(client dynamic.Interface, name string) *Cluster {
	return &Cluster{client: client, name: name, bound: pageRecords}
}

// Records implements engine.Journal: all records, as the cluster has them now.
func (c *Cluster) Records(ctx context.Context) ([]engine.Record, error) {
	c.fresh = false
	migration, err := get(ctx, c.client, c.name)
	if err != nil {
		return nil, err
	}
	pages, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	records, err := join(c.name, pages, migration.Status.Pages)
	if err == nil {
		err = whole(records, pages)
	}
	if err != nil {
		return nil, err
	}
	// The engine refuses a journal in an impossible order; here it only has no summary.
	c.state, err = engine.Replay(records)
	if err != nil {
		return records, nil
	}
	has := migration.Status
	c.uid, c.status, c.pages = migration.UID, summary{has.Phase, has.Step, has.Held, has.Done,
		has.Total, has.Pages}, len(pages)
	c.page, c.last = nil, engine.Record{}
	if len(pages) > 0 && len(records) > 0 {
		if c.page, err = pages[len(pages)-1].typed(); err != nil {
			return nil, err
		}
		c.last = records[len(records)-1]
	}
	c.fresh = true
	return records, nil
}

// State is the state after the records that were read or appended last. It is not known if they are in an impossible
// order, or if the outcome of the last call is not known.
func (c *Cluster) State() (state engine.State, known bool) { return c.state, c.fresh }

// list reads the pages in order.
func (c *Cluster) list(ctx context.Context) ([]page, error) {
	objects, err := listObjects(ctx, c.client, pageResource, labelMigration+"="+c.name,
		"reading the journal of "+c.name)
	if err != nil {
		return nil, err
	}
	pages := make([]page, len(objects))
	for i, object := range objects {
		if pages[i], err = pageOf(object.Object); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	slices.SortFunc(pages, func(a, b page) int { return a.number - b.number })
	return pages, nil
}

// listAll reads all objects of a kind that match a selector.
func listAll[T any](ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource,
	selector, what string) ([]T, error) {
	objects, err := listObjects(ctx, client, kind, selector, what)
	if err != nil {
		return nil, err
	}
	var all []T
	for _, object := range objects {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		all = append(all, one)
	}
	return all, nil
}

// listObjects is listAll for objects that are read in another way.
func listObjects(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource,
	selector, what string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	options := metav1.ListOptions{LabelSelector: selector, Limit: 20}
	for {
		list, err := call(ctx, what, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
			return client.Resource(kind).Namespace(v1alpha1.Namespace).List(ctx, options)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// lostPage is the hint for a page that is missing or cannot be read.
const lostPage = "do not continue with this journal: restore the page, or take the records from the local file"

// Append implements engine.Journal. It returns nil when the records are in the cluster and the Migration's
// status has them. Records that fit on one page are written at once.
func (c *Cluster) Append(ctx context.Context, records ...engine.Record) error {
	raws := make([]json.RawMessage, len(records))
	for i, r := range records {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("record %d: %w", r.Seq, err)
		}
		if len(raw) > recordBytes {
			return fmt.Errorf("record %d of action %s has %d bytes; at most %d fit",
				r.Seq, r.Action, len(raw), recordBytes)
		}
		raws[i] = raw
	}
	var err error
	for range 3 { // another client may only have changed a label
		err = c.append(ctx, records, raws)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	return c.summarise(ctx)
}

func (c *Cluster) append(ctx context.Context, records []engine.Record, raws []json.RawMessage) error {
	if !c.fresh {
		if _, err := c.Records(ctx); err != nil {
			return err
		}
		if !c.fresh {
			return fmt.Errorf("the journal of %s cannot be read completely", c.name)
		}
	}
	wanted, err := admit(records, c.state.Seq, c.last)
	if err != nil {
		return err
	}
	for raws = raws[len(records)-len(wanted):]; len(wanted) > 0; {
		c.fresh = false // until the result is known
		n, page, err := c.write(ctx, raws)
		if err != nil {
			return err
		}
		for _, r := range wanted[:n] {
			if err := c.state.Add(r); err != nil {
				return err
			}
		}
		c.page, c.pages, c.last, c.fresh = page, page.Page, wanted[n-1], true
		wanted, raws = wanted[n:], raws[n:]
	}
	return nil
}

// write adds as many records as fit to the last page, or to a new one, and returns how many.
func (c *Cluster) write(ctx context.Context, raws []json.RawMessage) (int, *v1alpha1.JournalPage, error) {
	pages := c.client.Resource(pageResource).Namespace(v1alpha1.Namespace)
	what := "writing the journal of " + c.name
	if c.page != nil {
		if n := c.room(c.page.Records, raws); n > 0 {
			page := *c.page
			page.Records = append(slices.Clone(page.Records), raws[:n]...)
			object, err := toUnstructured(&page)
			if err != nil {
				return 0, nil, err
			}
			written, err := asPage(call(ctx, what, func(ctx context.Context) (*unstructured.Unstructured, error) {
				return pages.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
			}))
			return n, written, err
		}
	}
	n := max(c.room(nil, raws), 1) // a single record may exceed the usual size of a page
	object, err := toUnstructured(c.newPage(raws[:n]))
	if err != nil {
		return 0, nil, err
	}
	written, err := asPage(call(ctx, what, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return pages.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	}))
	return n, written, err
}

// room is how many of the records fit on a page that already has some.
func (c *Cluster) room(has, raws []json.RawMessage) int {
	bytes := 0
	for _, raw := range has {
		bytes += len(raw)
	}
	n := 0
	for n < len(raws) && len(has)+n < c.bound && bytes+len(raws[n]) <= pageBytes {
		bytes += len(raws[n])
		n++
	}
	return n
}

func (c *Cluster) newPage(raws []json.RawMessage) *v1alpha1.JournalPage {
	number := c.pages + 1
	return &v1alpha1.JournalPage{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "JournalPage"},
		ObjectMeta: metav1.ObjectMeta{
			Name: pageName(c.name, number), Namespace: v1alpha1.Namespace,
			Labels:          map[string]string{v1alpha1.LabelManaged: "true", labelMigration: c.name},
			OwnerReferences: []metav1.OwnerReference{ownedBy(c.name, c.uid)},
		},
		Migration: c.name, Page: number, Records: slices.Clone(raws),
	}
}

// pageName is the name of a page of a journal; pages count from 1.
func pageName(migration string, number int) string { return fmt.Sprintf("%s-%04d", migration, number) }

// Summarise updates the Migration's status from the records that were read last. A process that was killed between a
// record and the summary leaves an older one.
func (c *Cluster) Summarise(ctx context.Context) error {
	if !c.fresh || c.state.Seq == 0 {
		return nil
	}
	return c.summarise(ctx)
}

// summarise updates the Migration's status from the journal. It leaves the conditions as they are.
func (c *Cluster) summarise(ctx context.Context) error {
	status := summary{string(c.state.Phase), c.state.Step, c.state.Held, c.state.DoneSteps(),
		c.state.Start.Steps, c.pages}
	if status == c.status {
		return nil
	}
	if err := patch(ctx, c.client, migrationResource, c.name,
		map[string]any{"status": map[string]any{"phase": status.phase,
			"step": status.step, "held": status.held, "done": status.done, "total": status.total,
			"pages": status.pages}}); err != nil {
		return err
	}
	c.status = status
	return nil
}

func asPage(object *unstructured.Unstructured, err error) (*v1alpha1.JournalPage, error) {
	if err != nil {
		return nil, err
	}
	var page v1alpha1.JournalPage
	return &page, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &page)
}

func toUnstructured(object any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}
