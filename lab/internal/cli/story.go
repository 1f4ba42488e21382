package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// codeLoss is the exit code of a story with losses or leaks.
const codeLoss = 4

// rig is a lab with the programs in this program's folder.
func (a *app) rig(dir string, nodes int) (*scenario.Rig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	product := filepath.Join(filepath.Dir(self), "theseus")
	if _, err := os.Stat(product); err != nil {
		return nil, hint(errors.New("theseus is not in the folder of theseus-lab"), "make build makes both")
	}
	return &scenario.Rig{Name: a.name, Nodes: nodes, Lab: self, State: a.dir, Theseus: product, Dir: dir,
		Out: a.out}, nil
}

// demo is Theseus' main use from end to end.
func (a *app) demo() *cobra.Command {
	var to, from, strategy, proxy, source, cache string
	cmd := a.story("demo", "Move a cluster to another network under traffic, and show the losses", 3,
		func(ctx context.Context, r *scenario.Rig) error {
			r.Network, r.To, r.Strategy, r.Proxy = from, to, strategy, proxy
			switch {
			case to == network.Cilium:
				if err := a.toCilium(ctx, r, source, cache); err != nil {
					return err
				}
			case strategy == "" && from != "weave":
				r.Strategy = "adopt"
			}
			r.Outside = r.Strategy == "adopt" // with other strategies, hosts lose connections to pods that end
			return scenario.Demo(ctx, r)
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if to != "calico" && to != network.Cilium {
			return usage(fmt.Errorf("--to %s: the demo moves to calico or %s", to, network.Cilium))
		}
		return nil
	}
	cmd.Flags().StringVar(&from, "network", "flannel",
		"network that the cluster starts on: flannel or bridge (both with kube-router), weave, or calico (only with "+
			"--to cilium)")
	cmd.Flags().StringVar(&to, "to", "calico", "network to move to: calico or cilium")
	cmd.Flags().StringVar(&strategy, "strategy", "",
		"recreate or adopt; empty means adopt, or recreate from weave and to cilium")
	buildFlags(cmd.Flags(), &source, &cache)
	cmd.Flags().StringVar(&proxy, "proxy-mode", "",
		"mode of kube-proxy: iptables or nftables; empty for the lab's default")
	return cmd
}

// toCilium prepares the demo of a change to Cilium: pods are made again, since none can be adopted by Cilium yet, and
// the nodes need its images.
func (a *app) toCilium(ctx context.Context, r *scenario.Rig, source, cache string) error {
	source, err := findSource(source)
	if err != nil {
		return err
	}
	if r.Strategy == "" {
		r.Strategy = "recreate"
	}
	r.Say("to Cilium by %s: pods are created again, node by node, and policy is enforced throughout; first Cilium's "+
		"images, which take about seven minutes to build and are kept", r.Strategy)
	r.Images, err = scenario.ImagesOf(ctx, build.New(source, cache, a.out), network.Cilium)
	return err
}

// canary is the rollout of a flag.
func (a *app) canary() *cobra.Command {
	return a.story("canary", "Switch Calico's data plane to nftables and back, one node first, under traffic",
		3, scenario.Canary)
}

// benchFlags switches a data plane many times.
func (a *app) benchFlags() *cobra.Command {
	var bench scenario.FlagBench
	cmd := a.story("bench-flags", "Switch Calico's data plane to nftables and back many times, with Theseus and by "+
		"hand, and compare losses and leaks", 2,
		func(ctx context.Context, r *scenario.Rig) error { return bench.Run(ctx, r) })
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if min(bench.Runs, bench.Controls) < 1 {
			return usage(fmt.Errorf("%d runs and %d controls: at least one of each", bench.Runs, bench.Controls))
		}
		return nil
	}
	cmd.Flags().IntVar(&bench.Runs, "runs", 10, "number of switches each way with Theseus")
	cmd.Flags().IntVar(&bench.Controls, "controls", 2, "number of switches each way by hand")
	return cmd
}

// piDay is a real outage, and the same change without one.
func (a *app) piDay() *cobra.Command {
	return a.story("pi-day", "Reproduce the outage of Pi-Day 2023, and let Theseus prevent it", 5,
		func(ctx context.Context, r *scenario.Rig) error {
			_, err := scenario.PiDay(ctx, r)
			return err
		})
}

// mirror is a change of networks with a second cluster.
func (a *app) mirror() *cobra.Command {
	var strategy string
	cmd := a.story("mirror",
		"Move the names of a cluster's services to its mirror, change its network, and move them back", 1,
		func(ctx context.Context, r *scenario.Rig) error {
			r.Strategy = strategy
			return scenario.Mirror(ctx, r)
		})
	cmd.Flags().StringVar(&strategy, "strategy", "",
		"strategy of the change meanwhile: recreate, adopt or surge; empty means recreate")
	return cmd
}

