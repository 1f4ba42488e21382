package sign

import (
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/planfile"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// NewCommand makes the command theseus sign.
func NewCommand(a *app.App) *cobra.Command {
	var key string
	command := &cobra.Command{
		Use:   "sign PLAN",
		Short: "Sign a plan that you have read, with your SSH key",
		Long: "Writes a signature of the plan's file next to it: PLAN.sig, or PLAN.2.sig and so on if that exists.\n" +
			"theseus apply --signed-by LIST --signers 2 carries out a plan only if two people on " +
			"the list have signed it.\n" +
			"It is an OpenSSH signature: ssh-keygen -Y sign -n " + signed.Namespace +
			" makes one too, and ssh-keygen -Y verify checks it.",
		Args: usage.Exactly(1, "one plan file"),
		RunE: func(_ *cobra.Command, args []string) error {
			if key == "" {
				return exit.Fail(exit.Usage,
					"add --key ~/.ssh/id_ed25519, or a .pub file whose key is in the SSH agent", "no key is given")
			}
			p, data, err := planfile.ReadData(args[0])
			if err != nil {
				return err
			}
			if err := plan.Verify(p); err != nil {
				return exit.Fail(exit.Failed, "make a new plan with `theseus plan`", "the plan is invalid: %w", err)
			}
			return planfile.Sign(a, args[0], p, data, key)
		},
	}
	command.Flags().StringVar(&key, "key", "", "file of an SSH key; with a public one (.pub), the SSH agent signs")
	return command
}
