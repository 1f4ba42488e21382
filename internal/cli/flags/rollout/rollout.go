package rollout

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/changeflags"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/planning"
)

// NewCommand makes the command theseus flags rollout.
func NewCommand(a *app.App) *cobra.Command {
	var from []string
	var source, key string
	var change changeflags.Flags
	command := &cobra.Command{
		Use:   "rollout {FLAG=VALUE | --flags SOURCE [--flag KEY]}",
		Short: "Plan the rollout of a setting of the network, node by node",
		Long: "Makes the plan of a rollout: each node gets the value in a configuration of its own, is " +
			"verified, and is compared\n" +
			"with the nodes that do not have it yet; at the end, the value becomes the cluster's. " +
			"With --flags, a flag set\n" +
			"decides the value of every node: Theseus evaluates it for each node now, and stores the " +
			"values in the plan. Nodes\n" +
			"that already have their value are not changed; the cluster's value changes once the " +
			"flag is the same for all\n" +
			"nodes. `theseus apply` carries out a plan that was written with -o FILE. This command changes nothing.\n" +
			"\n" + flagsource.Help + "\n" +
			flagsource.TokenVariable + " is the token for a server.",
		Example: "  theseus flags rollout nftablesMode=Enabled --waves 1,0 --agent-image IMAGE -o plan.yaml\n" +
			"  theseus flags rollout --flags flags.yaml --flag nftables --agent-image IMAGE -o plan.yaml",
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (source != "") || key != "" && source == "" {
				return exit.Fail(exit.Usage, command.CommandPath()+" --help",
					"%s takes FLAG=VALUE, or --flags", command.CommandPath())
			}
			if name, value, _ := strings.Cut(strings.Join(args, ""), "="); len(args) == 1 &&
				(name == "" || value == "") {
				return exit.Fail(exit.Usage,
					"write it as nftablesMode=Enabled, or let a flag set decide: --flags SOURCE",
					"%q is not FLAG=VALUE", args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			spec, err := change.Resolve(command)
			if err != nil {
				return err
			}
			if source == "" {
				spec.Flag = args[0]
				return planning.Make(command.Context(), a, from, spec,
					planning.Flags{AskSignals: change.SignalsGiven()})
			}
			return planning.Make(command.Context(), a, from, spec,
				planning.Flags{Origin: source, Key: key, AskSignals: change.SignalsGiven()})
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil,
		"snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input")
	command.Flags().StringVar(&source, "flags", "", "flag set that decides the value of every node")
	command.Flags().StringVar(&key, "flag", "",
		"key of the flag there; optional if only one controls a setting of the network")
	change.Register(command)
	change.RegisterSignals(command, changeflags.ByGates)
	return command
}
