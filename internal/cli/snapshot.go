package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/kube"
)

func (a *app) snapshotCommand() *cobra.Command {
	var from []string
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "Read a cluster into one file",
		Long: "Reads everything that checks and plans rest on into one file, which every other command takes with\n" +
			"--from. Secrets are never read. What may not be read is named in the file, and on standard error.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			snapshot, err := a.see(command.Context(), from)
			if err != nil {
				return err
			}
			for _, source := range snapshot.Sources {
				if source.Missing != "" {
					fmt.Fprintf(a.Err, "note: no %s: %s\n", source.Resource, source.Missing)
				}
			}
			if a.output == "" || a.output == "json" {
				return kube.WriteSnapshot(a.Out, snapshot)
			}
			file, err := os.OpenFile(a.output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			if err := kube.WriteSnapshot(file, snapshot); err != nil {
				file.Close()
				return err
			}
			return file.Close()
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, "make the snapshot of files instead, as kubectl get -o yaml writes them")
	return command
}
