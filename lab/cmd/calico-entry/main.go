// Command calico-entry replaces calico/node's start_runit in the lab's image: it prepares the node and keeps Calico's
// daemons running, without the original's shell and runit. It follows upstream's rc.local. Under the name sv, it
// does what Calico needs of runit's sv.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const nodenameFile = "/var/lib/calico/nodename"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	if filepath.Base(os.Args[0]) == "sv" {
		err = sv(os.Args[1:], pidDir, os.Stdout)
	} else {
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

// run prepares the node, then keeps the services running until ctx ends. Then it ends at once, as runsvdir does, and
// the kernel kills the container's other processes together with its first one: a killed BIRD does not close its
// sessions, and its neighbours keep its routes.
func run(ctx context.Context) error {
	if err := start(ctx, "calico-node", "-startup").Run(); err != nil {
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
	if err := start(ctx, "calico-node", "-allocate-tunnel-addrs", "-allocate-tunnel-addrs-run-once").Run(); err != nil {
		return fmt.Errorf("allocate the tunnel's address: %w", err)
	}
	if err := os.MkdirAll(pidDir, 0o755); err != nil {
		return err
	}
	for _, s := range services(os.Getenv) {
		if slices.Contains(os.Args[1:], "-without="+s.name) {
			continue // this version does not have it
		}
		go keep(ctx, pidDir, s)
	}
	<-ctx.Done()
	return nil
}

// environment is added to the daemons' environment: Felix has names of its own for the variables that the container
// calls NODENAME and DATASTORE_TYPE.
func environment(node string, getenv func(string) string) map[string]string {
	env := map[string]string{"NODENAME": node, "FELIX_FELIXHOSTNAME": node}
	if datastore := getenv("DATASTORE_TYPE"); datastore != "" {
		env["FELIX_DATASTORETYPE"] = datastore
	}
	return env
}

// services are the daemons, by their upstream names.
func services(getenv func(string) string) []service {
	list := []service{
		node("complete-startup", "-complete-startup"),
		node("allocate-tunnel-addrs", "-allocate-tunnel-addrs"),
		node("node-status-reporter", "-status-reporter"),
	}
	if getenv("CALICO_DISABLE_FELIX") == "" {
		list = append(list, node("felix", "-felix"))
	}
	backend := getenv("CALICO_NETWORKING_BACKEND")
	if backend != "none" {
		list = append(list, node("monitor-addresses", "-monitor-addresses"))
	}
	if backend != "none" && backend != "vxlan" {
		list = append(list, bird("bird"), bird("bird6"), node("confd", "-confd"))
	}
	if getenv("CALICO_MANAGE_CNI") != "false" {
		list = append(list, node("cni", "-monitor-token"))
	}
	return list
}

// bird is BIRD for IPv4 or IPv6, with the configuration from confd. Until confd has written it, BIRD fails and is
// restarted.
func bird(name string) service {
	return service{name: name, argv: []string{
		name, "-R", "-s", "/var/run/calico/" + name + ".ctl", "-d", "-c", "/etc/calico/confd/config/" + name + ".cfg",
	}}
}
