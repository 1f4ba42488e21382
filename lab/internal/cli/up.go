package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

func (a *app) up() *cobra.Command {
	var s spec.Lab
	var source, cache string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab and wait until it is ready",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.Name = a.name
			if err := supported(s); err != nil {
				return err
			}
			source, err := findSource(source)
			if err != nil {
				return err
			}
			store, err := state.Open(a.dir)
			if err != nil {
				return err
			}
			return launch.Up(cmd.Context(), launch.Options{
				Spec: s, Cache: build.New(source, cache, a.out), Store: store, Out: a.out, Limit: limit,
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&s.Nodes, "nodes", 3, "number of nodes, 1 to 16")
	f.StringVar(&s.Network, "network", "flannel", "network of the pods: "+choice(network.Names()))
	f.StringVar(&s.Policy, "policy", "", "policy agent next to the network: kube-router")
	f.StringVar(&s.Kubernetes, "kubernetes", env("THESEUS_LAB_KUBERNETES", build.KubernetesVersions()[0]),
		"version of Kubernetes: "+choice(build.KubernetesVersions()))
	runtimeFlag(f, &s.Runtime)
	calicoFlag(f, &s.Calico)
	valuesFlag(f, &s.Values)
	f.StringVar(&s.ConfDir, "cni-conf-dir", env("THESEUS_LAB_CNI_CONF_DIR", ""),
		"where containerd reads CNI configurations (default "+spec.DefaultConfDir+")")
	f.StringVar(&s.BinDir, "cni-bin-dir", env("THESEUS_LAB_CNI_BIN_DIR", ""),
		"where containerd searches CNI plugins (default "+spec.DefaultBinDir+")")
	f.StringVar(&s.ProxyMode, "kube-proxy", "iptables",
		"mode of kube-proxy: iptables, nftables, or none, which Cilium replaces")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "proxy-mode" { // as it was called before it could be none
			name = "kube-proxy"
		}
		return pflag.NormalizedName(name)
	})
	f.IntVar(&s.DiskMiB, "disk", 1024, "size of each node's root in MiB")
	buildFlags(f, &source, &cache)
	f.DurationVar(&limit, "timeout", 3*time.Minute, "how long the cluster may take to become ready")
	return cmd
}

// buildFlags declares the folders of the source and of built programs.
func buildFlags(f *pflag.FlagSet, source, cache *string) {
	f.StringVar(source, "source", "",
		"root of the repository (default: searched upwards from the current folder and from the program)")
	f.StringVar(cache, "cache", env("THESEUS_LAB_CACHE", defaultCache()), "directory of built programs and images")
}

// runtimeFlag declares the container runtime of the nodes.
func runtimeFlag(f *pflag.FlagSet, runtime *string) {
	f.StringVar(runtime, "runtime", env("THESEUS_LAB_RUNTIME", build.Runtimes()[0]),
		"container runtime of the nodes: "+choice(build.Runtimes()))
}

// calicoFlag declares the version of Calico.
func calicoFlag(f *pflag.FlagSet, version *string) {
	f.StringVar(version, "calico", "", "version of Calico, if the network is Calico, or of its images on flannel: "+
		choice(build.CalicoVersions())+" (default "+build.CalicoVersions()[0]+
		"); the nodes also get the images of further versions after a comma")
}

// valuesFlag declares values of the network's chart.
func valuesFlag(f *pflag.FlagSet, values *[]string) {
	f.StringArrayVar(values, "set", nil,
		"a value of the network's chart, as helm --set takes it, such as ipam.mode=kubernetes; Cilium only")
}

// supported refuses an impossible lab before anything is started.
func supported(s spec.Lab) error {
	if err := known(s); err != nil {
		return err
	}
	if s.Policy != "" && s.Policy != "kube-router" {
		return hint(fmt.Errorf("there is no policy agent %q", s.Policy), "use --policy kube-router, or leave it out")
	}
	if s.Policy == s.Network {
		return hint(fmt.Errorf("the network %s enforces policy itself", s.Network), "leave out --policy")
	}
	if err := s.Validate(); err != nil {
		return hint(err, "theseus-lab up --help lists the possible values")
	}
	return nil
}

// known refuses unknown networks and versions.
func known(s spec.Lab) error {
	if names := network.Names(); !slices.Contains(names, s.Network) {
		return hint(fmt.Errorf("there is no network %q", s.Network), "use --network %s", choice(names))
	}
	for version := range strings.SplitSeq(s.Calico, ",") {
		if versions := build.CalicoVersions(); s.Calico != "" && !slices.Contains(versions, version) {
			return hint(fmt.Errorf("Calico %q is not one of the versions that can be built", version),
				"use --calico %s", choice(versions))
		}
	}
	if s.Calico != "" && !strings.HasPrefix(s.Network, "calico") && s.Network != "flannel" {
		return hint(fmt.Errorf("--calico cannot be combined with the network %s", s.Network),
			"use --network calico or calico-typha; or flannel, which a lab changes to Calico")
	}
	if versions := build.KubernetesVersions(); !slices.Contains(versions, s.Kubernetes) {
		return hint(fmt.Errorf("Kubernetes %q is not one of the versions that can be built", s.Kubernetes),
			"use --kubernetes %s", choice(versions))
	}
	if runtimes := build.Runtimes(); !slices.Contains(runtimes, s.Runtime) {
		return hint(fmt.Errorf("there is no runtime %q", s.Runtime), "use --runtime %s", choice(runtimes))
	}
	return nil
}

// choice lists values for people.
func choice(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// findSource looks for the repository: the directory that holds lab/components.
func findSource(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if program, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(program))
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "lab", "components")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", hint(errors.New("the repository with lab/components was not found"),
		"run it inside the repository, or give --source DIR")
}

func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = "/var/cache"
	}
	return filepath.Join(dir, "theseus-lab")
}

func (a *app) down() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a lab and remove everything of it",
		Args:  exactly(0),
		RunE: func(*cobra.Command, []string) error {
			store, err := state.Open(a.dir)
			if err != nil {
				return err
			}
			names := []string{a.name}
			if all {
				if names, err = store.Names(); err != nil {
					return err
				}
			}
			for _, name := range names {
				start := time.Now()
				if err := launch.Down(store, name); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "%6.1fs  lab %s is removed\n", time.Since(start).Seconds(), name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every lab of the state directory")
	return cmd
}
