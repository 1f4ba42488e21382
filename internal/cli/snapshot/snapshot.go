package snapshot

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/agentimage"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// withAgent is the command that inspects the nodes.
const withAgent = "theseus snapshot --nodes --agent-image IMAGE -o snapshot.json"

// NewCommand makes the command theseus snapshot.
func NewCommand(a *app.App) *cobra.Command {
	var from []string
	var nodes bool
	var agent agentimage.Flags
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "Read a cluster into one file",
		Long: "Reads all input of checks and plans from the cluster into one file, which every " +
			"other command accepts with\n" +
			"--from. Secrets are never read. Kinds that could not be read are named in the " +
			"file and on standard error.\n" +
			"With --nodes, the file also has facts that only the nodes know (links, MTUs, CNI configurations):\n" +
			"Theseus' agent runs on every node for some seconds, changes nothing, and is removed again.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			switch a.Output {
			case "text", "yaml", "html":
				return exit.Fail(exit.Usage, "-o json, or -o FILE", "a snapshot cannot be written as %q", a.Output)
			}
			image := ""
			if nodes {
				if len(from) > 0 {
					return exit.Fail(exit.Usage, withAgent,
						"--nodes inspects a running cluster, and --from reads files")
				}
				var err error
				if image, err = agent.Must(withAgent); err != nil {
					return err
				}
			}
			snapshot, err := survey.See(command.Context(), a, from)
			if err != nil {
				return err
			}
			if nodes {
				if snapshot.Facts, err = survey.LookAtNodes(command.Context(), a, snapshot, image); err != nil {
					return err
				}
			}
			for _, source := range snapshot.Sources {
				if source.Missing != "" {
					fmt.Fprintf(a.Err, "note: no %s: %s\n", source.Resource, source.Missing)
				}
			}
			if a.Output == "" || a.Output == "json" || a.Output == "-" {
				return kube.WriteSnapshot(a.Out, snapshot)
			}
			return outfile.WriteBy(a.Output, func(to io.Writer) error { return kube.WriteSnapshot(to, snapshot) })
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil,
		"make the snapshot from files instead, such as the output of kubectl get -o yaml")
	command.Flags().BoolVar(&nodes, "nodes", false,
		"inspect every node too, with Theseus' agent, which is installed for that and removed again")
	agent.Register(command.Flags())
	return command
}
