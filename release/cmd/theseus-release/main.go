// Command theseus-release makes images and releases of Theseus from a commit.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/theseus-cni/theseus/release/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
