package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// onNode runs a program inside a node.
func (a *app) onNode(ctx context.Context, node string, in io.Reader, argv ...string) error {
	return a.enter(ctx, node, in, []string{"--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"},
		argv...)
}

// enter runs a program in the namespaces of a node that the flags of nsenter name.
func (a *app) enter(ctx context.Context, node string, in io.Reader, flags []string, argv ...string) error {
	lab, client, n, err := a.nodeArg(node)
	if err != nil {
		return err
	}
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	name := lab.Spec.NodeName(n)
	i := slices.IndexFunc(nodes, func(n control.Node) bool { return n.Name == name && n.Running })
	if i < 0 {
		return hint(fmt.Errorf("%s has no power", name), "theseus-lab node start %s", name)
	}
	pid, err := lab.HostPid(nodes[i].Pid)
	if err != nil {
		return err
	}
	return a.run(ctx, in, "nsenter",
		slices.Concat([]string{"--target", strconv.Itoa(pid)}, flags, []string{"--"}, argv)...)
}

func (a *app) run(ctx context.Context, in io.Reader, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, a.out, a.err
	return cmd.Run()
}

func (a *app) exec() *cobra.Command {
	var network bool
	cmd := &cobra.Command{
		Use:     "exec [--network] -- COMMAND [ARG...]",
		Short:   "Run a command on the fabric, the network namespace that connects all nodes",
		Example: "  theseus-lab exec -- ping -c1 198.18.0.11",
		Args:    atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := a.lab()
			if err != nil {
				return err
			}
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			enter := []string{"--target", strconv.Itoa(lab.Pid), "--net", "--"}
			if !network { // the pid namespace too: the command ends with the lab
				enter = append(enter[:3:3], "--mount", "--pid", "--wdns="+dir, "--")
			}
			return a.run(cmd.Context(), a.in, "nsenter", append(enter, args...)...)
		},
	}
	cmd.Flags().BoolVar(&network, "network", false,
		"only its network namespace: files and processes are the host's, and the command does not end with the lab")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (a *app) kubectl() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [ARG...]",
		Short:              "Run kubectl against the lab",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = a.ownFlags(args)
			lab, err := a.lab()
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), a.in, lab.Spec.KubeBinary,
				append([]string{"kubectl", "--kubeconfig", launch.Kubeconfig(lab.Spec)}, args...)...)
		},
	}
}

// ownFlags splits theseus-lab's own flags, and a "--" after them, off the front of kubectl's arguments.
func (a *app) ownFlags(args []string) []string {
	for len(args) > 0 {
		key, value, joined := strings.Cut(args[0], "=")
		var into *string
		switch key {
		case "--name":
			into = &a.name
		case "--state":
			into = &a.dir
		case "--": // kubectl would take what follows as no command of its own
			return args[1:]
		default:
			return args
		}
		if joined {
			*into, args = value, args[1:]
			continue
		}
		if len(args) == 1 {
			return args
		}
		*into, args = args[1], args[2:]
	}
	return args
}

func (a *app) image() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Images of the nodes"}
	cmd.AddCommand(&cobra.Command{
		Use:   "load TAR...",
		Short: "Load the images of an archive on every node that has power",
		Args:  atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := a.lab()
			if err != nil {
				return err
			}
			var failed []error
			for _, tar := range args {
				failed = append(failed, a.loadImage(cmd.Context(), lab, tar))
			}
			return errors.Join(failed...)
		},
	})
	return cmd
}

func (a *app) loadImage(ctx context.Context, lab state.Lab, tar string) error {
	for _, name := range launch.NodeNames(lab.Spec) {
		f, err := os.Open(tar)
		if err != nil {
			return err
		}
		err = a.onNode(ctx, name, f, "ctr", "-n", "k8s.io", "images", "import", "-")
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
