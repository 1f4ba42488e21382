package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/felix"
	"github.com/theseus-cni/theseus/internal/kube"
	"github.com/theseus-cni/theseus/internal/plan"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/joint"
	"github.com/theseus-cni/theseus/internal/strategy/rollout"
)

func (a *app) flagsRolloutCommand() *cobra.Command {
	var from []string
	var source, key string
	var change changeFlags
	command := &cobra.Command{
		Use:   "rollout {FLAG=VALUE | --flags SOURCE [--flag KEY]}",
		Short: "Plan to give a flag of the network to one node after another",
		Long: "Makes the plan of a rollout: each node gets the value by a configuration of its own, is proven, and is\n" +
			"compared with the nodes that have not got it yet; at the end the value is folded back into the cluster's.\n" +
			"With --flags a flag set says what every node gets: it is evaluated for each node now, and what it said is kept in the\n" +
			"plan. Nodes that have it already stay as they are; the cluster's value changes once the flag says the same of all.\n" +
			"Written with -o FILE it is for `theseus apply`. Nothing is changed.\n\n" + sourceHelp + "\n" +
			tokenVariable + " is the token for a server.",
		Example: "  theseus flags rollout nftablesMode=Enabled --waves 1,0 --agent-image IMAGE -o plan.yaml\n" +
			"  theseus flags rollout --flags flags.yaml --flag nftables --agent-image IMAGE -o plan.yaml",
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (source != "") || key != "" && source == "" {
				return fail(exitUsage, command.CommandPath()+" --help", "%s takes FLAG=VALUE, or --flags", command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			spec, err := change.resolve(command)
			if err != nil {
				return err
			}
			if source == "" {
				spec.Flag = args[0]
				return a.plan(command.Context(), from, spec, planned{})
			}
			return a.plan(command.Context(), from, spec, planned{origin: source, key: key})
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, "snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input")
	command.Flags().StringVar(&source, "flags", "", "the flag set that says what every node gets")
	command.Flags().StringVar(&key, "flag", "", "the key of the flag there; may be left out where one alone means a setting of the network")
	change.register(command)
	return command
}

func (a *app) flagsVerifyCommand() *cobra.Command {
	var image string
	command := &cobra.Command{
		Use:   "verify",
		Short: "Compare what a flag is to be with what agents report and kernels show",
		Long: "Looks at every node: the value of Calico's data plane flag that is in force by the API and where it is written,\n" +
			"what the node's Felix says it runs with, and which rules the kernel has, with counters that are watched for\n" +
			"some seconds. Theseus' agent runs on every node for that, changes nothing, and is removed again. Drift ends\n" +
			"with exit code 3.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			if image == "" {
				return fail(exitUsage, "theseus flags verify --agent-image IMAGE", "verify looks at nodes, with the agent of --agent-image")
			}
			return a.verifyFlag(command.Context(), image)
		},
	}
	command.Flags().StringVar(&image, "agent-image", os.Getenv("THESEUS_AGENT_IMAGE"), "image of theseus-agent")
	return command
}

func (a *app) verifyFlag(ctx context.Context, image string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	snapshot, err := kube.Snapshot(ctx, client, a.version, time.Now())
	if err != nil {
		return err
	}
	all, network, err := plan.Wanted(snapshot, drivers())
	if err != nil {
		return err
	}
	watch := rollout.Dataplane("")
	watch.For = step.Duration(rollout.Watched)
	args, err := json.Marshal(watch)
	if err != nil {
		return err
	}
	questions := make([]kube.Question, len(all))
	for i := range all {
		questions[i] = kube.Question{Node: all[i].Node, Verb: step.VerbDataplane, Args: args}
	}
	seen, err := kube.Ask[step.Attestation](ctx, a.looker(client, "verify-"+snapshot.TakenAt.Format(time.RFC3339Nano)),
		joint.InstallAgent(image, lookTimeout), questions)
	if err != nil {
		return err
	}
	drift := 0
	for i := range all {
		all[i].Kernel = seen[i].Value
		if all[i].Agent, all[i].AgentAt, err = reported(ctx, client, network, all[i].Flag, all[i].Node); err != nil {
			return err
		}
		all[i].Judge(plan.PlaneOf(all[i].Wanted))
		drift += len(all[i].Drift)
	}
	if err := a.printAttestations(all); err != nil {
		return err
	}
	if drift > 0 {
		return quietExit(exitBlocked)
	}
	return nil
}

// reported is what the agent of a node says in its log.
func reported(ctx context.Context, client *kube.Client, network *cni.Installation, flag, node string) (value, at string, err error) {
	parameter, ok := felix.For(network.Version).ByField(flag)
	if !ok {
		return "", "", nil
	}
	return kube.Said(ctx, client.Typed, network.Agent.Namespace, network.Selector, node,
		step.Saying{Container: network.Agent.Name, Parameter: parameter.Name})
}

func (a *app) printAttestations(all []rollout.Attestation) error {
	if a.output == "json" {
		return printJSON(a.Out, all)
	}
	table := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tWANTED\tBY\tAGENT\tKERNEL\tEVIDENCE")
	for _, one := range all {
		by, agent := one.By, one.Agent
		if by == "" {
			by = "default"
		}
		if agent == "" {
			agent = "?"
		}
		fmt.Fprintf(table, "%s\t%s=%s\t%s\t%s\t%s\t%s\n", one.Node, one.Flag, one.Wanted, by, agent, one.Kernel.Kernel, one.Evidence())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	drifted := 0
	for _, one := range all {
		if len(one.Drift) > 0 {
			drifted++
			fmt.Fprintf(a.Out, "drift on %s: %s\n", one.Node, strings.Join(one.Drift, "; "))
		}
	}
	if drifted == 0 {
		fmt.Fprintf(a.Out, "no drift on %d nodes\n", len(all))
	}
	return nil
}
