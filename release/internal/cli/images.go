package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// images makes the images of a commit.
func (a *app) images() *cobra.Command {
	var version, registry, dir string
	command := &cobra.Command{
		Use:   "images",
		Short: "Make all images as one OCI layout, and print their names with their digests",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			m, err := a.maker(command.Context(), version, dir)
			if err != nil {
				return err
			}
			defer os.RemoveAll(m.Work)
			made, err := m.Layout(command.Context(), registry, dir)
			if err != nil {
				return err
			}
			for _, image := range made {
				fmt.Fprintln(a.out, image.Reference())
			}
			return nil
		},
	}
	a.limit(command)
	command.Flags().StringVar(&version, "version", "dev", "tag of the images, such as v0.2.0")
	command.Flags().StringVar(&registry, "registry", DefaultRegistry,
		"registry and folder that the images will be pushed to")
	command.Flags().StringVar(&dir, "dir", "bin/images", "the layout; one that is there is replaced")
	return command
}
