package plan

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/changeflags"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/plan/show"
	"github.com/theseus-cni/theseus/internal/cli/planning"
	"github.com/theseus-cni/theseus/internal/cli/usage"
)

// NewCommand makes the command theseus plan.
func NewCommand(a *app.App) *cobra.Command {
	var from, sources []string
	var change changeflags.Flags
	var mirrored mirrorFlags
	var key string
	var window time.Duration
	command := &cobra.Command{
		Use:   "plan",
		Short: "Make a plan that reads like a runbook",
		Long: "Reads the cluster (or --from a snapshot), runs the checks, and makes the plan: waves, steps, what\n" +
			"happens to every workload, the point of no return. Without -o it prints a " +
			"runbook; with -o FILE it also\n" +
			"writes the complete plan as YAML (as JSON if FILE ends in .json), for `theseus " +
			"apply`. It changes nothing.\n\n" +
			"With --window 4h, the plan says which steps fit into each window, by its estimates. " +
			"`theseus apply` stops at the\n" +
			"end of a window, while both networks are joined on every node, and `theseus " +
			"resume` begins the next one.\n\n" +
			"With --strategy mirror, it plans the whole way to a second cluster and back, for " +
			"namespaces that were copied\n" +
			"there once: it stops deploys, moves names in waves, changes the idle original, " +
			"moves the names back, and\n" +
			"removes the copies.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			spec, err := change.Resolve(command)
			if err != nil {
				return err
			}
			if key != "" && slices.Contains([]string{"", "text", "yaml", "json", "-"}, a.Output) {
				return exit.Fail(exit.Usage, "add -o plan.yaml; the signature is written next to it",
					"--sign signs a file, and -o names none")
			}
			if spec.Strategy != mirror.Name {
				if err := usage.Foreign(command.Flags(), mirror.Name); err != nil {
					return err
				}
			} else {
				if len(from) > 0 || len(sources) > 0 {
					return exit.Fail(exit.Usage, "leave --from and --flags out",
						"--strategy mirror reads both clusters and the zones")
				}
				if command.Flags().Changed("window") {
					return exit.Fail(exit.Usage, "leave it out; a person or a command changes the idle original, and "+
						"how long that takes is not known",
						"--window is given, and a plan by strategy mirror has no stopping places")
				}
				return planMirror(command.Context(), a, &mirrored, spec, key)
			}
			if command.Flags().Changed("window") && window <= 0 {
				return exit.Fail(exit.Usage, "give how long a window is, such as --window 4h or --window 90m",
					"--window %s is not longer than 0", window)
			}
			return planning.Make(command.Context(), a, from, spec,
				planning.Flags{Sources: sources, SignKey: key, Window: window, AskSignals: change.SignalsGiven()})
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil,
		"snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input")
	command.Flags().StringArrayVar(&sources, "flags", nil, "source of flags; their values on every node are resolved "+
		"now and stored in the plan (repeatable); theseus flags --help")
	command.Flags().StringVar(&change.Spec.Reflectors, "reflectors", "", "SELECTOR: make these nodes BGP route "+
		"reflectors; a Calico selector such as has(reflector); none makes a full mesh")
	command.Flags().StringVar(&key, "sign", "",
		"sign the file that -o names with this SSH key; theseus sign can do it later")
	command.Flags().DurationVar(&window, "window", 0, "how long each change window is, such as 4h: divide the change "+
		"into as many windows as it needs, at places where both networks can stay joined")
	change.Register(command)
	change.RegisterSignals(command, changeflags.ByGates)
	usage.OfStrategy(surge.Name, command.Flags(), func() { change.RegisterSurge(command) })
	usage.OfStrategy(mirror.Name, command.Flags(), func() { mirrored.register(command) })
	command.AddCommand(show.NewCommand(a))
	return command
}
