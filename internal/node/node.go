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
	// Park moves pods by way of a temporary pair of interfaces, as it is done where the kernel renames no interface in
	// use, on any kernel.
	Park bool
	// Mounts is the mount namespace of the node itself, such as "/proc/1/ns/mnt"; empty for the one of this process.
	Mounts string

	trial

	bridgeMu sync.Mutex // pods that are moved at the same time prepare the host
	rtnl     sync.Mutex // and do not get in each other's way in the kernel at the wrong moment

	ports  string    // the script of the table that keeps connections off a port; empty where it is not known
	marks  markTable // the table that changes marks of packets; empty where it is not known
	retied bool      // no connection is left in the middle by a former process
	outran bool      // the node's routes have a generation of their own (guarded by rtnl)

	folderMu  sync.Mutex
	told      *folders  // what the runtime told most recently, at toldAt; nil if it was not asked
	toldAt    time.Time // (guarded by folderMu, like tellAgain)
	tellAgain bool      // the next use of the folders asks the runtime

	spell outage.Spell  // in which the API server is away, as plugins say
	bears time.Duration // how long the current verb bears that; 0 outside of verbs

	mu    sync.Mutex
	joint joint // what Keep remembers between two calls
}

// trial is how a test's node differs from a real one, whose trial is empty.
type trial struct {
	// patience is how long verbs wait for something to go; 0 means as long as each does on a real node.
	patience time.Duration
	// hasty leaves out what only takes time: moves measure nothing and drain for a fifth of the time.
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
	n.mayTellAgain()
	w, known := works()[verb]
	if !known {
		return Answer{}, fmt.Errorf("%w %q", ErrUnknownVerb, verb)
	}
	return w.do(n, ctx, args)
}

// answer packs a result.
func answer(changed bool, message string, result any) (Answer, error) {
	encoded, err := json.Marshal(result)
	if err != nil {
		return Answer{}, fmt.Errorf("write the result: %w", err)
	}
	return Answer{Changed: changed, Message: message, Result: encoded}, nil
}
