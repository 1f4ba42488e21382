package explain

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// NewCommand makes the command theseus explain.
func NewCommand(a *app.App) *cobra.Command {
	return usage.Takes(&cobra.Command{
		Use:   "explain ID",
		Short: "Show what a check looks at, and how to fix its findings",
		Args:  usage.Exactly(1, "the ID of a check"),
		RunE: func(_ *cobra.Command, args []string) error {
			hint := "theseus check --list"
			for _, c := range preflight.All() {
				if c.ID == args[0] && a.Output == "json" {
					return preflight.ListJSON(a.Out, []check.Check{c})
				}
				if c.ID == args[0] {
					return a.Print(preflight.Page(c))
				}
				if strings.HasPrefix(c.ID, args[0]) || strings.EqualFold(c.ID, args[0]) {
					hint += ", such as " + c.ID
					break
				}
			}
			return exit.Fail(exit.Usage, hint, "there is no check %q", args[0])
		},
	}, "json")
}
