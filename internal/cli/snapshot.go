package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

func (a *app) snapshotCommand() *cobra.Command {
	var from []string
	var nodes bool
	var image string
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "Read a cluster into one file",
		Long: "Reads everything that checks and plans rest on into one file, which every other command takes with\n" +
			"--from. Secrets are never read. What may not be read is named in the file, and on standard error.\n" +
			"With --nodes the file also says what only the nodes themselves know (links, MTUs, CNI configurations):\n" +
			"Theseus' agent runs on every node for some seconds, changes nothing, and is removed again.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			switch a.output {
			case "text", "yaml", "html":
				return fail(exitUsage, "-o json, or -o FILE", "a snapshot cannot be written as %q", a.output)
			}
			if nodes && (image == "" || len(from) > 0) {
				return fail(exitUsage, "theseus snapshot --nodes --agent-image IMAGE -o snapshot.json",
					"--nodes looks at a running cluster, with the agent of --agent-image")
			}
			snapshot, err := a.see(command.Context(), from)
			if err != nil {
				return err
			}
			if nodes {
				if snapshot.Facts, err = a.lookAtNodes(command.Context(), snapshot, image); err != nil {
					return err
				}
			}
			for _, source := range snapshot.Sources {
				if source.Missing != "" {
					fmt.Fprintf(a.Err, "note: no %s: %s\n", source.Resource, source.Missing)
				}
			}
			if a.output == "" || a.output == "json" || a.output == "-" {
				return kube.WriteSnapshot(a.Out, snapshot)
			}
			return outfile.WriteBy(a.output, func(to io.Writer) error { return kube.WriteSnapshot(to, snapshot) })
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, "make the snapshot of files instead, as kubectl get -o yaml writes them")
	command.Flags().BoolVar(&nodes, "nodes", false, "look at every node too, by Theseus' agent, which is installed for that and removed again")
	command.Flags().StringVar(&image, "agent-image", "", "image of Theseus' agent, for --nodes")
	return command
}

// lookTimeout bounds how long the agent may take to come up on every node and answer.
const lookTimeout = 5 * time.Minute

// lookAtNodes asks Theseus' agent for what only the nodes themselves know.
func (a *app) lookAtNodes(ctx context.Context, snapshot *cluster.Snapshot, image string) (facts []cluster.NodeFacts, err error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err = a.withAgents(ctx, client, "look-"+snapshot.TakenAt.Format(time.RFC3339Nano), func(ctx context.Context, actor *kube.Actor) error {
		facts, err = actor.Look(ctx, joint.InstallAgent(image, snapshot.Kubernetes, lookTimeout), sights(snapshot.Nodes))
		return err
	})
	return facts, err
}

// sights lets each node measure the path to a few others: to its neighbours in the list, and across it.
func sights(nodes []corev1.Node) []kube.Sight {
	all := make([]kube.Sight, len(nodes))
	for i := range nodes {
		all[i].Node = nodes[i].Name
		for _, to := range []int{(i + 1) % len(nodes), (i + len(nodes) - 1) % len(nodes), (i + len(nodes)/2) % len(nodes)} {
			for _, address := range nodes[to].Status.Addresses {
				if address.Type == corev1.NodeInternalIP && to != i && !slices.Contains(all[i].Peers, address.Address) {
					all[i].Peers = append(all[i].Peers, address.Address)
				}
			}
		}
	}
	return all
}

// looker asks agents outside of any migration; the name is for its tasks.
func (a *app) looker(client *kube.Client, name string, epoch int64) *kube.Actor {
	return &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: run.Clock{},
		Migration: name, Epoch: epoch, Note: func(text string) { fmt.Fprintln(a.Err, text) }}
}
