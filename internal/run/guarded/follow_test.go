package guarded

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// follower counts how often it is asked; it fails at first.
type follower struct{ asked int }

func (f *follower) FollowProbePods(context.Context) ([]string, error) {
	if f.asked++; f.asked == 1 {
		return nil, errors.New("the API server is away")
	}
	return []string{"n"}, nil
}

// TestFollow: the addresses of probe pods are looked at while probes are lost, seldom, and again after an error; not
// once the losses have ended.
func TestFollow(t *testing.T) {
	a, out, _ := bench(kind.Guard{Quiet: step.Duration(20 * time.Second), AtMost: step.Duration(time.Minute)})
	f := &follower{}
	a.Follower = f
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || f.asked != 0 {
		t.Errorf("without a loss it was asked %d times: %+v", f.asked, got)
	}
	a, out, _ = bench(kind.Guard{Quiet: step.Duration(20 * time.Second), AtMost: step.Duration(time.Minute)},
		loses(1), loses(2), loses(3), loses(4), loses(5), loses(6), loses(7), loses(8))
	a.Follower, f.asked = f, 0
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || f.asked != 4 || !out.has("the probe pod of n has") {
		t.Errorf("asked %d times, said %q: %+v", f.asked, out.lines, got)
	}
}

// TestFollowAfterRestart: a source that starts again counts from 0, and what is lost then is fewer than before: the
// addresses are looked at all the same.
func TestFollowAfterRestart(t *testing.T) {
	fallen := []kube.Glance{loses(1000)}
	for range 4 {
		fallen = append(fallen, loses(10))
	}
	a, _, _ := bench(kind.Guard{Quiet: step.Duration(20 * time.Second), AtMost: step.Duration(time.Minute)},
		append(fallen, loses(11))...)
	f := &follower{asked: 1}
	a.Follower = f
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || f.asked != 3 {
		t.Errorf("asked %d times: %+v", f.asked-1, got)
	}
}

// joiner has an answer for each call; the last one stays.
type joiner struct {
	asked   int
	answers []joins
}

type joins struct {
	measured []string
	waiting  string
	silent   []path.Silence
	err      error
}

func (j *joiner) Join(context.Context) (kube.Joined, error) {
	j.asked++
	one := j.answers[min(j.asked, len(j.answers))-1]
	return kube.Joined{Measured: one.measured, Waiting: one.waiting, Silent: one.silent}, one.err
}

// TestJoin: a node that joins is told and kept with its time, and the network is quiet only when the node was measured
// for as long; one that cannot be measured is why it is not quiet, and so is a cluster whose nodes cannot be read.
func TestJoin(t *testing.T) {
	for name, test := range map[string]struct {
		answers []joins
		quiet   bool
		joined  []string
		why     string
	}{
		"none": {[]joins{{}}, true, nil, ""},
		"one": {[]joins{{}, {waiting: "node n has joined, and waits"}, {err: errors.New("the API server is away")},
			{measured: []string{"n"}}, {}}, true, []string{"n"}, "node n has joined, and its paths"},
		"one with a port that is shut": {[]joins{{measured: []string{"n"}, waiting: "node n has joined, and waits"},
			{silent: []path.Silence{{Class: path.ClassHostPort, Paths: 1, Of: 1, Example: "a/host>n/host-port"}}},
			{}}, true, []string{"n"}, "node n has joined, and waits"},
		"one that is never measured": {[]joins{{waiting: "node n has joined, and waits"}}, false, nil,
			"node n has joined, and waits"},
		"an outage": {[]joins{{err: errors.New("the API server is away")}, {}}, true, nil, ""},
		"an outage that lasts": {[]joins{{err: errors.New("the API server is away")}}, false, nil,
			"Theseus cannot read which nodes have joined: the API server is away"},
	} {
		t.Run(name, func(t *testing.T) {
			a, out, clock := bench(kind.Guard{Quiet: step.Duration(20 * time.Second),
				AtMost: step.Duration(2 * time.Minute)})
			a.Joiner = &joiner{answers: test.answers}
			got := do[result.Watched](t, a, step.Watch{})
			var nodes []string
			for _, one := range got.Joined {
				nodes = append(nodes, one.Node)
				if since := clock.Now().Sub(one.At); since < 20*time.Second {
					t.Errorf("the watching ended %s after %s was measured", since, one.Node)
				}
				if !out.has("note: node " + one.Node + " has joined") {
					t.Errorf("said %q", out.lines)
				}
			}
			if shut := strings.Contains(name, "shut"); shut != (len(got.JoinedSilent) == 1) ||
				shut != out.has("of a node that has joined, not measured: 1 of 1 path of the class host-port") {
				t.Errorf("left out %+v, said %q", got.JoinedSilent, out.lines)
			}
			if got.Quiet != test.quiet || !slices.Equal(nodes, test.joined) || !strings.HasPrefix(got.Why, test.why) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestJoinBacksOff: looks that fail are further and further apart, up to a bound.
func TestJoinBacksOff(t *testing.T) {
	a, _, _ := bench(kind.Guard{Quiet: step.Duration(20 * time.Second), AtMost: step.Duration(100 * time.Second)})
	j := &joiner{answers: []joins{{err: errors.New("the API server is away")}}}
	a.Joiner = j
	if got := do[result.Watched](t, a, step.Watch{}); got.Quiet || j.asked != 4 { // at 0, 20, 60 and 100 s
		t.Errorf("asked %d times: %+v", j.asked, got)
	}
}
