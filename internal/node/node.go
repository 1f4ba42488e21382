package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
)

// Node is where the verbs act. Its methods may be called at the same time; they take turns.
type Node struct {
	// Name is the node's name in the cluster.
	Name string
	// Root is the folder under which the node's own files are, such as "/host".
	Root string
	// Sys is where the kernel's parameters are: "/proc/sys".
	Sys string
	// Commands runs the programs.
	Commands *Commands

	trial

	bridgeMu sync.Mutex // pods that are moved at the same time prepare the host
	rtnl     sync.Mutex // and do not get in each other's way in the kernel at the wrong moment

	ports  string // the script of the table that keeps connections off a port; empty where it is not known
	retied bool   // no connection is left in the middle by a former process
	outran bool   // the node's routes have a generation of their own (guarded by rtnl)

	spell outage.Spell  // in which the API server is away, as plugins say
	bears time.Duration // how long the verb at hand bears that; 0 outside of verbs

	mu    sync.Mutex
	joint joint // what Keep remembers between two calls
}

// trial is how a test's node differs from a real one, whose trial is empty.
type trial struct {
	// patience is how long verbs wait for something to go; 0 means as long as each does on a real node.
	patience time.Duration
	// hasty leaves out what only takes time: moves measure nothing and let nothing drain.
	hasty bool
	// chatty lets former interfaces ask their neighbours: what comes of it?
	chatty bool
	// tied leaves connections tied to interfaces: what comes of it?
	tied bool
	// hook is called before every change that a move makes: the process may end there.
	hook func(point string)
}

// Answer is what a verb says when it is done.
type Answer struct {
	// Changed is false when everything was already as asked.
	Changed bool
	// Message is one line for a person.
	Message string
	// Result is the verb's own answer as JSON; it is set for some failures too, such as a clean that left
	// something.
	Result json.RawMessage
}

// ErrUnknownVerb is returned for a verb that this agent does not have.
var ErrUnknownVerb = errors.New("unknown verb")

// Do runs one verb to its end.
func (n *Node) Do(ctx context.Context, verb string, args json.RawMessage) (Answer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.spell.Over(); !n.hasty {
		n.bears = outage.Bound
		defer func() { n.bears = 0 }()
	}
	if err := step.Allowed(verb, args); err != nil {
		return Answer{}, err
	}
	switch verb {
	case step.VerbFacts:
		if len(args) == 0 {
			return n.facts(ctx, step.FactsArgs{})
		}
		return with(args, func(a step.FactsArgs) (Answer, error) { return n.facts(ctx, a) })
	case step.VerbInventory:
		return with(args, func(r step.Residue) (Answer, error) { return n.inventory(ctx, r) })
	case step.VerbClean:
		return with(args, func(r step.Residue) (Answer, error) { return n.clean(ctx, r) })
	case step.VerbActivate:
		return with(args, n.activate)
	case step.VerbDeactivate:
		return with(args, n.deactivate)
	case step.VerbJoin:
		return with(args, func(a step.JoinArgs) (Answer, error) { return n.join(ctx, a) })
	case step.VerbPart:
		return with(args, func(step.JoinArgs) (Answer, error) { return n.part(ctx) })
	case step.VerbGuard:
		return with(args, func(g step.Guard) (Answer, error) { return n.guard(ctx, g) })
	case step.VerbHold:
		return with(args, func(a step.HoldArgs) (Answer, error) {
			return n.rerouted(ctx, a.Within, func() (Answer, error) { return hold(a) })
		})
	case step.VerbUnhold:
		return with(args, func(a step.HoldArgs) (Answer, error) { return unhold(ctx, a) })
	case step.VerbYield:
		return with(args, func(a step.HoldArgs) (Answer, error) {
			return n.rerouted(ctx, a.Within, func() (Answer, error) { return yield(a) })
		})
	case step.VerbCarried:
		return with(args, func(a step.HoldArgs) (Answer, error) { return carried(ctx, a) })
	case step.VerbPin:
		return with(args, func(a step.PinArgs) (Answer, error) {
			return n.rerouted(ctx, a.Within, func() (Answer, error) { return pin(a) })
		})
	case step.VerbRouted:
		return with(args, func(a step.PinArgs) (Answer, error) { return takesWay(ctx, a) })
	case step.VerbFollow:
		return with(args, func(a step.PinArgs) (Answer, error) {
			if got, err := takesWay(ctx, a); err != nil {
				return got, err
			}
			return n.rerouted(ctx, a.Within, func() (Answer, error) { return follow(a) })
		})
	case step.VerbUnpin:
		return with(args, func(a step.PinArgs) (Answer, error) {
			if got, err := takesWay(ctx, a); err != nil {
				return got, err
			}
			return n.rerouted(ctx, a.Within, func() (Answer, error) { return unpin(a) })
		})
	case step.VerbRetain:
		return with(args, retain)
	case step.VerbLetGo:
		return with(args, func(a step.RetainArgs) (Answer, error) { return n.letGo(ctx, a) })
	case step.VerbRelease:
		return with(args, func(g step.Guard) (Answer, error) { return n.release(ctx, g) })
	case step.VerbDataplane:
		return with(args, func(d step.Dataplane) (Answer, error) { return n.dataplane(ctx, d) })
	case step.VerbAdoptable:
		return with(args, n.adoptable)
	case step.VerbAdopt:
		return with(args, func(a step.AdoptArgs) (Answer, error) { return n.adopt(ctx, a) })
	case step.VerbSettle:
		return with(args, func(a step.SettleArgs) (Answer, error) { return n.settle(ctx, a) })
	}
	return Answer{}, fmt.Errorf("%w %q", ErrUnknownVerb, verb)
}

// with decodes the arguments of a verb; a verb that takes some refuses to run without.
func with[T any](args json.RawMessage, verb func(T) (Answer, error)) (Answer, error) {
	var decoded T
	if len(args) == 0 {
		return Answer{}, errors.New("the arguments are missing")
	}
	if err := json.Unmarshal(args, &decoded); err != nil {
		return Answer{}, fmt.Errorf("read the arguments: %w", err)
	}
	return verb(decoded)
}

// answer packs a result.
func answer(changed bool, message string, result any) (Answer, error) {
	encoded, err := json.Marshal(result)
	if err != nil {
		return Answer{}, fmt.Errorf("write the result: %w", err)
	}
	return Answer{Changed: changed, Message: message, Result: encoded}, nil
}
