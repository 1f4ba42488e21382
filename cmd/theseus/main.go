// Command theseus replaces or upgrades the pod network of a live Kubernetes cluster and proves, by
// measurement, that nothing that ran on it noticed.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/theseus-cni/theseus/internal/cli"
)

// growth is how much memory may grow, in percent, before garbage is collected, unless GOGC says otherwise. Go's default
// of 100 takes a fifth more memory for a plan of 5,000 nodes, and saves hardly any time (docs/results.md).
const growth = 70

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
	os.Exit(cli.Main(context.Background(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
