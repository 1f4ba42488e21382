package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/fabric"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

func (a *app) node() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add and remove nodes, run a command on a node, or inject a fault"}
	cmd.AddCommand(a.nodeAdd(), a.nodeRemove(), a.nodeExec(), a.nodeKill(), a.nodeStart(), a.nodePartition(),
		a.nodeHeal(), a.nodeFillDisk())
	return cmd
}

func (a *app) nodeAdd() *cobra.Command {
	var count int
	var texts []string
	var bare bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "add [--count N] [--taint KEY=VALUE:EFFECT]",
		Short: "Add nodes to a running lab, and print their names when they are Ready",
		Long: "Adds nodes to a running lab, set up as by `up`, waits " +
			"until they are Ready, and prints their names, one per line.\n" +
			"Numbers of removed nodes are not used again. The nodes do not have images of `image load`.",
		Example: "  theseus-lab node add --count 2 --taint theseus.dev/pending=true:NoSchedule",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 {
				return usage(fmt.Errorf("%d nodes: at least one", count))
			}
			taints, err := parseTaints(texts)
			if err != nil {
				return usage(err)
			}
			if _, err := a.lab(); err != nil {
				return err
			}
			store, err := state.Open(a.dir)
			if err != nil {
				return err
			}
			names, err := launch.Add(cmd.Context(), store, a.name, count, taints, bare, limit)
			if errors.Is(err, launch.ErrNoAdding) {
				return hint(err, "theseus-lab down --name %s, and up with more --nodes", a.name)
			}
			for _, name := range names {
				fmt.Fprintln(a.out, name)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&count, "count", 1, "number of nodes")
	cmd.Flags().StringArrayVar(&texts, "taint", nil,
		"taint of the nodes from the start, such as key=value:NoSchedule (repeatable)")
	cmd.Flags().BoolVar(&bare, "bare", false,
		"without the files of the network bridge, if the lab started on bridge and has another network now")
	cmd.Flags().DurationVar(&limit, "timeout", 2*time.Minute,
		"how long the nodes may take to become Ready; then they are removed again")
	return cmd
}

func parseTaints(texts []string) ([]launch.Taint, error) {
	var taints []launch.Taint
	for _, text := range texts {
		pair, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(pair, "=")
		if key == "" || effect == "" {
			return nil, fmt.Errorf("%q is not a taint such as key=value:NoSchedule", text)
		}
		taints = append(taints, launch.Taint{Key: key, Value: value, Effect: effect})
	}
	return taints, nil
}

func (a *app) nodeRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NODE...",
		Short: "Remove nodes from a running lab: their processes, disks and Node objects",
		Args:  atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := state.Open(a.dir)
			if err != nil {
				return err
			}
			for _, arg := range args {
				lab, _, n, err := a.nodeArg(arg)
				if err != nil {
					return err
				}
				if err := launch.Remove(cmd.Context(), store, a.name, lab.Spec.NodeName(n)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a *app) nodeExec() *cobra.Command {
	var network bool
	cmd := &cobra.Command{
		Use:     "exec [--network] NODE -- COMMAND [ARG...]",
		Short:   "Run a command on a node, as root in all of its namespaces",
		Example: "  theseus-lab node exec a-node-1 -- ip route",
		Args:    atLeast(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			if network {
				return a.enter(cmd.Context(), args[0], a.in, []string{"--net"}, args[1:]...)
			}
			return a.onNode(cmd.Context(), args[0], a.in, args[1:]...)
		},
	}
	cmd.Flags().BoolVar(&network, "network", false,
		"only in its network namespace: files and processes are the host's, and the command does not end with the node")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (a *app) nodeKill() *cobra.Command {
	var component string
	cmd := &cobra.Command{
		Use:   "kill NODE",
		Short: "Cut the power of a node, or kill one of its components",
		Long: "Cuts the power of a node: every process ends at once, but its disk stays. With --component, only " +
			"that program is killed (SIGKILL), and the node restarts it.",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, n, err := a.nodeArg(args[0])
			if err != nil {
				return err
			}
			switch component {
			case "":
				return client.Kill(cmd.Context(), n)
			case "containerd", "kubelet", "kube-proxy":
				return a.onNode(cmd.Context(), args[0], nil, "sh", "-c",
					"kill -9 $(cat /run/theseus-lab/"+component+".pid)")
			}
			return usage(fmt.Errorf("component %q is not containerd, kubelet or kube-proxy", component))
		},
	}
	cmd.Flags().StringVar(&component, "component", "", "containerd, kubelet or kube-proxy")
	return cmd
}

func (a *app) nodeStart() *cobra.Command {
	return &cobra.Command{
		Use:   "start NODE",
		Short: "Restore the power of a node",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, n, err := a.nodeArg(args[0])
			if err != nil {
				return err
			}
			return client.Start(cmd.Context(), n)
		},
	}
}

