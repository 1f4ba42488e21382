package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/cli/agentimage"
	"github.com/theseus-cni/theseus/internal/cli/agents"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// NewCommand makes the command theseus flags verify.
func NewCommand(a *app.App) *cobra.Command {
	var agent agentimage.Flags
	command := &cobra.Command{
		Use:   "verify [FLAG...]",
		Short: "Compare the values of flags with those of agents and kernels",
		Long: "Checks every node: the value of a flag that is in force by the API and where it is set, " +
			"the value that the node's\n" +
			"Felix or Cilium logged when it started, and, for flags that affect the kernel, its " +
			"state: rules in only one data\n" +
			"plane, with counters that are watched for some seconds, tables, interfaces and their " +
			"MTU, port and VNI, routes,\n" +
			"sysctls, and whether BIRD runs and its sessions are established. Without FLAG, it checks " +
			"the data plane's flags,\n" +
			"and all flags that are set and that Felix or the kernel shows. To read the kernel, " +
			"Theseus' agent runs on every\n" +
			"node, changes nothing, and is removed again. Drift ends with exit code 3.",
		RunE: func(command *cobra.Command, names []string) error {
			return run(command.Context(), a, names, agent.Image())
		},
	}
	agent.Register(command.Flags())
	return command
}

func run(ctx context.Context, a *app.App, names []string, image string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	snapshot, err := kube.Snapshot(ctx, client, a.Version, time.Now())
	if err != nil {
		return err
	}
	all, err := rollout.Wanted(snapshot, drivers.All(), names)
	if err != nil {
		return err
	}
	var install []step.Action
	if image != "" {
		install = joint.InstallAgent(image, snapshot.Kubernetes, snapshot.APIServers, agents.Timeout)
	}
	seen, facts, err := inKernel(ctx, a, client, all, install, "verify-"+snapshot.TakenAt.Format(time.RFC3339Nano))
	if err != nil {
		return err
	}
	words, err := saidBy(ctx, client, all)
	if err != nil {
		return err
	}
	drift, catalogue := 0, setting.Read(snapshot, nil).Catalogue()
	for i := range all {
		one := &all[i]
		word := words[one.Node][one.Expected.Parameter]
		k, err := catalogue.Find(one.Flag)
		if err != nil {
			return err
		}
		one.Agent, one.AgentAt = k.Heard(word.Value), word.At
		if one.Kernel != nil {
			one.Kernel = seen[one.Node]
		}
		one.Judge(word.Value, facts[one.Node])
		drift += len(one.Drift)
	}
	if err := printAttestations(a, all); err != nil {
		return err
	}
	if drift > 0 {
		return exit.Quiet(exit.Blocked)
	}
	return nil
}

// inKernel reads the kernel's state of all nodes: their rules, and everything else that the flags demand.
func inKernel(ctx context.Context, a *app.App, client *kube.Client, all []rollout.Attestation, install []step.Action,
	task string) (map[string]*step.Attestation, map[string]*cluster.NodeFacts, error) {
	watch := rollout.Dataplane("")
	watch.For = step.Duration(rollout.Watched)
	args, err := json.Marshal(watch)
	if err != nil {
		return nil, nil, err
	}
	var rules, looks []kube.Question
	asked := map[string]bool{}
	for _, one := range all {
		if one.Kernel != nil {
			rules = append(rules, kube.Question{Node: one.Node, Verb: step.VerbDataplane, Args: args})
		}
		if len(one.Expected.Proofs) > 0 && !asked[one.Node] {
			asked[one.Node] = true
			looks = append(looks, kube.Question{Node: one.Node, Verb: step.VerbFacts, Args: json.RawMessage("{}")})
		}
	}
	seen, facts := map[string]*step.Attestation{}, map[string]*cluster.NodeFacts{}
	if len(rules)+len(looks) == 0 {
		return seen, facts, nil
	}
	if len(install) == 0 {
		return nil, nil, exit.Fail(exit.Usage,
			"theseus flags verify --agent-image IMAGE, or name flags that do not affect the kernel",
			"verify inspects the nodes, with the agent of --agent-image")
	}
	return seen, facts, agents.With(ctx, a, client, task, agents.Inspecting, func(ctx context.Context,
		actor *kube.Actor) error {
		if len(rules) > 0 {
			answers, err := kube.Ask[step.Attestation](ctx, actor, install, rules)
			if err != nil {
				return err
			}
			for i, answer := range answers {
				seen[rules[i].Node] = &answer.Value
			}
		}
		if len(looks) == 0 {
			return nil
		}
		actor.Migration = task + "-facts"
		answers, err := kube.Ask[cluster.NodeFacts](ctx, actor, install, looks)
		for i, answer := range answers {
			facts[looks[i].Node] = &answer.Value
		}
		return err
	})
}

// saidBy has the values in the agents' logs, by node and parameter.
func saidBy(ctx context.Context, client *kube.Client,
	all []rollout.Attestation) (map[string]map[string]kube.Word, error) {
	type asked struct {
		node  string
		agent rollout.Agent
	}
	parameters := map[asked][]string{}
	for _, one := range all {
		if agent := one.Expected.Agent; agent != nil {
			who := asked{one.Node, *agent}
			parameters[who] = append(parameters[who], one.Expected.Parameter)
		}
	}
	words := map[string]map[string]kube.Word{}
	for who, names := range parameters {
		said, err := kube.SaidOf(ctx, client.Typed, who.agent.Namespace, who.agent.Selector,
			who.node, who.agent.Container, names)
		if err != nil {
			return nil, err
		}
		if words[who.node] == nil {
			words[who.node] = map[string]kube.Word{}
		}
		maps.Copy(words[who.node], said)
	}
	return words, nil
}

func printAttestations(a *app.App, all []rollout.Attestation) error {
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, all)
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
		if one.Expected.Parameter == "" {
			agent = "-"
		}
		kernel := "-"
		switch {
		case one.Kernel != nil:
			kernel = one.Kernel.Kernel
		case len(one.Seen) > 0:
			kernel = "shown"
		}
		fmt.Fprintf(table, "%s\t%s=%s\t%s\t%s\t%s\t%s\n", one.Node, one.Flag, one.Wanted, by,
			agent, kernel, one.Evidence())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	nodes, drifted := map[string]bool{}, map[string]bool{}
	for _, one := range all {
		nodes[one.Node] = true
		if len(one.Drift) > 0 {
			drifted[one.Node] = true
			fmt.Fprintf(a.Out, "drift on %s: %s: %s\n", one.Node, one.Flag, strings.Join(one.Drift, "; "))
		}
	}
	if len(drifted) == 0 {
		fmt.Fprintf(a.Out, "no drift on %s\n", cluster.Count(len(nodes), "node"))
	}
	return nil
}
