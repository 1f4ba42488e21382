package kube

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// FollowProbePods writes the addresses that the Ready probe pods have now into the paths that lead to them, and returns
// their nodes. When a node restarts, its probe pod is the same, but has another address. The counts of the paths go on,
// so what was lost until then stays lost.
func (a *Actor) FollowProbePods(ctx context.Context) (nodes []string, err error) {
	plans, err := a.probePlans(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := a.podsOn(ctx, "", v1alpha1.Namespace, v1alpha1.LabelProbe)
	if err != nil {
		return nil, err
	}
	present := map[v1alpha1.Endpoint]string{}
	for i := range pods {
		pod, network := &pods[i], pods[i].Labels[v1alpha1.LabelProbe]
		if (network == path.Old || network == path.New) && pod.DeletionTimestamp == nil && cluster.PodReady(pod) {
			present[v1alpha1.Endpoint{Node: pod.Spec.NodeName, Network: network}] = pod.Status.PodIP
		}
	}
	for i := range plans {
		paths := slices.Clone(plans[i].Spec.Paths)
		for j := range paths {
			target := paths[j].Target
			address := present[v1alpha1.Endpoint{Node: target.Node, Network: target.Network}]
			former, port, split := net.SplitHostPort(target.Address)
			if address == "" || split != nil || former == address || path.Elsewhere(paths[j].Class) {
				continue // a node's port is at the node's address, and a Service at its own
			}
			paths[j].Target.Address = net.JoinHostPort(address, port)
			if _, port, split := net.SplitHostPort(paths[j].Second); split == nil {
				paths[j].Second = net.JoinHostPort(address, port)
			}
			nodes = append(nodes, target.Node)
		}
		if !slices.Equal(paths, plans[i].Spec.Paths) {
			plan := planOf(plans[i].Name, plans[i].Spec.Generation+1, paths, reports{})
			plan.Spec.ReportMillis, plan.Spec.FullMillis = plans[i].Spec.ReportMillis, plans[i].Spec.FullMillis
			err = errors.Join(err, a.writePlanOver(ctx, plan, plans[i]))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), err
}

// Followed says that paths lead to the new address of a node's probe pod.
func Followed(node string) string {
	return "note: the probe pod of " + node + " has another address, and its paths lead there from now on; what " +
		"was lost until now counts"
}
