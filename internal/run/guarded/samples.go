package guarded

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// Sampler connects pairs of pods (kube.Samples).
type Sampler interface {
	// Connect opens a connection of each pair of a node, one after the other.
	Connect(ctx context.Context, node string, pairs []step.Pair) ([]step.Try, error)
	// Gone says why a pod is not what it was; empty if it is.
	Gone(ctx context.Context, pod step.Pod) (string, error)
}

// roundFor is how long one round of connections may take, whatever the agents do.
const roundFor = newPodsPatience + 2*time.Minute

// samplesAgain is the time after which a pair that does not get through any more is connected once more.
const samplesAgain = 3 * time.Second

// patient calls again until it works, or once if the time until which to try is over. It says the first error at once.
func (a *Actor) patient(ctx context.Context, until time.Time, what string, call func() error) error {
	for said := false; ; {
		err := call()
		if err == nil || ctx.Err() != nil || !a.Clock.Now().Before(until) {
			return err
		}
		if !said {
			said = true
			a.Say(fmt.Sprintf("note: %s; Theseus tries again: %v", what, err))
		}
		if a.Clock.Sleep(ctx, newPodsAgain) != nil {
			return err
		}
	}
}

// connect connects some pairs of the plan, one node after the other. lacks says which could not be tried.
func (a *Actor) connect(ctx context.Context, until time.Time, which []int,
	tries []step.Try) (lacks string) {
	for len(which) > 0 {
		node, n := a.Guard.Pairs[which[0]].Node, 0
		var pairs []step.Pair
		for n < len(which) && a.Guard.Pairs[which[n]].Node == node {
			pairs = append(pairs, a.Guard.Pairs[which[n]])
			n++
		}
		var got []step.Try
		err := a.patient(ctx, until, "pods of "+node+" cannot be connected", func() (err error) {
			got, err = a.Sampler.Connect(ctx, node, pairs)
			if err == nil && len(got) != n {
				err = fmt.Errorf("the agent of %s answered for %d of %s", node, len(got), cluster.Count(n, "pair"))
			}
			return err
		})
		for i, at := range which[:n] {
			if err != nil {
				tries[at] = step.Try{Outcome: step.TryUntried, Why: err.Error()}
			} else {
				tries[at] = got[i]
			}
		}
		if err != nil && lacks == "" {
			lacks = err.Error()
		}
		which = which[n:]
	}
	return lacks
}

// sampleBefore connects all pairs before the change. Whatever becomes of them, the run goes on.
func (a *Actor) sampleBefore(ctx context.Context) (json.RawMessage, error) {
	tries := make([]step.Try, len(a.Guard.Pairs))
	if a.Sampler == nil {
		return json.Marshal(result.Samples{Lacks: "this process opens none"})
	}
	inner, cut := context.WithTimeout(ctx, roundFor)
	defer cut()
	a.trying(cut)
	defer a.trying(nil)
	sum := result.Samples{Rounds: 1, Last: tries}
	sum.Lacks = a.connect(inner, a.Clock.Now().Add(newPodsPatience), a.all(), tries)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reached := 0
	for i, pair := range a.Guard.Pairs {
		if tries[i].Reached() {
			reached++
		}
		switch {
		case result.Contradicts(pair, tries[i]):
			a.Say("note: " + result.Contradiction(pair, tries[i]))
		case !tries[i].Known():
			a.Say(fmt.Sprintf("note: %s proves nothing: %s", pair, tries[i]))
		}
	}
	a.Say(fmt.Sprintf("pairs of pods before the change: %d of %d connections got through", reached, len(tries)))
	return json.Marshal(sum)
}

// all are the indexes of all pairs.
func (a *Actor) all() []int {
	all := make([]int, len(a.Guard.Pairs))
	for i := range all {
		all[i] = i
	}
	return all
}

// sampling connects all pairs, round by round. over is closed when sum has the result.
type sampling struct {
	actor     *Actor
	end, wake context.CancelFunc
	over      chan struct{}
	sum       *result.Samples // nil if no pairs are connected
	began     time.Time       // the last round
	failing   bool            // the last round lacked a pair
}

// sampling begins to connect the pairs, until it is told to make its last round, or to stop. sum is that of earlier
// rounds.
func (a *Actor) sampling(ctx context.Context, sum *result.Samples) *sampling {
	ctx, end := context.WithCancel(ctx)
	pause, wake := context.WithCancel(ctx)
	s := &sampling{actor: a, end: end, wake: wake, over: make(chan struct{})}
	if a.Sampler == nil || len(a.Guard.Pairs) == 0 || a.samplesBefore() == nil {
		close(s.over)
		return s
	}
	s.sum = sum
	go func() { // ends with the context
		defer close(s.over)
		for last := false; !last && ctx.Err() == nil; {
			last, s.began = pause.Err() != nil, a.Clock.Now()
			s.round(ctx, last)
			if !last {
				_ = a.Clock.Sleep(pause, time.Duration(a.Guard.NewPods))
			}
		}
	}()
	return s
}