// clients runs the clients of the mirror story, on the fabric.
func (a *app) clients() *cobra.Command {
	return &cobra.Command{Use: "clients", Hidden: true, Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return scenario.NameClients(cmd.Context(), a.in, a.out)
		}}
}

// story is a command that runs a story in a lab of its own, which it removes at the end.
func (a *app) story(name, short string, nodes int, play func(context.Context, *scenario.Rig) error) *cobra.Command {
	var dir string
	var keep bool
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("name") {
				a.name = strings.ReplaceAll(name, "-", "")
				a.name = a.name[:min(len(a.name), spec.MaxName)]
			}
			rig, err := a.rig(dir, nodes)
			if err != nil {
				return err
			}
			if !keep {
				defer rig.Down() //nolint:errcheck // the story's own error counts
			}
			return lossCode(play(cmd.Context(), rig))
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", nodes, "number of nodes")
	cmd.Flags().StringVar(&dir, "dir", name, "folder for the story's files")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the lab running")
	return cmd
}

// benchLoss compares Theseus with other ways to replace networks.
func (a *app) benchLoss() *cobra.Command {
	var bench scenario.Bench
	var only []string
	var pairs bool
	var source, cache string
	cmd := &cobra.Command{
		Use:   "bench-loss",
		Short: "Change the networks of clusters, with Theseus and in other ways, and compare the losses",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("name") {
				a.name = "bench"
			}
			if bench.Runs < 1 {
				return usage(fmt.Errorf("%d runs: at least one", bench.Runs))
			}
			bench.Swaps = scenario.Swaps()
			if pairs {
				bench.Swaps = scenario.Pairs()
			}
			if len(only) > 0 {
				bench.Swaps = nil
			}
			all := append(scenario.Swaps(), scenario.Pairs()...)
			for _, key := range only {
				i := slices.IndexFunc(all, func(s scenario.Swap) bool { return s.Key == key })
				if i < 0 {
					return usage(fmt.Errorf("--only: there is no %q", key))
				}
				bench.Swaps = append(bench.Swaps, all[i])
			}
			rig, err := a.rig(bench.Rig.Dir, bench.Rig.Nodes)
			if err != nil {
				return err
			}
			bench.Rig = *rig
			bench.Images = func(ctx context.Context, name string) ([]string, error) {
				source, err := findSource(source)
				if err != nil {
					return nil, err
				}
				return scenario.ImagesOf(ctx, build.New(source, cache, a.out), name)
			}
			return bench.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&bench.Rig.Nodes, "nodes", 3, "number of nodes")
	f.StringVar(&bench.Rig.Dir, "dir", "bench-loss", "folder for the results")
	f.IntVar(&bench.Runs, "runs", 3, "number of runs of each")
	f.BoolVar(&pairs, "pairs", false, "run Theseus' other changes, instead of those from flannel to Calico")
	buildFlags(f, &source, &cache)
	f.StringSliceVar(&only, "only", nil, "only these: "+swapNames())
	f.DurationVar(&bench.Limit, "limit", 15*time.Minute,
		"time limit of one change, and again for the cluster to become healthy after it")
	return cmd
}

// swapNames lists the changes to compare.
func swapNames() string {
	var names []string
	for _, s := range append(scenario.Swaps(), scenario.Pairs()...) {
		names = append(names, s.Key+" ("+s.Name+")")
	}
	return strings.Join(names, ", ")
}

// benchAdopt moves many running pods.
func (a *app) benchAdopt() *cobra.Command {
	var bench scenario.AdoptBench
	cmd := a.story("bench-adopt",
		"Move a cluster of many pods by adoption under traffic, and show the gaps of each pod", 3,
		func(ctx context.Context, r *scenario.Rig) error { return bench.Run(ctx, r) })
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if bench.Runs < 1 {
			return usage(fmt.Errorf("%d runs: at least one", bench.Runs))
		}
		return nil
	}
	cmd.Flags().IntVar(&bench.Runs, "runs", 5, "number of runs, each in a new cluster")
	cmd.Flags().IntVar(&bench.Pods, "pods", 60, "number of pods to move")
	cmd.Flags().DurationVar(&bench.Control, "control", 5*time.Minute,
		"how long the same traffic is counted before the change")
	return cmd
}

// lossCode gives a loss its exit code.
func lossCode(err error) error {
	var loss *scenario.LossError
	if errors.As(err, &loss) {
		return &failure{err: err, hint: "the report shows where and when", code: codeLoss}
	}
	return err
}
