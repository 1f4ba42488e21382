package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/agentimage"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/benching"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/benched"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// NewCommand makes the command theseus bench.
func NewCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the network of a live cluster carries",
		Args:  usage.None,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newNetwork(a), newDraw(a))
	return command
}

// options are the flags of theseus bench network.
type options struct {
	bounds   bench.Bounds
	nodes    []string
	agent    agentimage.Flags
	dry, yes bool
}

func newNetwork(a *app.App) *cobra.Command {
	o := &options{bounds: bench.Defaults()}
	command := &cobra.Command{
		Use:   "network",
		Short: "Put a bounded load on the network of a live cluster, and measure throughput, rates and latencies",
		Long: "Makes a client and responders in pods and on the host network of two nodes. It measures, one after\n" +
			"another: the round trip at rest; TCP with 1 and 8 streams, UDP, small datagrams and new connections,\n" +
			"from pod to pod on one node and on two nodes, and from pod to host; requests through a Service;\n" +
			"and DNS queries. Probes run during every load, and measure the round trip under load. All\n" +
			"measurements are repeated --runs times, in turn, and the medians are printed with their spread.\n" +
			"Latencies start at the time at which an operation was scheduled, so a stall counts for every\n" +
			"operation in it.\n\n" +
			"The load is real, and the network is in use. The bounds are --rate, --throughput, --link-share and\n" +
			"--duration. The command prints the cost first. The load stops at once, with exit code 5, when a\n" +
			"node under load can no longer take it (not Ready, cordoned, tainted, under pressure), when the\n" +
			"client's node is overloaded, or when probes, requests or DNS queries under load are slow\n" +
			"(--max-round-trip) or lost. At the end, and on Ctrl-C, everything that was made is removed. If\n" +
			"that is not possible, the load ends with the current run: each run has a client pod of its own.\n" +
			"The benchmark does not run during a migration.",
		Example: "  theseus bench network --dry-run\n" +
			"  theseus bench network --nodes node-a,node-b --throughput 500 -o json > before.json",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			image, err := o.read(a)
			if err != nil {
				return err
			}
			return o.network(command.Context(), a, image)
		},
	}
	flags := command.Flags()
	flags.IntVar(&o.bounds.Runs, "runs", o.bounds.Runs,
		"how often every measurement is repeated, in turn with the others")
	flags.DurationVar(&o.bounds.Duration, "duration", o.bounds.Duration, "how long each measurement takes")
	flags.IntVar(&o.bounds.Rate, "rate", o.bounds.Rate,
		"datagrams and requests a second, at most; new connections are a quarter of it, DNS queries a tenth")
	flags.IntVar(&o.bounds.Megabits, "throughput", o.bounds.Megabits,
		"Mbit/s of all TCP streams together, and of UDP (at most 1000), at most")
	flags.DurationVar(&o.bounds.MaxRoundTrip, "max-round-trip", o.bounds.MaxRoundTrip,
		"stop when, within a second, more than half of the probes, requests or DNS queries under load take longer")
	flags.IntVar(&o.bounds.LinkShare, "link-share", o.bounds.LinkShare,
		"percent of a node's link that --throughput may be at most, if the node knows its link's speed")
	flags.IntVar(&o.bounds.CPUShare, "max-cpu-share", o.bounds.CPUShare,
		"stop when all programs together keep a node's processors busier than this for a second, in percent; 100 "+
			"disables the check")
	flags.BoolVar(&o.bounds.KeepGoing, "keep-going", false,
		"after a measurement that was stopped because answers were slow or lost, go on with the next one")
	flags.IntSliceVar(&o.bounds.PolicyRules, "policy-rules", nil,
		"repeat a part of the measurements with so many rules of policy, such as 10,1000,10000; they are in "+
			"NetworkPolicies of the benchmark, which select its own pod alone, and are removed")
	flags.StringSliceVar(&o.nodes, "nodes", nil,
		"NODE,NODE: the client's node, and the other one (default: the first two that can take load)")
	flags.BoolVar(&o.dry, "dry-run", false, "print what it would cost, and make nothing")
	flags.BoolVar(&o.yes, "yes", false, "do not ask (required when the input is not a terminal)")
	o.agent.Register(flags)
	return usage.Takes(command, "text", "json", "html")
}

// read checks the flags.
func (o *options) read(a *app.App) (image string, err error) {
	if err := o.bounds.Validate(); err != nil {
		return "", exit.Fail(exit.Usage, "theseus bench network --help shows the bounds",
			"%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if o.bounds.CPUShare == 0 { // results of older versions have it
		return "", exit.Fail(exit.Usage, "100 disables the check", "--max-cpu-share 0 is not between 1 and 100")
	}
	if o.dry { // it makes nothing
		return "", nil
	}
	if image, err = o.agent.Must("theseus bench network --agent-image IMAGE"); err != nil {
		return "", err
	}
	if _, ok := a.Terminal(); !o.yes && !ok {
		return "", exit.Fail(exit.Usage, "check it with --dry-run, then add --yes",
			"bench network asks before it puts load on the cluster, and the input is not a terminal")
	}
	return image, nil
}

func (o *options) network(ctx context.Context, a *app.App, image string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	b := &benched.Bench{Client: client, Image: image, Bounds: o.bounds, Note: func(text string) {
		fmt.Fprintln(a.Err, text)
	}}
	if b.Nodes, err = benching.Choose(ctx, a, client, o.nodes, o.bounds); err != nil {
		return err
	}
	to := a.Err // the cost; the result goes to the output
	if o.dry {
		to = a.Out
	}
	if err := o.cost(to, a, b); err != nil || o.dry {
		return err
	}
	if !o.yes {
		if err := a.Typed(ctx, "bench"); err != nil {
			return err
		}
		// the question may have stood for hours
		if _, err := benching.Choose(ctx, a, client, benching.Names(b.Nodes), o.bounds); err != nil {
			return exit.Fail(exit.Failed, exit.HintOf(err), "%s", err.Error())
		}
	}
	result, err := benching.Measure(ctx, a, b)
	if result == nil {
		return err
	}
	if len(result.Rows) > 0 {
		if shown := show(a, result); shown != nil {
			return errors.Join(shown, err)
		}
	}
	return benching.Verdict(result, err)
}

// cost prints what a benchmark costs.
func (o *options) cost(to io.Writer, a *app.App, b *benched.Bench) error {
	if o.dry && a.Output == "json" {
		return terminal.WriteJSON(to, map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "NetworkBenchCost",
			"bounds": o.bounds, "cost": b.Cost(), "pods": b.Pods(), "nodes": benching.Names(b.Nodes)})
	}
	benching.Cost(to, "theseus bench network", b)
	return nil
}

// show prints a result.
func show(a *app.App, result *bench.Result) error {
	switch a.Output {
	case "json":
		return terminal.WriteJSON(a.Out, result)
	case "html":
		page, err := report.Bench(result)
		if err != nil {
			return err
		}
		_, err = a.Out.Write(page)
		return err
	}
	where := result.Client
	if result.Other != "" {
		where += " and " + result.Other
	}
	return a.Printed(func(to io.Writer) error {
		fmt.Fprintf(to, "The network between pods on %s, %s\n\n", where, result.Began)
		return result.WriteTable(to)
	})
}
