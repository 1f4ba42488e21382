package guarded

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// Follower leads paths to the addresses that the probe pods have now, and returns the nodes of those that have others
// (kube.Actor).
type Follower interface {
	FollowProbePods(ctx context.Context) ([]string, error)
}

// Joiner measures nodes that have joined, and returns those that are measured from now on. waiting says why another one
// is not yet; empty if there is none (kube.Joins).
type Joiner interface {
	Join(ctx context.Context) (measured []string, waiting string, err error)
}

// joinEvery is how often nodes that have joined are looked for, or followReports if that is longer.
const joinEvery = 10 * time.Second

// joined is what is known of nodes that have joined.
type joined struct {
	at      time.Time // of the last look
	waiting string
	all     []result.Joined
}

// join looks for nodes that have joined. It says what is new, or what is still to come: paths of a node that are not
// measured yet are not quiet, and neither is a network whose nodes cannot be looked at. The next look tries again.
func (a *Actor) join(ctx context.Context, glance kube.Glance) (why string) {
	now := a.Clock.Now()
	if a.Joiner == nil || now.Sub(a.joined.at) < max(joinEvery, followReports*glance.Every) {
		return a.joined.waiting
	}
	nodes, waiting, err := a.Joiner.Join(ctx)
	a.joined.at, a.joined.waiting = now, waiting
	if err != nil {
		a.joined.waiting = "it is not known which nodes have joined: " + err.Error()
		return a.joined.waiting
	}
	for _, node := range nodes {
		why = "node " + node + " has joined, and its paths are measured from now on"
		a.joined.all = append(a.joined.all, result.Joined{Node: node, At: now})
		a.Say("note: " + why)
	}
	if waiting != "" {
		why = waiting
	}
	return why
}

// haveJoined are the nodes that were not told of yet.
func (a *Actor) haveJoined() []result.Joined {
	all := a.joined.all
	a.joined.all = nil
	return all
}

// followEvery is how often the addresses of probe pods are looked at while probes are lost, and followReports the same
// in intervals of reports, which are longer in large clusters.
const (
	followEvery   = 5 * time.Second
	followReports = 5
)

// follow looks at the addresses of the probe pods if more probes were lost since it last did. A node that restarted has
// its pods at other addresses, and paths to the former ones would be lost for good. An outage of the API server ends
// nothing: the next look tries again. The count falls when a source of probes starts again: what is lost after that is
// new, too.
func (a *Actor) follow(ctx context.Context, glance kube.Glance) {
	now := a.Clock.Now()
	a.followed.lost = min(a.followed.lost, glance.Lost)
	if a.Follower == nil || glance.Lost <= a.followed.lost ||
		now.Sub(a.followed.at) < max(followEvery, followReports*glance.Every) {
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
