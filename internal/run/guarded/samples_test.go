package guarded

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// sampler connects pairs: to servers, which answer, and to vaults, which do not, unless become says otherwise.
type sampler struct {
	lock   sync.Mutex
	become func(call int, pair step.Pair, try *step.Try)
	gone   map[string]string // pods
	errs   []error           // of the first calls
	calls  [][]step.Pair
}

func (s *sampler) Connect(ctx context.Context, node string, pairs []step.Pair) ([]step.Try, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	s.calls = append(s.calls, pairs)
	var tries []step.Try
	for _, pair := range pairs {
		if pair.Node != node {
			return nil, errors.New("a pair of another node")
		}
		try := step.Try{Outcome: step.TryOpened}
		if pair.Denied {
			try = step.Try{Outcome: step.TrySilent, Why: "no answer within 2s"}
		}
		if s.become != nil {
			s.become(len(s.calls), pair, &try)
		}
		tries = append(tries, try)
	}
	return tries, nil
}

func (s *sampler) Gone(_ context.Context, pod step.Pod) (string, error) { return s.gone[pod.Name], nil }

func between(node, from, to string, denied bool) step.Pair {
	return step.Pair{Node: node, From: step.Pod{Namespace: "x", Name: from}, To: step.Pod{Namespace: "x", Name: to},
		Port: 80, Denied: denied}
}

// connects is an actor whose plan has two pairs on n000 and one on n001, and that has connected them before the change.
func connects(t *testing.T, s *sampler, guard kind.Guard) (*Actor, *said) {
	t.Helper()
	guard.Pairs = []step.Pair{between("n000", "a", "server", false), between("n000", "b", "vault", true),
		between("n001", "c", "server", false)}
	a, out := makes(&maker{}, 2, guard)
	a.Maker, a.Sampler, a.Samples = nil, s, "samples"
	data, err := json.Marshal(do[result.Samples](t, a, step.Sample{}))
	if err != nil {
		t.Fatal(err)
	}
	a.Learn(engine.Record{Event: engine.Acted, Action: "samples", Data: data})
	return a, out
}

// TestSampleBefore: all pairs are connected node by node, what contradicts the policies is told, and an agent that does
// not answer at once is asked again, which is said at once.
func TestSampleBefore(t *testing.T) {
	s := &sampler{errs: []error{errors.New("forbidden")}, become: func(_ int, pair step.Pair, try *step.Try) {
		if pair.From.Name == "c" {
			*try = step.Try{Outcome: step.TrySilent, Why: "no answer within 2s"}
		}
	}}
	a, out := connects(t, s, kind.Guard{})
	if len(s.calls) != 2 || len(s.calls[0]) != 2 || len(s.calls[1]) != 1 || a.sampled == nil {
		t.Fatalf("calls %v, %+v", s.calls, a.sampled)
	}
	for _, want := range []string{"pods of n000 cannot be connected; Theseus tries again: forbidden",
		"the model of the policies says that x/c to x/server, TCP 80 is allowed, and the network did something else: " +
			"no answer within 2s", "pairs of pods before the change: 1 of 3 connections got through"} {
		if !out.has(want) {
			t.Errorf("it does not say %q: %q", want, out.lines)
		}
	}
	s = &sampler{errs: slices.Repeat([]error{errors.New("no agent")}, 1000)}
	if a, _ := connects(t, s, kind.Guard{}); a.sampled.Lacks != "no agent" || a.sampled.Last[2].Known() {
		t.Errorf("without agents: %+v", a.sampled)
	}
}

