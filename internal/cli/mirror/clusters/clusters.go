package clusters

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// Clusters is shared by the commands of the mirror strategy: in addition to the cluster of the kubeconfig, the
// original, it has the mirror.
type Clusters struct {
	*app.App
	Other *genericclioptions.ConfigFlags
}

// Printing marks commands that make no file: they print text or JSON, and refuse other formats.
func (m *Clusters) Printing(commands ...*cobra.Command) []*cobra.Command {
	for _, command := range commands {
		command.PreRunE = func(command *cobra.Command, _ []string) error {
			switch m.Output {
			case "", "text", "json":
				return nil
			}
			return exit.Fail(exit.Usage, "-o text or json", "%s cannot be written as %q",
				command.CommandPath(), m.Output)
		}
	}
	return commands
}

// MirrorClient connects to the mirror. No request is sent yet.
func (m *Clusters) MirrorClient() (*kube.Client, error) {
	if *m.Other.KubeConfig == "" && *m.Other.Context == "" {
		return nil, exit.Fail(exit.Usage, "name it with --mirror-context or --mirror-kubeconfig", "no mirror is named")
	}
	if flags, same := m.Kubeconfig.(*genericclioptions.ConfigFlags); same && *m.Other.KubeConfig == "" {
		m.Other.KubeConfig = flags.KubeConfig
	}
	config, err := m.Other.ToRESTConfig()
	if err != nil {
		return nil, exit.Fail(exit.Failed, "name it with --mirror-context or --mirror-kubeconfig", "no mirror: %v", err)
	}
	return kube.New(config, m.Version)
}

// Note prints a note on standard error.
func (m *Clusters) Note(text string) { fmt.Fprintln(m.Err, "note: "+text) }
