package journal

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Tail reads the journal of a Migration while another process writes it. After the first call of Next it reads only the
// last page, and those that were added.
type Tail struct {
	client dynamic.Interface
	name   string
	page   int // the last one that was read, 0 before there is one
	state  engine.State
}

// NewTail is the tail of the journal of the Migration with this name.
func NewTail(client dynamic.Interface, name string) *Tail {
	return &Tail{client: client, name: name, state: engine.State{Phase: engine.PhaseNew}}
}

// State is the state after the records that Next has returned.
func (t *Tail) State() engine.State { return t.state }

// Next returns the records that were written since the last call: at the first call, all. It refuses records that do
// not follow from those before them.
func (t *Tail) Next(ctx context.Context) ([]engine.Record, error) {
	if t.page == 0 {
		return t.first(ctx)
	}
	var all []engine.Record
	for {
		// The next page is read before its predecessor. Once it exists, nothing is added to the one before, so that one
		// is read whole.
		_, missing := t.read(ctx, t.page+1)
		if missing != nil && !apierrors.IsNotFound(missing) {
			return later(all, missing)
		}
		page, err := t.read(ctx, t.page)
		if apierrors.IsNotFound(err) {
			return nil, engine.NeedsPerson(lostPage, "page %d of the journal of %s is missing", t.page, t.name)
		}
		if err != nil {
			return later(all, err)
		}
		records, err := t.take(page)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
		if missing != nil {
			return all, nil
		}
		t.page++
	}
}

// later leaves an error to the next call, which meets it again, if this one has records to return.
func later(all []engine.Record, err error) ([]engine.Record, error) {
	if len(all) > 0 {
		return all, nil
	}
	return nil, err
}

// first reads the whole journal.
func (t *Tail) first(ctx context.Context) ([]engine.Record, error) {
	cluster := NewCluster(t.client, t.name)
	records, err := cluster.Records(ctx)
	if err != nil {
		return nil, err
	}
	state, err := engine.Replay(records)
	if err != nil {
		return nil, err
	}
	t.state, t.page = state, cluster.pages
	return records, nil
}

func (t *Tail) read(ctx context.Context, number int) (*v1alpha1.JournalPage, error) {
	return asPage(call(ctx, "reading the journal of "+t.name,
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return t.client.Resource(pageResource).Namespace(v1alpha1.Namespace).Get(ctx,
				pageName(t.name, number), metav1.GetOptions{})
		}))
}

// take returns the new records of a page, and adds them to the state.
func (t *Tail) take(page *v1alpha1.JournalPage) ([]engine.Record, error) {
	var fresh []engine.Record
	state := t.state
	for i, raw := range page.Records {
		r, err := decode(raw)
		if err != nil {
			return nil, engine.NeedsPerson(lostPage, "JournalPage %s: its record %d cannot be read: %w",
				page.Name, i+1, err)
		}
		if r.Seq <= t.state.Seq {
			continue
		}
		link, err := engine.Link(state.Head, r)
		if err == nil && r.Chain != link && state.Head != "" {
			err = &engine.Broken{Record: r, Index: r.Seq - 1, Place: "JournalPage " + page.Name,
				Why: "it does not follow from the record before it"}
		}
		if err == nil {
			err = state.Add(r)
		}
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, r)
	}
	t.state = state
	return fresh, nil
}
