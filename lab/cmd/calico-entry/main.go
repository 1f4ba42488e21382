// Command calico-entry is what calico/node's start_runit is to its image: it prepares the node and
// keeps Calico's daemons running, without the shell, runit and BIRD of the original. It follows
// upstream's rc.local for clusters without BGP, where neither BIRD nor confd run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	nodenameFile = "/var/lib/calico/nodename"

	// restartRequest is how a daemon says that it ended only to be started with a new configuration.
	restartRequest = 129
	// pause is how long a daemon that failed stays down, as under runit.
	pause = time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

// run prepares the node, then keeps the daemons up until ctx ends.
func run(ctx context.Context) error {
	if err := start(ctx, "-startup").Run(); err != nil {
		return fmt.Errorf("prepare the node: %w", err)
	}
	name, err := os.ReadFile(nodenameFile)
	if err != nil {
		return fmt.Errorf("read the node's name: %w", err)
	}
	for key, value := range environment(strings.TrimSpace(string(name)), os.Getenv) {
		if err := os.Setenv(key, value); err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	if err := start(ctx, "-allocate-tunnel-addrs", "-allocate-tunnel-addrs-run-once").Run(); err != nil {
		return fmt.Errorf("allocate the tunnel's address: %w", err)
	}
	var group sync.WaitGroup
	for _, flag := range daemons(os.Getenv) {
		group.Go(func() { keep(ctx, flag) })
	}
	group.Wait()
	return nil
}

// environment is what the daemons get on top: Felix has names of its own for what the container
// calls NODENAME and DATASTORE_TYPE.
func environment(node string, getenv func(string) string) map[string]string {
	env := map[string]string{"NODENAME": node, "FELIX_FELIXHOSTNAME": node}
	if datastore := getenv("DATASTORE_TYPE"); datastore != "" {
		env["FELIX_DATASTORETYPE"] = datastore
	}
	return env
}

// daemons are the modes of calico-node that run for good.
func daemons(getenv func(string) string) []string {
	list := []string{"-complete-startup", "-allocate-tunnel-addrs", "-status-reporter"}
	if getenv("CALICO_DISABLE_FELIX") == "" {
		list = append(list, "-felix")
	}
	if getenv("CALICO_NETWORKING_BACKEND") != "none" {
		list = append(list, "-monitor-addresses")
	}
	if getenv("CALICO_MANAGE_CNI") != "false" {
		list = append(list, "-monitor-token")
	}
	return list
}

// keep runs a daemon again whenever it ends, as runit does: at once if it asked for it.
func keep(ctx context.Context, flag string) {
	for ctx.Err() == nil {
		err := start(ctx, flag).Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == restartRequest {
			continue
		}
		fmt.Fprintf(os.Stderr, "calico-node %s ended: %v\n", flag, err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// start prepares calico-node with these flags; when ctx ends it is asked to end, not killed.
func start(ctx context.Context, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "calico-node", flags...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}