// TestSampleAfter: a pair that gets through no more is connected once more, and has changed if its pods are still
// there. The watching ends only after a round that began when the network was quiet.
func TestSampleAfter(t *testing.T) {
	const before = 2 // calls before the change
	for name, test := range map[string]struct {
		become func(call int, pair step.Pair, try *step.Try)
		gone   map[string]string
		turns  []result.Turn // in the last round
		reacts bool
	}{
		"as before": {nil, nil, []result.Turn{"", "", ""}, false},
		"lost": {func(_ int, pair step.Pair, try *step.Try) {
			if pair.From.Name == "a" {
				try.Outcome = step.TrySilent
			}
		}, nil, []result.Turn{result.Cut, "", ""}, true},
		"lost once": {func(call int, pair step.Pair, try *step.Try) {
			if pair.From.Name == "a" && call == before+1 {
				try.Outcome = step.TrySilent
			}
		}, nil, []result.Turn{"", "", ""}, false},
		"leaked": {func(_ int, pair step.Pair, try *step.Try) { try.Outcome = step.TryOpened }, nil,
			[]result.Turn{"", result.Leaked, ""}, true},
		"leaked, by another pod": {func(_ int, pair step.Pair, try *step.Try) { try.Outcome = step.TryOpened },
			map[string]string{"vault": "was replaced"}, []result.Turn{"", result.Left, ""}, false},
		"without a network on its node": {func(_ int, pair step.Pair, try *step.Try) {
			if pair.From.Name == "a" {
				*try = step.Try{Outcome: step.TryGone, Why: "x/a has no network namespace on n000"}
			}
		}, nil, []result.Turn{result.Unknown, "", ""}, false},
		"lost with its pod": {func(_ int, pair step.Pair, try *step.Try) { try.Outcome = step.TrySilent },
			map[string]string{"server": "is ending"}, []result.Turn{result.Left, "", result.Left}, false},
	} {
		s := &sampler{gone: test.gone}
		a, out := connects(t, s, kind.Guard{})
		s.become = test.become
		got := do[result.Watched](t, a, step.Watch{})
		if got.Samples == nil || len(got.Samples.Last) != 3 || got.Samples.Rounds < 1 || !got.Quiet {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, want := range test.turns {
			pair := a.Guard.Pairs[i]
			if turn := result.TurnOf(pair, a.sampled.Last[i], got.Samples.Last[i]); turn != want {
				t.Errorf("%s: %s is %q, want %q: %+v", name, pair, turn, want, got.Samples.Last[i])
			}
		}
		if out.has("POLICY CHANGED: ") != test.reacts {
			t.Errorf("%s: said %q", name, out.lines)
		}
		for _, call := range s.calls {
			if len(call) > 2 {
				t.Errorf("%s: %d pairs at once", name, len(call))
			}
		}
	}
}

// TestSampleAgain: if the network is disturbed during the last round, rounds follow until one is not.
func TestSampleAgain(t *testing.T) {
	const before, rounds = 2, 4 // calls before the change, and rounds that are disturbed; each has two calls
	s := &sampler{}
	a, _ := connects(t, s, kind.Guard{})
	a.Guard.AtMost = step.Duration(time.Hour)
	m := a.Gate.(*meter)
	looks := func(lost int) int64 {
		m.lock.Lock()
		defer m.lock.Unlock()
		if lost > 0 {
			m.answers = []kube.Glance{loses(int64(lost))}
		}
		return m.looks
	}
	s.become = func(call int, _ step.Pair, _ *step.Try) {
		round := (call - before + 1) / 2
		if call%2 == 0 || round > rounds {
			return
		}
		for seen := looks(round); looks(0) < seen+2; { // the watching has seen it
			time.Sleep(time.Millisecond)
		}
	}
	got := do[result.Watched](t, a, step.Watch{})
	if len(s.calls) < before+2*rounds+2 || !got.Quiet || got.Samples == nil || len(got.Samples.Last) != 3 {
		t.Errorf("%d calls, %+v", len(s.calls), got)
	}
}

// TestSampleMeanwhile: pairs are connected while the command runs, and a leak that ends before it is in its outcome; a
// loss ends the command if the user wants that.
func TestSampleMeanwhile(t *testing.T) {
	s := &sampler{}
	a, out := connects(t, s, kind.Guard{Command: []string{"sleep", "60"}, Kill: true})
	s.errs = []error{errors.New("forbidden"), errors.New("forbidden")}
	s.become = func(call int, pair step.Pair, try *step.Try) { try.Outcome = step.TryOpened }
	begun := time.Now()
	ran := do[result.Ran](t, a, step.Command{})
	if !ran.Killed || time.Since(begun) > 30*time.Second || ran.Samples == nil || len(ran.Samples.Turned) != 1 ||
		ran.Samples.Turned[0].Pair != 1 || !out.has("POLICY CHANGED: x/b to x/vault, TCP 80 (denied by policy)") {
		t.Errorf("%+v, said %q", ran, out.lines)
	}
	if !out.has("note: pods cannot be connected; Theseus tries again in the next round: forbidden") {
		t.Errorf("it does not say that it cannot connect: %q", out.lines)
	}
}
