package node

import (
	"context"
	"errors"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// The pauses between two tries of a plugin, or of a call to the API, while the API server is away or has just started.
const (
	insistFirst = 250 * time.Millisecond
	insistLast  = 5 * time.Second
)

// insist makes a call again while its error only says that the API server is away, or refuses calls as one that has
// just started does. It gives up after n.bears, which all calls of one verb share. Before each new try, undo takes back
// what the last one may have left; it may be nil.
func (n *Node) insist(ctx context.Context, call, undo func() error) error {
	for wait := insistFirst; ; wait = min(2*wait, insistLast) {
		err := call()
		if err == nil {
			n.spell.Over()
			return nil
		}
		if !outage.Said(err.Error()) || ctx.Err() != nil {
			return err
		}
		lasted := n.spell.Lasts(time.Now())
		if lasted >= n.bears {
			if n.bears > 0 {
				err = outage.Lasted(err, lasted)
			}
			return err
		}
		if _ = outage.Sleep(ctx, wait); ctx.Err() != nil {
			return err
		}
		if undo == nil {
			continue
		}
		if failed := undo(); failed != nil {
			return errors.Join(err, failed)
		}
	}
}
