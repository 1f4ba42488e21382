package guarded

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// Follower leads paths to the addresses that the probe pods have now, and returns the nodes of those that have others
// (kube.Actor).
type Follower interface {
	FollowProbePods(ctx context.Context) ([]string, error)
}

// Joiner measures nodes that have joined (kube.Joins).
type Joiner interface {
	Join(ctx context.Context) (kube.Joined, error)
}

// joinEvery is how often nodes that have joined are looked for, or followReports if that is longer. The time doubles
// with each look that fails, mostBackOff times at most.
const joinEvery, mostBackOff = 10 * time.Second, 2

// joined is what is known of nodes that have joined.
type joined struct {
	at      time.Time // of the last look
	failed  int       // looks in a row
	waiting string
	all     []result.Joined
	silent  []path.Silence
}

// join looks for nodes that have joined. It says what is new, or what is still to come: paths of a node that are not
// measured yet are not quiet, and neither is a network whose nodes cannot be looked at. The next look tries again.
func (a *Actor) join(ctx context.Context, glance kube.Glance) (why string) {
	now := a.Clock.Now()
	every := max(joinEvery, followReports*glance.News) << min(a.joined.failed, mostBackOff)
	if a.Joiner == nil || now.Sub(a.joined.at) < every {
		return a.joined.waiting
	}
	got, err := a.Joiner.Join(ctx)
	a.joined.at, a.joined.waiting = now, got.Waiting
	for _, node := range got.Measured {
		why = "node " + node + " has joined, and its paths are measured from now on"
		a.joined.all = append(a.joined.all, result.Joined{Node: node, At: now})
		a.Say("note: " + why)
	}
	for _, one := range got.Silent {
		a.joined.silent = append(a.joined.silent, one)
		a.Say("note: of a node that has joined, not measured: " + one.String())
	}
	if a.joined.failed++; err != nil {
		a.joined.waiting = "Theseus cannot read which nodes have joined: " + err.Error()
		return a.joined.waiting
	}
	a.joined.failed = 0
	if got.Waiting != "" {
		why = got.Waiting
	}
	return why
}

// haveJoined are the nodes that were not told of yet, and those of their paths that are not measured.
func (a *Actor) haveJoined() (all []result.Joined, silent []path.Silence) {
	all, silent = a.joined.all, a.joined.silent
	a.joined.all, a.joined.silent = nil, nil
	return all, silent
}

// followEvery is how often the addresses of probe pods are looked at while probes are lost, and followReports the same
// in intervals of reports, which are longer in large clusters.
const (
	followEvery   = 5 * time.Second
	followReports = 5
)

// follow looks at the addresses of the probe pods if more probes were lost since it last did. A node that restarted has
// its pods at other addresses, and paths to the former ones would be lost permanently. An outage of the API server ends
// nothing: the next look tries again. The count falls when a source of probes starts again: what is lost after that is
// new, too.
func (a *Actor) follow(ctx context.Context, glance kube.Glance) {
	now := a.Clock.Now()
	a.followed.lost = min(a.followed.lost, glance.Lost)
	if a.Follower == nil || glance.Lost <= a.followed.lost ||
		now.Sub(a.followed.at) < max(followEvery, followReports*glance.News) {
		return
	}
	nodes, err := a.Follower.FollowProbePods(ctx)
	if err != nil {
		return
	}
	a.followed.lost, a.followed.at = glance.Lost, now
	for _, node := range nodes {
		a.Say(kube.Followed(node))
	}
}
