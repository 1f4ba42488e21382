package cli

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/network"
)

// manifest prints the manifests that a user of a network would download and edit.
func (a *app) manifest() *cobra.Command {
	var source, cache, podCIDR, calico string
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
			modules := build.New(source, cache, a.err)
			data, err := network.Manifest(args[0], network.Params{
				PodCIDR: pods, ServiceCIDR: lab.Spec.ServiceCIDR(), DNS: lab.Spec.DNSIP(), Calico: build.CalicoComponent(calico),
				Modules: func(component, module string) (string, error) {
					return modules.ModuleDir(context.WithoutCancel(cmd.Context()), component, module)
				},
			})
			if err != nil {
				return err
			}
			_, err = a.out.Write(data)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&podCIDR, "pod-cidr", "", "addresses of the pods (default: the range that the lab reserves for a second network)")
	calicoFlag(f, &calico)
	buildFlags(f, &source, &cache)
	return cmd
}
