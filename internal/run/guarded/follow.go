package guarded

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// Follower leads paths to the addresses that the probe pods have now, and returns the nodes of those that have others
// (kube.Actor).
type Follower interface {
	FollowProbePods(ctx context.Context) ([]string, error)
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
		a.Say("note: the probe pod of " + node + " has another address, and its paths lead there from now on; what " +
			"was lost until now counts")
	}
}