func (a *app) nodePartition() *cobra.Command {
	return a.partition("partition NODE", "Silently drop all packets on a node's link", true)
}

func (a *app) nodeHeal() *cobra.Command {
	return a.partition("heal NODE", "Undo partition", false)
}

func (a *app) partition(use, short string, on bool) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, n, err := a.nodeArg(args[0])
			if err != nil {
				return err
			}
			_, err = client.SetLink(cmd.Context(), control.Link{Node: n, Partition: &on})
			return err
		},
	}
}

func (a *app) nodeFillDisk() *cobra.Command {
	var free bool
	cmd := &cobra.Command{
		Use:   "fill-disk NODE",
		Short: "Fill a node's root to the last byte, or free it again",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// fallocate fails without allocating anything if the size is too large; dd uses all free space.
			script := "dd if=/dev/zero of=/var/log/fill bs=1M 2>/dev/null; dd if=/dev/zero of=/var/log/fill.rest " +
				"bs=512 2>/dev/null; ! echo x >/var/log/fill.proof 2>/dev/null"
			if free {
				script = "rm -f /var/log/fill /var/log/fill.rest /var/log/fill.proof"
			}
			return a.onNode(cmd.Context(), args[0], nil, "sh", "-c", script)
		},
	}
	cmd.Flags().BoolVar(&free, "free", false, "remove the files that filled it")
	return cmd
}

func (a *app) link() *cobra.Command {
	var loss string
	var drops []string
	var clear bool
	cmd := &cobra.Command{
		Use:     "link NODE [--loss 1%] [--drop PROTO:PORT] [--clear]",
		Short:   "Lose packets on a node's link, in both directions",
		Example: "  theseus-lab link a-node-2 --loss 1% --drop udp:8472\n  theseus-lab link a-node-2 --clear",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := control.Link{Clear: clear}
			if loss != "" {
				share, err := fabric.ParseLoss(loss)
				if err != nil {
					return usage(err)
				}
				change.Loss = &share
			}
			for _, text := range drops {
				drop, err := fabric.ParseDrop(text)
				if err != nil {
					return usage(err)
				}
				change.Drops = append(change.Drops, drop)
			}
			if loss == "" && len(drops) == 0 && !clear {
				return usage(errors.New("nothing to do: give --loss, --drop or --clear"))
			}
			_, client, n, err := a.nodeArg(args[0])
			if err != nil {
				return err
			}
			change.Node = n
			now, err := client.SetLink(cmd.Context(), change)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "link of %s: %s\n", args[0], now)
			return err
		},
	}
	cmd.Flags().StringVar(&loss, "loss", "", "share of frames to drop, such as 1%")
	cmd.Flags().StringArrayVar(&drops, "drop", nil, "drop all packets to a destination port, such as udp:8472")
	cmd.Flags().BoolVar(&clear, "clear", false, "clear loss and drops, then apply the other flags")
	return cmd
}
