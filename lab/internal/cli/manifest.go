package cli

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/network"
)

// manifest prints the manifests that a user of a network would download and edit.
func (a *app) manifest() *cobra.Command {
	var source, cache, podCIDR, calico string
	var values []string
	cmd := &cobra.Command{
		Use:     "manifest NETWORK",
		Short:   "Print the manifests of a network, as its users apply them",
		Example: "  theseus-lab manifest calico > calico.yaml",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := a.lab()
			if err != nil {
				return err
			}
			pods := lab.Spec.NewPodCIDR()
			if podCIDR != "" {
				if pods, err = netip.ParsePrefix(podCIDR); err != nil {
					return usage(fmt.Errorf("--pod-cidr: %w", err))
				}
			}
			source, err := findSource(source)
			if err != nil {
				return err
			}
			params := launch.Params(cmd.Context(), lab.Spec, build.New(source, cache, a.err))
			params.PodCIDR, params.Calico, params.Values = pods, build.CalicoComponent(calico), values
			data, err := network.Manifest(args[0], params)
			if err != nil {
				return err
			}
			_, err = a.out.Write(data)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&podCIDR, "pod-cidr", "",
		"addresses of the pods (default: the range that the lab reserves for a second network)")
	calicoFlag(f, &calico)
	valuesFlag(f, &values)
	buildFlags(f, &source, &cache)
	return cmd
}
