package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/swarm"
)

// swarm is a change of many nodes, most of which are a model.
func (a *app) swarm() *cobra.Command {
	var o swarm.Options
	var source, cache, dir, table string
	var plan []string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "swarm",
		Short: "Move a cluster of many modelled nodes to Calico, and count what that asks of the API server",
		Long: "Runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, and the product's " +
			"own agents of all nodes in one process.\n" +
			"A model replaces the kubelets, the agents' work on nodes, and the probes; it takes as long as the " +
			"lab took. Theseus' own program then\n" +
			"moves the cluster from flannel to Calico. Prints the time next to the plan's estimate, the memory of " +
			"theseus, and the requests by verb.",
		Example: "  theseus-lab swarm --nodes 100 --fault node-17=fail:adopt",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Nodes < 2 || o.Pods < 4 || o.Strategy != "adopt" && o.Strategy != "recreate" {
				return usage(fmt.Errorf("%d nodes with %d pods each, strategy %q: it takes 2 nodes, 4 pods, and "+
					"adopt or recreate", o.Nodes, o.Pods, o.Strategy))
			}
			rig, err := a.rig(dir, o.Nodes)
			if err != nil {
				return err
			}
			source, err := findSource(source)
			if err != nil {
				return err
			}
			o.Theseus, o.Out = rig.Theseus, a.out
			if o.Dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			if err := os.RemoveAll(filepath.Join(o.Dir, "data")); err != nil { // another cluster's
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			if err := o.Build(ctx, build.New(source, cache, a.out)); err != nil {
				return err
			}
			return runSwarm(ctx, o, plan, table)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 20, "number of nodes")
	f.IntVar(&o.Pods, "pods", 20, "number of pods on each node, besides those of the system")
	f.StringVar(&o.Strategy, "strategy", "adopt", "adopt or recreate")
	f.StringArrayVar(&o.Faults, "fault", nil,
		"what goes wrong when a node is first asked for a verb: NODE=fail:VERB, NODE=slow:VERB:DURATION,\n"+
			"NODE=restart:VERB (of its agent), NODE=lose:VERB:PERCENT (of its packets, from then on) or\n"+
			"NODE=vanish:VERB (repeatable)")
	f.Float64Var(&o.Times, "times", 1, "what the model takes, as a multiple of what the lab took")
	f.StringArrayVar(&plan, "plan-flag", nil, "flag for theseus plan, such as --bake=2s (repeatable)")
	f.StringVar(&dir, "dir", "swarm", "folder for logs, the plan and theseus' files")
	f.StringVar(&table, "table", "", "file of a table in Markdown, to which a row is added")
	f.DurationVar(&limit, "timeout", 2*time.Hour, "how long all of it may take")
	buildFlags(f, &source, &cache)
	return cmd
}

// runSwarm reports a change, and fails as theseus did.
func runSwarm(ctx context.Context, o swarm.Options, plan []string, table string) error {
	cluster, err := swarm.Start(ctx, o)
	defer cluster.Stop()
	if err != nil {
		return hint(err, "the logs are in %s", filepath.Join(o.Dir, "logs"))
	}
	report, err := cluster.Change(ctx, plan...)
	if report.Apply.Took > 0 {
		err = errors.Join(err, report.Print(o.Out))
		if table != "" {
			err = errors.Join(err, addRow(table, report.Row()))
		}
	}
	if err != nil {
		return hint(err, "the logs are in %s", filepath.Join(o.Dir, "logs"))
	}
	if code := report.Apply.Code; code != 0 {
		return &failure{err: errors.New("the change did not reach its end"),
			hint: "theseus said why, above", code: code}
	}
	return nil
}

// addRow adds a row to a table, or begins the table with it.
func addRow(file, row string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return err
	}
	if about.Size() == 0 {
		row = swarm.Head + row
	}
	if _, err := f.WriteString(row); err != nil {
		return err
	}
	return f.Close()
}
