package survey

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cli/agents"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// LookAtNodes gets the facts that only the nodes know, from Theseus' agent.
func LookAtNodes(ctx context.Context, a *app.App, snapshot *cluster.Snapshot,
	image string) (facts []cluster.NodeFacts, err error) {
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, agents.Timeout)
	defer cancel()
	err = agents.With(ctx, a, client, "look-"+snapshot.TakenAt.Format(time.RFC3339Nano), agents.Inspecting,
		func(ctx context.Context, actor *kube.Actor) error {
			install := joint.InstallAgent(image, snapshot.Kubernetes, snapshot.APIServers, agents.Timeout)
			facts, err = actor.Look(ctx, install, sights(snapshot))
			return err
		})
	return facts, err
}

// sights makes each node measure the path to a few others: to its neighbours in the list, and across it. Each reads the
// counters that the networks' own programs serve.
func sights(snapshot *cluster.Snapshot) []kube.Sight {
	nodes, readings := snapshot.Nodes, Readings(snapshot)
	all := make([]kube.Sight, len(nodes))
	for i := range nodes {
		all[i].Node, all[i].Readings = nodes[i].Name, readings
		for _, to := range []int{(i + 1) % len(nodes), (i + len(nodes) - 1) % len(nodes),
			(i + len(nodes)/2) % len(nodes)} {
			for _, address := range nodes[to].Status.Addresses {
				if address.Type == corev1.NodeInternalIP && to != i && !slices.Contains(all[i].Peers, address.Address) {
					all[i].Peers = append(all[i].Peers, address.Address)
				}
			}
		}
	}
	return all
}

// Readings are where the programs of a cluster's networks serve counters of their own, as far as agents may ask there.
func Readings(snapshot *cluster.Snapshot) (all []step.Reading) {
	for _, network := range drivers.All().Detect(snapshot) {
		for _, reading := range network.Readings {
			if reading.Local() == nil {
				all = append(all, reading)
			}
		}
	}
	return all
}
