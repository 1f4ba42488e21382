package replica

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// settle is how long a burst of changes is left to end before both clusters are looked at.
const settle = time.Second

// retryAfter is how soon a look that failed is made again.
const retryAfter = 5 * time.Second

// Watch keeps the mirror in sync until the context ends, which is not an error. It compares the clusters when an object
// of either changes, and at least at the interval every. decide may refuse the result of a comparison. The first
// comparison must succeed; later failures are reported, and the comparison is retried.
func (c *Copier) Watch(ctx context.Context, every time.Duration, decide func(*Pass) error,
	tell func(*Pass, error)) error {
	for first := true; ; first = false {
		pass, err := c.round(ctx, decide)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		tell(pass, err)
		next := every
		if err != nil || len(pass.Failures) > 0 {
			next = min(every, retryAfter)
		}
		if pass != nil {
			watching, stop := context.WithTimeout(ctx, next)
			c.awaitChange(watching, pass)
			stop()
		} else {
			wait(ctx, next)
		}
		wait(ctx, settle)
	}
}

// round looks once and carries over what it saw.
func (c *Copier) round(ctx context.Context, decide func(*Pass) error) (*Pass, error) {
	pass, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	if err := decide(pass); err != nil {
		return nil, err
	}
	return pass, c.Carry(ctx, pass)
}

// restless kinds change all the time, and are made by controllers from others: they are watched where one of them
// goes over.
func restless() []string {
	return []string{"Pod", "ReplicaSet.apps", "Endpoints", "EndpointSlice.discovery.k8s.io", "PersistentVolume"}
}

// awaitChange returns when something changed since the lists of a look were made, which includes what its pass wrote
// on the mirror, or when the context ends. What cannot be watched waits for the next look.
func (c *Copier) awaitChange(ctx context.Context, pass *Pass) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	over := map[string]bool{}
	for _, wave := range pass.Plan.Waves {
		for _, item := range wave {
			over[item.Object.GroupVersionKind().GroupKind().String()] = true
		}
	}
	changed := make(chan struct{}, 1)
	for _, list := range pass.seen {
		name := list.kind.group.String()
		if !over[name] && (!list.kind.namespaced || slices.Contains(restless(), name)) {
			continue
		}
		go func() { // ends with the context
			if list.change(ctx) {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}()
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// change waits for a change after a list was made, and returns false if there was none before the context ended.
func (s seen) change(ctx context.Context) bool {
	events, err := s.cluster.objects.Resource(s.kind.resource).Namespace(s.namespace).Watch(ctx,
		metav1.ListOptions{ResourceVersion: s.version})
	if err != nil {
		return false
	}
	defer events.Stop()
	select {
	case event, open := <-events.ResultChan():
		return open && event.Type != watch.Bookmark
	case <-ctx.Done():
		return false
	}
}
