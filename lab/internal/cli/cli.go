// Package cli is the command line of theseus-lab: one file per group of commands. A command finds
// its lab in the state directory and does its work through the packages below; errors end here, as
// one line `error:` and one line `hint:`.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/launch"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// Exit codes; a command that runs another program ends with that program's code.
const (
	codeError = 1
	codeUsage = 2
)

// app has the flags and streams that all commands share.
type app struct {
	name     string // of the lab
	dir      string // state directory
	in       io.Reader
	out, err io.Writer
}

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "unknown command") {
		err = usage(err)
	}
	return a.report(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "theseus-lab",
		Short: "Real Kubernetes clusters in namespaces of one machine",
		Long: "theseus-lab runs a real Kubernetes (etcd, API server, kubelets, containerd, CNI) in " +
			"namespaces of this machine.\n" +
			"It does not touch the host's network, and `down` removes everything.\n\n" +
			"Exit codes: 0 done; 1 error; 2 usage; exec, node exec, kubectl and rehearse end with the code of their " +
			"command.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.name, "name", env("THESEUS_LAB_NAME", "a"), "name of the lab")
	root.PersistentFlags().StringVar(&a.dir, "state", env("THESEUS_LAB_DIR", "/var/lib/theseus-lab"), "state directory")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(a.build(), a.up(), a.down(), a.status(), a.kubeconfig(), a.kubectl(),
		a.node(), a.link(), a.logs(), a.image(), a.exec(), a.manifest(), a.demo(), a.canary(), a.piDay(), a.benchLoss(),
		a.benchFlags(), a.benchAdopt(), a.compare(), a.rehearse(), a.mirror(), a.clients(), a.swarm())
	return root
}

// failure is an error with a hint for the user.
type failure struct {
	err  error
	hint string
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func hint(err error, format string, args ...any) error {
	return &failure{err: err, hint: fmt.Sprintf(format, args...), code: codeError}
}

func usage(err error) error {
	return &failure{err: err, hint: "theseus-lab help lists the commands; COMMAND --help explains one", code: codeUsage}
}

// hintUsage is a mistake in the command line with a hint of its own.
func hintUsage(err error, format string, args ...any) error {
	return &failure{err: err, hint: fmt.Sprintf(format, args...), code: codeUsage}
}

// report prints the error and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	if program, ok := err.(*exec.ExitError); ok { // not a wrapped one, such as a failed build's
		return exitCode(program) // the program has printed its own error
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{err: err, hint: a.guess(err), code: codeError}
	}
	fmt.Fprintf(a.err, "error: %v\nhint: %s\n", f.err, f.hint)
	return f.code
}

// exitCode is a shell's exit code: 128 plus the signal for a program that a signal ended.
func exitCode(program *exec.ExitError) int {
	if status, ok := program.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return program.ExitCode()
}

func (a *app) guess(err error) string {
	switch {
	case errors.Is(err, state.ErrNoLab):
		return "theseus-lab status lists the labs; theseus-lab up --name " + a.name + " makes one"
	case errors.Is(err, launch.ErrRunning):
		return "theseus-lab down --name " + a.name + " ends it"
	case errors.Is(err, control.ErrRefused):
		return "theseus-lab status shows the nodes and their links"
	case errors.Is(err, os.ErrPermission):
		return "the lab makes namespaces and mounts: run it as root"
	case errors.Is(err, context.Canceled):
		return "interrupted; no process of the lab is running, and its logs are in " +
			filepath.Join(a.dir, "labs", a.name, "logs")
	}
	return "theseus-lab logs controlplane, or the files in " + filepath.Join(a.dir, "labs", a.name,
		"logs") + ", may show the cause"
}

// lab loads the command's lab, which must be running.
func (a *app) lab() (state.Lab, error) {
	store, err := state.Open(a.dir)
	if err != nil {
		return state.Lab{}, err
	}
	lab, err := store.Load(a.name)
	if err != nil {
		return lab, err
	}
	if !lab.Running() {
		return lab, hint(fmt.Errorf("lab %s is not running any more", a.name),
			"theseus-lab down --name %[1]s removes its remains, theseus-lab up --name %[1]s recreates it", a.name)
	}
	return lab, nil
}

// nodeArg loads the lab and finds the node that the argument names.
func (a *app) nodeArg(arg string) (state.Lab, *control.Client, int, error) {
	lab, err := a.lab()
	if err != nil {
		return lab, nil, 0, err
	}
	n, ok := lab.Spec.NodeNumber(arg)
	if !ok {
		return lab, nil, 0, hint(fmt.Errorf("lab %s has no node %q", a.name, arg), "its nodes are %s",
			strings.Join(launch.NodeNames(lab.Spec), ", "))
	}
	return lab, control.Dial(launch.ControlSocket(lab.Spec)), n, nil
}

func env(key, otherwise string) string {
	if v := os.Getenv(key); v != "" {
		return v
	}
	return otherwise
}

func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usage(err)
		}
		return nil
	}
}

func atLeast(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.MinimumNArgs(n)(cmd, args); err != nil {
			return usage(err)
		}
		return nil
	}
}
