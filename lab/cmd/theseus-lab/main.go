// Command theseus-lab runs real Kubernetes clusters in namespaces of one machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/theseus-cni/theseus/lab/internal/cli"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/machine"
	"github.com/theseus-cni/theseus/lab/internal/outer"
)

func main() {
	if run := stage(os.Args); run != nil {
		// The first process of a namespace: it does not return unless something is wrong.
		err := run()
		fmt.Fprintln(os.Stderr, os.Args[1], "ended:", err)
		os.Exit(1)
	}
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// A terminal that is closed sends SIGHUP, but not to theseus, which runs in a process group of its own. nohup has
	// it ignored, and Notify would undo that.
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// stage is the program's role if it was started by itself; nil if a person started it.
func stage(args []string) func() error {
	if len(args) != 2 {
		return nil
	}
	switch args[1] {
	case outer.Stage:
		return outer.Run
	case controlplane.Stage:
		return controlplane.Run
	case machine.StageBoot:
		return machine.Boot
	case machine.StageInit:
		return machine.Init
	}
	return nil
}
