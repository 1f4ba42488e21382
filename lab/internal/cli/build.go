package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// build makes everything that labs need, before `up`: commands that then run without network access, as the lab's tests
// do, find everything in the cache.
func (a *app) build() *cobra.Command {
	var networks, versions []string
	var runtime string
	var calico string
	var source, cache string
	cmd := &cobra.Command{
		Use:     "build",
		Short:   "Build the programs and images of labs, so that up finds them",
		Example: "  theseus-lab build --network weave",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []spec.Lab
			for _, version := range versions {
				for _, network := range networks {
					s := spec.Lab{Network: network, Kubernetes: version, Calico: calico, Runtime: runtime}
					if err := known(s); err != nil {
						return err
					}
					all = append(all, s)
				}
			}
			source, err := findSource(source)
			if err != nil {
				return err
			}
			start, programs := time.Now(), build.New(source, cache, a.out)
			for _, s := range all {
				images, err := launch.Build(cmd.Context(), programs, &s, a.out)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%6.1fs  built Kubernetes %s and %d images for %s\n",
					time.Since(start).Seconds(), s.Kubernetes, images, s.Network)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&networks, "network", network.Usual(), "networks")
	calicoFlag(f, &calico)
	f.StringSliceVar(&versions, "kubernetes", build.KubernetesVersions()[:1], "versions of Kubernetes")
	runtimeFlag(f, &runtime)
	buildFlags(f, &source, &cache)
	return cmd
}
