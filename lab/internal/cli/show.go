package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// labStatus is a lab as `status -o json` prints it.
type labStatus struct {
	Name       string         `json:"name"`
	Running    bool           `json:"running"`
	Index      int            `json:"index"`
	Network    string         `json:"network"`
	Kubernetes string         `json:"kubernetes"`
	Kubeconfig string         `json:"kubeconfig"`
	Pid        int            `json:"pid"`
	Nodes      []control.Node `json:"nodes"`
}

func (a *app) status() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every lab, its nodes and the faults of their links",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage(fmt.Errorf("output %q is neither text nor json", output))
			}
			labs, err := a.collect(cmd)
			if err != nil {
				return err
			}
			if output == "json" {
				return json.NewEncoder(a.out).Encode(labs)
			}
			return printLabs(a.out, labs)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func (a *app) collect(cmd *cobra.Command) ([]labStatus, error) {
	store, err := state.Open(a.dir)
	if err != nil {
		return nil, err
	}
	names, err := store.Names()
	if err != nil {
		return nil, err
	}
	labs := []labStatus{}
	for _, name := range names {
		lab, err := store.Load(name)
		if errors.Is(err, state.ErrNoLab) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := labStatus{
			Name: name, Running: lab.Running(), Index: lab.Spec.Index, Network: lab.Spec.Network,
			Kubernetes: lab.Spec.Kubernetes, Kubeconfig: launch.Kubeconfig(lab.Spec), Pid: lab.Pid,
		}
		if s.Running {
			if s.Nodes, err = control.Dial(launch.ControlSocket(lab.Spec)).Nodes(cmd.Context()); err != nil {
				return nil, err
			}
		}
		labs = append(labs, s)
	}
	return labs, nil
}

func printLabs(w io.Writer, labs []labStatus) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "LAB\tNETWORK\tNODE\tADDRESS\tPOWER\tLINK")
	for _, l := range labs {
		if !l.Running {
			fmt.Fprintf(t, "%s\t%s\t-\t-\tended\t-\n", l.Name, l.Network)
		}
		for _, n := range l.Nodes {
			power := "off"
			if n.Running {
				power = "on"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.Network, n.Name, n.IP, power, n.Link)
		}
	}
	return t.Flush()
}

func (a *app) kubeconfig() *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  exactly(0),
		RunE: func(*cobra.Command, []string) error {
			lab, err := a.lab()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, launch.Kubeconfig(lab.Spec))
			return err
		},
	}
}

func (a *app) logs() *cobra.Command {
	return &cobra.Command{
		Use:   "logs NODE|controlplane|fabric [COMPONENT]",
		Short: "Print the log of a component, or the names of all components with a log",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := state.Open(a.dir)
			if err != nil {
				return err
			}
			lab, err := store.Load(a.name) // a failed lab has logs, too
			if err != nil {
				return err
			}
			place := args[0]
			if n, ok := lab.Spec.NodeNumber(place); ok {
				place = lab.Spec.NodeName(n)
			}
			dir := filepath.Join(lab.Spec.Dir, "logs", filepath.Base(place))
			if len(args) == 1 {
				return a.listLogs(dir)
			}
			return a.copyLog(filepath.Join(dir, filepath.Base(args[1])+".log"))
		},
	}
}

func (a *app) listLogs(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return hint(fmt.Errorf("there are no logs in %s", filepath.Base(dir)),
			"name a node, controlplane or fabric; the control plane has %s",
			strings.Join(controlplane.Components(), ", "))
	}
	for _, f := range files {
		fmt.Fprintln(a.out, strings.TrimSuffix(filepath.Base(f), ".log"))
	}
	return nil
}

func (a *app) copyLog(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return hint(err, "leave the component out to list all")
	}
	defer f.Close()
	_, err = io.Copy(a.out, f)
	return err
}
