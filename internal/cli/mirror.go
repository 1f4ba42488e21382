package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// twins is what the commands of the mirror strategy share: beside the cluster of the kubeconfig, the original, the
// other one.
type twins struct {
	*app
	other *genericclioptions.ConfigFlags
}

func (a *app) mirrorCommand() *cobra.Command {
	m := &twins{app: a, other: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "mirror",
		Short: "Move the work of a cluster to a second one, its mirror, and back",
		Long: "The strategy for clusters in which nothing may be touched under traffic: everything is copied to a second\n" +
			"cluster, traffic goes there, the network of the idle original is changed, and traffic comes back.\n" +
			"--kubeconfig and --context name the original, --mirror-kubeconfig and --mirror-context the mirror.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.PersistentFlags().StringVar(m.other.KubeConfig, "mirror-kubeconfig", "", "kubeconfig file of the mirror (else that of the original)")
	command.PersistentFlags().StringVar(m.other.Context, "mirror-context", "", "context of the mirror")
	command.AddCommand(m.certsCommand(), m.configCommand(), m.cloudCommand(), m.dnsCommand())
	command.AddCommand(m.printing(m.freezeCommand(), m.thawCommand(), m.registryCommand(), m.copyCommand(), m.diffCommand(), m.statusCommand(), m.teardownCommand())...)
	return command
}

// printing are commands that make no file: what they print is text or JSON, and nothing else may be asked for.
func (m *twins) printing(commands ...*cobra.Command) []*cobra.Command {
	for _, command := range commands {
		command.PreRunE = func(command *cobra.Command, _ []string) error {
			switch m.output {
			case "", "text", "json":
				return nil
			}
			return fail(exitUsage, "-o text or json", "%s cannot be written as %q", command.CommandPath(), m.output)
		}
	}
	return commands
}

// mirrorClient connects to the mirror. No request is sent yet.
func (m *twins) mirrorClient() (*kube.Client, error) {
	if *m.other.KubeConfig == "" && *m.other.Context == "" {
		return nil, fail(exitUsage, "name it with --mirror-context or --mirror-kubeconfig", "no mirror is named")
	}
	if *m.other.KubeConfig == "" {
		m.other.KubeConfig = m.kubeconfig.KubeConfig
	}
	config, err := m.other.ToRESTConfig()
	if err != nil {
		return nil, fail(exitFailed, "name it with --mirror-context or --mirror-kubeconfig", "no mirror: %v", err)
	}
	return kube.New(config, m.version)
}
