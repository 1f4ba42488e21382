package guarded

import (
	"context"
	"encoding/json"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// Maker makes new pods (kube.NewPods).
type Maker interface {
	Make(ctx context.Context, set string, nodes []string, former []kube.NewPod) ([]kube.NewPod, error)
	Clear(ctx context.Context) error
}

const (
	// newPodsRounds is how many rounds all nodes of a large cluster take.
	newPodsRounds = 10
	// newPodsPatience is how long new pods are tried again, as the API server cannot be asked.
	newPodsPatience = 3 * time.Minute
	newPodsAgain    = 3 * time.Second
)

// noNewPods begins the message about the first of several errors.
const noNewPods = "note: new pods cannot be created; Theseus tries again: "

// rounds makes new pods, round by round.
type rounds struct {
	actor  *Actor
	next   int // the index of the next node
	turn   int // the number of the round
	former []kube.NewPod
	sum    result.NewPods
}

// round makes new pods on the next nodes, of a number at most, and says how many nodes that were.
func (r *rounds) round(ctx context.Context, most int) (int, error) {
	var nodes []string
	all := r.actor.Nodes
	for i := range min(most, len(all)) {
		nodes = append(nodes, all[(r.next+i)%len(all)])
	}
	sets := manifest.NewPodSets()
	pods, err := r.actor.Maker.Make(ctx, sets[r.turn%len(sets)], nodes, r.former)
	again := err != nil && ctx.Err() == nil // the round is tried again
	for _, p := range pods {
		if again && p.Failed == "" {
			continue
		}
		one := result.NewPod{Node: p.Node, At: p.At}
		switch {
		case p.Failed != "":
			one.Why = p.Failed
			r.sum.Fail(one)
			r.actor.newPodFailed(one)
		case p.Unmeasured != "":
			one.Why = p.Unmeasured
			r.sum.Leave(one)
		default:
			r.sum.Reached(p.AddressAfter, p.ReachableAfter)
		}
	}
	if err != nil {
		return 0, err
	}
	r.next, r.turn, r.former = (r.next+len(nodes))%max(len(all), 1), r.turn+1, pods
	return len(nodes), nil
}

// everywhere makes a new pod on every node, and one round more, whose pods try to reach those of the last round.
func (r *rounds) everywhere(ctx context.Context) result.NewPods {
	most := max(result.NewPodsRound, len(r.actor.Nodes)/newPodsRounds)
	var since time.Time // of the first of several errors
	for tried, last := 0, false; !last; {
		last = tried >= len(r.actor.Nodes)
		n, err := r.round(ctx, most)
		if err == nil {
			tried, since = tried+n, time.Time{}
			continue
		}
		if since.IsZero() && ctx.Err() == nil {
			r.actor.Say(noNewPods + err.Error())
		}
		if since.IsZero() {
			since = r.actor.Clock.Now()
		}
		switch {
		case r.actor.Clock.Now().Sub(since) >= newPodsPatience:
		case r.actor.Clock.Sleep(ctx, newPodsAgain) == nil:
			last = false
			continue
		}
		r.sum.Lacks = err.Error()
		return r.sum
	}
	return r.sum
}

// before tries new pods before the change, and removes them. Whatever becomes of them, the run goes on.
func (a *Actor) before(ctx context.Context) (json.RawMessage, error) {
	if a.Maker == nil {
		return json.Marshal(result.NewPods{Lacks: "this process creates none"})
	}
	inner, cut := context.WithCancel(ctx)
	a.trying(cut)
	defer a.trying(nil)
	r := rounds{actor: a}
	sum := r.everywhere(inner)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := a.Maker.Clear(ctx); err != nil {
		sum.Lacks = err.Error()
	}
	a.Say("new pods before the change: " + sum.String())
	for _, p := range sum.Failed {
		a.Say("note: a new pod failed before the change, so new pods on that node prove nothing: " + p.String())
	}
	return json.Marshal(sum)
}

// trying sets how an interrupt ends the trying of new pods before the change.
func (a *Actor) trying(cut func()) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.cutTries = cut
}

// meanwhile makes new pods round by round until it is stopped. stop says what became of them; nil if none are made.
func (a *Actor) meanwhile(ctx context.Context) (stop func() *result.NewPods) {
	if a.Maker == nil || a.Guard.NewPods <= 0 {
		return func() *result.NewPods { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done, r := make(chan struct{}), rounds{actor: a}
	go func() { // ends with the context
		defer close(done)
		failing := false
		for ctx.Err() == nil {
			wait := time.Duration(a.Guard.NewPods)
			_, err := r.round(ctx, result.NewPodsRound)
			if err != nil {
				wait = newPodsAgain
			}
			if err != nil && !failing && ctx.Err() == nil {
				a.Say(noNewPods + err.Error())
			}
			failing = err != nil
			if a.Clock.Sleep(ctx, wait) != nil {
				return
			}
		}
	}()
	return func() *result.NewPods {
		cancel()
		<-done
		return &r.sum
	}
}

// after makes new pods on every node. done is closed when sum has the result.
func (a *Actor) after(ctx context.Context) (sum *result.NewPods, done <-chan struct{}) {
	over := make(chan struct{})
	if a.Maker == nil || a.Guard.NewPods <= 0 {
		close(over)
		return nil, over
	}
	sum = new(result.NewPods)
	go func() { // ends with the context
		defer close(over)
		r := rounds{actor: a}
		if *sum = r.everywhere(ctx); ctx.Err() == nil {
			a.Say("new pods after the change: " + sum.String())
		}
	}()
	return sum, over
}

// newPodFailed keeps the first new pod that failed since the baseline, until the loop that looks at losses reacts.
func (a *Actor) newPodFailed(p result.NewPod) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.known != nil && a.failed == "" && len((&result.NewPods{Failed: []result.NewPod{p}}).Since(a.known)) > 0 {
		a.failed = "NEW POD FAILED: " + p.String()
	}
}

// newPods reacts to a new pod that failed, or to a pair of pods that changed, as to a loss.
func (a *Actor) newPods() {
	a.lock.Lock()
	failed := a.failed
	a.lock.Unlock()
	if failed != "" {
		a.react(failed)
	}
}

// tried takes what became of new pods, and of pairs of pods, before the change, which the journal has.
func (a *Actor) tried(r engine.Record) {
	switch {
	case r.Event != engine.Acted || r.Undo || r.Action == "":
	case r.Action == a.Tries:
		learn(r, &a.known)
	case r.Action == a.Samples:
		learn(r, &a.sampled)
	}
}

func learn[T any](r engine.Record, into **T) {
	known := new(T)
	if json.Unmarshal(r.Data, known) == nil {
		*into = known
	}
}
