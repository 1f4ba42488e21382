package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// rehearse runs theseus rehearse on a scratch cluster of its own.
func (a *app) rehearse() *cobra.Command {
	var h scenario.Rehearse
	cmd := &cobra.Command{
		Use:   "rehearse --from SNAPSHOT [flags] -- ARG...",
		Short: "Run theseus rehearse on a cluster that is made for it, and removed at the end",
		Long: "Starts a cluster with the network of the snapshot, runs theseus rehearse on it with the arguments " +
			"after --, and\nremoves it at the end and on Ctrl-C. Without --manifest, --agent-image and -o, theseus " +
			"gets those of the lab. Its nodes\nhold the lab's own images, and pull no others. For --faults api " +
			"(the API server is away for 30 s), power\n(a node has none for 90 s) and loss (a node loses 1 % of its " +
			"packets for 90 s), theseus gets the commands of the lab.\nThe exit code is that of theseus rehearse.",
		Example: "  theseus-lab rehearse --from snapshot.json -- --to calico",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("name") {
				a.name = "reh"
			}
			h.Args = args
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usage(fmt.Errorf("%q is before --", args[0]))
			}
			if err := rehearsable(a.name, h); err != nil {
				return err
			}
			if err := a.free(a.name); err != nil {
				return err
			}
			rig, err := a.rig(h.Rig.Dir, h.Rig.Nodes)
			if err != nil {
				return err
			}
			rig.Network = h.Rig.Network
			h.Rig, h.In, h.To, h.Err = *rig, a.in, a.out, a.err
			return rehearsed(h.Run(cmd.Context()))
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&h.From, "from", nil, "snapshot of the original, or files or folders of Kubernetes YAML or JSON")
	f.StringSliceVar(&h.Ignore, "ignore", nil,
		"differences to ignore when nodes are divided into classes, as in theseus rehearse")
	f.StringVar(&h.Rig.Network, "network", "", "network of the cluster (default: that of the snapshot): "+
		choice(network.Names()))
	f.IntVar(&h.Rig.Nodes, "nodes", 0, "number of nodes (default: as many as the copy needs)")
	f.StringVar(&h.Rig.Dir, "dir", "rehearsal", "folder for the result and the report")
	f.BoolVar(&h.Keep, "keep", false, "keep the cluster running")
	return cmd
}

// rehearsable refuses what cannot be rehearsed before anything is started.
func rehearsable(name string, h scenario.Rehearse) error {
	for _, flag := range []string{"--from", "--ignore", "--context"} {
		if slices.ContainsFunc(h.Args, func(arg string) bool {
			return arg == flag || strings.HasPrefix(arg, flag+"=")
		}) {
			return hintUsage(fmt.Errorf("%s is after --", flag),
				"give --from and --ignore before --; theseus-lab gives theseus the --context of its cluster")
		}
	}
	switch {
	case len(h.From) == 0:
		return hintUsage(errors.New("--from is missing: it names the snapshot of the original"),
			"theseus snapshot -o snapshot.json, with the original's context; then --from snapshot.json")
	case slices.Contains(h.From, "-"):
		return hintUsage(errors.New("--from - cannot be rehearsed: the snapshot is read more than once"),
			"save the snapshot to a file, and name that")
	case len(h.Args) == 0:
		return hintUsage(errors.New("no change is named"),
			"theseus-lab rehearse --from snapshot.json -- --to calico")
	case h.Rig.Nodes < 0 || h.Rig.Nodes > spec.MaxNodes:
		return usage(fmt.Errorf("%d nodes: 1 to %d", h.Rig.Nodes, spec.MaxNodes))
	case h.Rig.Network != "" && !slices.Contains(network.Names(), h.Rig.Network):
		return hintUsage(fmt.Errorf("there is no network %q", h.Rig.Network), "use --network %s",
			choice(network.Names()))
	}
	if err := (spec.Lab{Name: name, Nodes: 1, ProxyMode: "iptables"}).Validate(); err != nil {
		return usage(err)
	}
	return nil
}

// rehearsed gives the error of a rehearsal its hint. That of theseus itself stays, with its exit code.
func rehearsed(err error) error {
	var need *scenario.NeedError
	switch {
	case errors.As(err, &need):
		return hintUsage(err, "%s", need.Hint)
	case errors.Is(err, context.Canceled):
		return hint(fmt.Errorf("interrupted: %w", err), "the same command starts again with a new cluster")
	case err != nil:
		if _, own := err.(*exec.ExitError); own {
			return err
		}
		return hint(err, "its output is above; theseus-lab status lists what is left of the cluster, and "+
			"theseus-lab down --name NAME removes it")
	}
	return nil
}
