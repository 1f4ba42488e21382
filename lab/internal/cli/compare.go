package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// compare measures several networks in turn.
func (a *app) compare() *cobra.Command {
	var c scenario.Compare
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Put the same load on several networks in turn, each in a cluster of its own, and compare them",
		Long: "Starts a cluster for each network, and runs theseus bench network in each of them once in every " +
			"round; the order rotates.\nPrints one table, and writes it with all results to compare.json and " +
			"compare.html. All clusters run at the same time, and are\nremoved at the end and on Ctrl-C. A " +
			"measurement that fails is named, the others go on, and the exit code is 1.",
		Example: "  theseus-lab compare --networks flannel,calico,calico-nftables,weave,bridge",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("name") {
				a.name = "cmp"
			}
			if err := possible(a.name, c); err != nil {
				return err
			}
			var names []string
			for i := range c.Networks {
				names = append(names, scenario.ClusterName(a.name, i))
			}
			if err := a.free(names...); err != nil {
				return err
			}
			rig, err := a.rig(c.Rig.Dir, c.Rig.Nodes)
			if err != nil {
				return err
			}
			source, err := findSource("")
			if err != nil {
				return err
			}
			programs := build.New(source, env("THESEUS_LAB_CACHE", defaultCache()), a.out) // as up finds them
			if err := built(cmd.Context(), programs, c.Networks); err != nil {
				return err
			}
			if err := roomy("/proc/meminfo", c); err != nil {
				return err
			}
			if err := os.MkdirAll(c.Rig.Dir, 0o755); err != nil {
				return err
			}
			c.Rig = *rig
			return compared(c.Run(cmd.Context()), c.Rig.Dir)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Networks, "networks", []string{"flannel", "calico", scenario.CalicoNftables, "weave", "bridge"},
		"networks to compare: "+strings.Join(comparableNames(), ", "))
	f.IntVar(&c.Rounds, "rounds", 3, "number of rounds")
	f.IntVar(&c.Rig.Nodes, "nodes", 2, "number of nodes of each cluster")
	f.StringVar(&c.Rig.Dir, "dir", "compare", "folder for the results")
	f.DurationVar(&c.Duration, "duration", time.Second, "how long each measurement of theseus bench network takes")
	f.IntVar(&c.Rate, "rate", 2000, "datagrams and requests a second that are offered")
	f.IntVar(&c.Megabits, "throughput", 10000, "Mbit/s of TCP that are offered; the default is more than a lab carries")
	return cmd
}

// comparableNames are the networks that can be compared.
func comparableNames() []string {
	names := slices.DeleteFunc(network.Names(), func(name string) bool { return name == "none" })
	return append(names, scenario.CalicoNftables)
}

// free refuses to start labs with the names of running ones: they would be removed at the end.
func (a *app) free(names ...string) error {
	store, err := state.Open(a.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if lab, err := store.Load(name); err == nil && lab.Running() {
			return hint(fmt.Errorf("%w: %s", launch.ErrRunning, name),
				"theseus-lab down --name %s ends it; --name gives the new cluster another name", name)
		}
	}
	return nil
}

// possible refuses a comparison that cannot be made.
func possible(name string, c scenario.Compare) error {
	names, seen := comparableNames(), map[string]bool{}
	for _, network := range c.Networks {
		if !slices.Contains(names, network) {
			return hintUsage(fmt.Errorf("there is no network %q", network), "use --networks with two or more of %s",
				strings.Join(names, ", "))
		}
		if seen[network] {
			return hintUsage(fmt.Errorf("the network %s is named twice", network),
				"name each network once; --rounds repeats the measurements")
		}
		seen[network] = true
	}
	switch {
	case len(c.Networks) < 2:
		return hintUsage(fmt.Errorf("%s: a comparison needs two or more", spec.Count(len(c.Networks), "network")),
			"theseus-lab compare --networks flannel,calico")
	case c.Rounds < 1:
		return usage(fmt.Errorf("%d rounds: at least one", c.Rounds))
	case c.Rig.Nodes < 2 || c.Rig.Nodes > spec.MaxNodes:
		return usage(fmt.Errorf("%d nodes: 2 to %d", c.Rig.Nodes, spec.MaxNodes))
	case len(name) >= spec.MaxName:
		return usage(fmt.Errorf("lab name %q: at most %d letters and digits, as a letter is added for each network",
			name, spec.MaxName-1))
	}
	return nil
}

// built refuses networks with programs that have to be built first, which takes minutes.
func built(ctx context.Context, programs *build.Cache, networks []string) error {
	for _, name := range networks {
		missing, err := launch.Missing(ctx, programs, spec.Lab{Network: scenario.Base(name),
			Kubernetes: build.KubernetesVersions()[0], Runtime: env("THESEUS_LAB_RUNTIME", build.Runtimes()[0])})
		if err != nil {
			return hint(fmt.Errorf("the network %s: %w", name, err), "theseus-lab build --network %s",
				scenario.Base(name))
		}
		if len(missing) > 0 {
			return hint(fmt.Errorf("programs of the network %s are not built: %s", name, strings.Join(missing, ", ")),
				"theseus-lab build --network %s", scenario.Base(name))
		}
	}
	return nil
}

// perNode is the memory of a node with its part of the control plane, in MiB.
const perNode = 768

// roomy refuses more clusters than the machine's memory holds.
func roomy(meminfo string, c scenario.Compare) error {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return err
	}
	free, needs := 0, len(c.Networks)*c.Rig.Nodes*perNode
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "MemAvailable: %d kB", &free) //nolint:errcheck // other lines
	}
	if free /= 1024; free < needs {
		return hint(fmt.Errorf("%d clusters of %d nodes need about %d MiB of memory, and %d MiB are available",
			len(c.Networks), c.Rig.Nodes, needs, free), "compare fewer networks at once with --networks")
	}
	return nil
}

// compared gives the error of a comparison its hint.
func compared(err error, dir string) error {
	var failed *scenario.FailedError
	switch {
	case errors.As(err, &failed):
		return hint(err, "the reasons are below the table, and in compare.json in %s", dir)
	case errors.Is(err, context.Canceled):
		return hint(fmt.Errorf("interrupted: %w", err), "the same command starts again from the first round")
	case err != nil:
		return hint(err, "its output is above; theseus-lab status lists what is left of the clusters, and "+
			"theseus-lab down --name NAME removes it")
	}
	return nil
}
