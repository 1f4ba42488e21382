package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/theseus-cni/theseus/internal/step"
)

// turns limits concurrent evictions on several nodes: one pod of a workload at a time, and in total as many pods as
// there are nodes, or step.SideBySide of few nodes. The zero value is ready to use.
type turns struct {
	lock    sync.Mutex
	nodes   int
	waiting []*turn
	moving  map[workload]bool
}

// turn is a place in the queue, and then the permission to have one pod of a workload missing.
type turn struct {
	of    *turns
	owner workload
	come  chan struct{} // closed when it is this turn's time
}

// inOrder sorts workloads for the queue: those that take the longest first.
func inOrder[T any](groups map[workload]T) []workload {
	rank := func(w workload) int {
		if step.EndsFirst(w.kind) {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(groups), func(x, y workload) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.String(), y.String()))
	})
}

// join adds a node whose pods are evicted; the result takes it away again.
func (t *turns) join() (leave func()) {
	t.add(1)
	return func() { t.add(-1) }
}

func (t *turns) add(nodes int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.nodes += nodes
	t.next()
}

// queue takes a place in the queue. The caller must call wait, and then give.
func (t *turns) queue(owner workload) *turn {
	t.lock.Lock()
	defer t.lock.Unlock()
	place := &turn{of: t, owner: owner, come: make(chan struct{})}
	at := len(t.waiting)
	if step.EndsFirst(owner.kind) {
		if other := slices.IndexFunc(t.waiting,
			func(w *turn) bool { return !step.EndsFirst(w.owner.kind) }); other >= 0 {
			at = other
		}
	}
	t.waiting = slices.Insert(t.waiting, at, place)
	t.next()
	return place
}

// next starts the turns that may start. The caller holds the lock.
func (t *turns) next() {
	if t.moving == nil {
		t.moving = map[workload]bool{}
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(place *turn) bool {
		if len(t.moving) >= max(step.SideBySide, t.nodes) || t.moving[place.owner] {
			return false
		}
		t.moving[place.owner] = true
		close(place.come)
		return true
	})
}

// wait waits for the turn; if the context ends first, it releases the place.
func (p *turn) wait(ctx context.Context) error {
	select {
	case <-p.come:
		return nil
	case <-ctx.Done():
	}
	p.give()
	return ctx.Err()
}

// give releases the turn, or the place in the queue.
func (p *turn) give() {
	p.of.lock.Lock()
	defer p.of.lock.Unlock()
	if at := slices.Index(p.of.waiting, p); at >= 0 {
		p.of.waiting = slices.Delete(p.of.waiting, at, at+1)
	} else {
		delete(p.of.moving, p.owner)
	}
	p.of.next()
}
