package freeze

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
)

func freezer(m *clusters.Clusters) (*replica.Freezer, error) {
	client, err := m.Client()
	if err != nil {
		return nil, err
	}
	cluster, err := replica.Connect(client)
	if err != nil {
		return nil, err
	}
	return &replica.Freezer{Cluster: cluster, Note: func(text string) { fmt.Fprintln(m.Err, "note: "+text) }}, nil
}

// NewFreeze makes the command theseus mirror freeze.
func NewFreeze(m *clusters.Clusters) *cobra.Command {
	var want freeze.Freeze
	command := &cobra.Command{
		Use:   "freeze -n NAMESPACE ... --because REASON",
		Short: "Stop deploys to namespaces, and prove that they have stopped",
		Long: `Stops users and pipelines in the chosen namespaces by a ValidatingAdmissionPolicy: it denies creating, changing,
scaling and deleting objects, and the message names the user who ordered the freeze, and the reason. What is
running continues: Kubernetes' controllers, autoscalers included, their objects, evictions, the lifecycle of pods,
status, events, leases, and pods of these namespaces that update their own ConfigMaps. Operators and others that write
as users of their own can continue if you name them with --allow.

Objects of Argo CD and Flux that deploy there are suspended, and record their former state.

The command reports success only once writes to every namespace were denied, ten times in a row, on new connections.
Users who may change admission policies can lift the freeze.`,
		Example: "  theseus mirror freeze -n shop -n billing --because 'the network is being changed, CHG-1234' " +
			"--allow system:serviceaccount:keda:keda-operator",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			slices.Sort(want.Namespaces)
			want.Namespaces = slices.Compact(want.Namespaces)
			want.Since = time.Now()
			if err := want.Check(); err != nil {
				return exit.Fail(exit.Usage, command.CommandPath()+" --help", "%w", err)
			}
			freezer, err := freezer(m)
			if err != nil {
				return err
			}
			if want.By, err = freezer.WhoAmI(command.Context()); err != nil {
				return err
			}
			suspended, err := freezer.Freeze(command.Context(), want)
			if err != nil {
				return err
			}
			if m.Output == "json" {
				terminal.Encode(m.Out, map[string]any{"frozen": want, "suspended": texts(suspended)})
				return nil
			}
			for _, key := range suspended {
				fmt.Fprintf(m.Out, "suspended %s\n", key)
			}
			fmt.Fprintf(m.Out, "frozen: %s; a write to each was denied\n", strings.Join(want.Namespaces, ", "))
			return nil
		},
	}
	command.Flags().StringSliceVarP(&want.Namespaces, "namespace", "n", nil, "namespaces to freeze")
	command.Flags().StringVar(&want.Reason, "because", "", "the reason, shown to everyone whose write is denied")
	command.Flags().StringSliceVar(&want.Allowed, "allow", nil, "users who may continue, and groups as group:NAME")
	return command
}

// NewThaw makes the command theseus mirror thaw.
func NewThaw(m *clusters.Clusters) *cobra.Command {
	return &cobra.Command{
		Use:   "thaw",
		Short: "End the freeze: deploys work as before",
		Long: "Removes the policy, proves that writes pass again, and restores every suspended object of " +
			"Argo CD and Flux exactly.\n" +
			"It also cleans up after a freeze that failed half-way. A second thaw changes nothing.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			freezer, err := freezer(m)
			if err != nil {
				return err
			}
			was, resumed, err := freezer.Thaw(command.Context())
			if err != nil {
				return err
			}
			if m.Output == "json" {
				terminal.Encode(m.Out, map[string]any{"thawed": was, "resumed": texts(resumed)})
				return nil
			}
			for _, key := range resumed {
				fmt.Fprintf(m.Out, "resumed %s\n", key)
			}
			if was == nil {
				fmt.Fprintln(m.Out, "nothing was frozen")
				return nil
			}
			fmt.Fprintf(m.Out, "thawed: %s; a write to each passed\n", strings.Join(was.Namespaces, ", "))
			return nil
		},
	}
}

func texts(keys []objects.Key) []string {
	names := []string{}
	for _, key := range keys {
		names = append(names, key.String())
	}
	return names
}
