package registry

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/mirror/copy"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/mirror/image"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
)

// NewCommand makes the command theseus mirror registry.
func NewCommand(m *clusters.Clusters) *cobra.Command {
	flags := &copy.Flags{}
	containerd := false
	command := &cobra.Command{
		Use:   "registry -n NAMESPACE ... --registry OLD=NEW",
		Short: "Rewrite image names for the mirror's registry, and check that each can be pulled",
		Long: `Shows how copy with the same flags would rewrite images, in pods, pod templates, image volumes and the fields of
--image-field, and asks the new registry for each, with the pull secrets that its pods will have. It writes nothing.
Exit code 3 means that an image cannot be pulled; copy makes the same check before it writes.

The alternative keeps the image names: --containerd prints files that make the mirror's nodes pull images of the old
registry from the new one.`,
		Example: "  theseus mirror registry -n shop --registry registry.example.com=registry-mirror.example.com",
		Args:    usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if len(flags.Registries) == 0 {
				return exit.Fail(exit.Usage,
					"give one, such as --registry registry.example.com=registry-mirror.example.com",
					"no rule for registries is given")
			}
			if containerd {
				return showContainerd(m, flags.Registries)
			}
			copier, err := copy.OriginalCopier(m, flags)
			if err != nil {
				return err
			}
			plan, err := copier.Survey(command.Context())
			if err != nil {
				return err
			}
			proofs := registry.Prove(command.Context(), plan, flags.Unproven)
			if err := showProofs(m, proofs); err != nil {
				return err
			}
			for _, doubt := range plan.Doubts() {
				fmt.Fprintln(m.Err, "note: "+doubt)
			}
			return copy.Coded(registry.MustBeThere(proofs))
		},
	}
	flags.Register(command)
	command.Flags().BoolVar(&containerd, "containerd", false,
		"print containerd configuration for the nodes of the mirror instead")
	return command
}

func showProofs(m *clusters.Clusters, proofs []registry.Proof) error {
	if m.Output == "json" {
		type row struct {
			Namespace string   `json:"namespace"`
			Old       string   `json:"old"`
			New       string   `json:"new"`
			Secrets   []string `json:"pullSecrets"`
			Error     string   `json:"error,omitempty"`
			Proven    bool     `json:"proven"`
		}
		rows := []row{}
		for _, proof := range proofs {
			r := row{proof.Namespace, proof.Old, proof.New, proof.Secrets, "", proof.Err == nil && !proof.Trusted}
			if proof.Err != nil {
				r.Error = proof.Err.Error()
			}
			rows = append(rows, r)
		}
		terminal.Encode(m.Out, rows)
		return nil
	}
	table := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tIMAGE\tON THE MIRROR\t")
	for _, proof := range proofs {
		state := "is there"
		switch {
		case proof.Trusted:
			state = "not asked"
		case proof.Err != nil:
			state = "cannot be pulled"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", proof.Namespace, proof.Old, proof.New, state)
	}
	return table.Flush()
}

// showContainerd prints containerd's mirror configuration: a file for every registry, in the folder of its config_path.
func showContainerd(m *clusters.Clusters, texts []string) error {
	rules, err := image.ParseRules(texts)
	if err != nil {
		return exit.Fail(exit.Usage, "see theseus mirror registry --help", "%v", err)
	}
	for _, rule := range rules.Rules() {
		if strings.Contains(rule.Old, "/") || strings.Contains(rule.New, "/") {
			return exit.Fail(exit.Usage, "give registries only, or let copy rewrite the names",
				"containerd only has mirrors of whole registries, but %s=%s names a part of one", rule.Old, rule.New)
		}
		fmt.Fprintf(m.Out, "# /etc/containerd/certs.d/%s/hosts.toml\nserver = \"https://%s\"\n\n"+
			"[host.\"https://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", rule.Old, rule.Old, rule.New)
	}
	return nil
}