// last makes one more round, which begins now or after the one at hand.
func (s *sampling) last() { s.wake() }

// stale is true if the last round, which is over, did not begin after a time.
func (s *sampling) stale(since time.Time) bool { return s.sum != nil && !s.began.After(since) }

// stop ends the connecting, and says what became of the pairs; nil if none were connected.
func (s *sampling) stop() *result.Samples {
	s.end()
	<-s.over
	return s.sum
}

// round connects each pair once, and those that do not get through any more once more. Only a pair whose pods are still
// there has changed.
func (s *sampling) round(outer context.Context, last bool) {
	a, before, tries := s.actor, s.actor.samplesBefore().Last, make([]step.Try, len(s.actor.Guard.Pairs))
	ctx, cancel := context.WithTimeout(outer, roundFor)
	defer cancel()
	until := a.Clock.Now()
	if last {
		until = until.Add(newPodsPatience)
	}
	lacks := a.connect(ctx, until, a.all(), tries)
	if lacks != "" && !last && !s.failing && ctx.Err() == nil {
		a.Say("note: pods cannot be connected; Theseus tries again in the next round: " + lacks)
	}
	s.failing = lacks != ""
	turn := func(i int) result.Turn { return result.TurnOf(a.Guard.Pairs[i], before[i], tries[i]) }
	var cut []int
	for i := range tries {
		if turn(i) == result.Cut {
			cut = append(cut, i)
		}
	}
	if len(cut) > 0 && a.Clock.Sleep(ctx, samplesAgain) == nil {
		if again := a.connect(ctx, until, cut, tries); lacks == "" {
			lacks = again
		}
	}
	for i := range tries {
		gone := tries[i].Outcome == step.TryGone && before[i].Known()
		if !gone && !turn(i).Bad() {
			continue
		}
		seen := a.still(ctx, until, a.Guard.Pairs[i], tries[i])
		if gone && seen == tries[i] { // both pods are there, and the agent does not find the network of one
			seen = step.Try{Outcome: step.TryUntried, Why: seen.Why + ", and the pod still exists"}
			lacks = cmp.Or(lacks, seen.Why)
		}
		tries[i] = seen
	}
	if outer.Err() != nil {
		return
	}
	s.sum.Rounds++
	if last {
		s.sum.Last, s.sum.Lacks = tries, lacks
	}
	for i, try := range tries {
		s.turned(result.Sampled{Pair: i, At: a.Clock.Now(), Try: try}, turn(i), before[i])
	}
}

// still is a try of a pair whose pods are still there; otherwise the try says that they are not.
func (a *Actor) still(ctx context.Context, until time.Time, pair step.Pair, try step.Try) step.Try {
	for _, pod := range []step.Pod{pair.From, pair.To} {
		why := ""
		err := a.patient(ctx, until, "pod "+pod.String()+" cannot be read", func() (err error) {
			why, err = a.Sampler.Gone(ctx, pod)
			return err
		})
		switch {
		case err != nil:
			return step.Try{Outcome: step.TryUntried, Why: "whether " + pod.String() + " still exists is not known: " +
				err.Error()}
		case why != "":
			return step.Try{Outcome: step.TryGone, Why: pod.String() + " " + why}
		}
	}
	return try
}

// turned keeps the first try of each turn of a pair. A loss or a leak is kept until the loop that looks at losses
// reacts.
func (s *sampling) turned(one result.Sampled, turn result.Turn, before step.Try) {
	a := s.actor
	if turn == "" || turn == result.Unknown {
		return
	}
	for _, other := range s.sum.Turned {
		if other.Pair == one.Pair && result.TurnOf(a.Guard.Pairs[one.Pair], before, other.Try) == turn {
			return
		}
	}
	s.sum.Turned = append(s.sum.Turned, one)
	a.lock.Lock()
	defer a.lock.Unlock()
	if turn.Bad() && a.failed == "" {
		a.failed = "POLICY CHANGED: " + result.PairTurn{Pair: a.Guard.Pairs[one.Pair], Turn: turn, Before: before,
			Now: one.Try, At: one.At}.String()
	}
}

// samplesBefore are the samples before the change; nil if no pair can be compared with them.
func (a *Actor) samplesBefore() *result.Samples {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.sampled == nil || len(a.sampled.Last) != len(a.Guard.Pairs) {
		return nil
	}
	return a.sampled
}
