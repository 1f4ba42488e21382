// Command theseus replaces or upgrades the pod network of a live Kubernetes cluster and proves, by
// measurement, that nothing that ran on it noticed.
package main

import (
	"context"
	"os"

	"github.com/theseus-cni/theseus/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
