package execute

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/metrics"
	"github.com/theseus-cni/theseus/internal/run/notify"
)

// Outward says what a run tells to other programs while it runs.
type Outward struct {
	metrics, notify, secretFile string

	target *notify.Target
}

// Register adds the flags. gets says what the URL of --notify gets.
func (o *Outward) Register(command *cobra.Command, gets string) {
	command.Flags().StringVar(&o.metrics, "metrics", "", "HOST:PORT that serves /metrics for Prometheus during the "+
		"run, such as 127.0.0.1:9464; every host that reaches it can read")
	command.Flags().StringVar(&o.notify, "notify", "", "URL, or @FILE with the URL, that "+gets)
	command.Flags().StringVar(&o.secretFile, "notify-secret-file", "", "file with "+notify.Signs)
}

// Given reports whether a flag is given.
func (o *Outward) Given() bool { return o.metrics != "" || o.notify != "" || o.secretFile != "" }

// Check refuses what cannot be meant, before anything else is done.
func (o *Outward) Check() (err error) {
	if o.metrics != "" {
		if err := metrics.ValidAddress(o.metrics); err != nil {
			return usageOf(err)
		}
	}
	if o.secretFile != "" && o.notify == "" {
		return exit.Fail(exit.Usage, "add --notify URL", "--notify-secret-file is given without --notify")
	}
	if o.notify != "" {
		o.target, err = notify.New(o.notify, o.secretFile)
	}
	return usageOf(err)
}

// usageOf is an error of the command line.
func usageOf(err error) error {
	if err == nil {
		return nil
	}
	return exit.Fail(exit.Usage, exit.HintOf(err), "%w", err)
}

// Run runs the engine, tells others of it, says how it ended, and turns that into the exit code.
func Run(ctx context.Context, a *app.App, r *run.Run, o *Outward) error {
	if o.metrics != "" {
		r.Metrics = metrics.New(a.Version)
		at, stop, err := r.Metrics.Serve(o.metrics)
		if err != nil {
			return exit.Fail(exit.Failed, exit.HintOf(err), "%w", err)
		}
		defer stop()
		if r.Client, err = r.Client.Through(r.Metrics.Transport); err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "metrics: http://%s/metrics\n", at)
	}
	if r.Notify = o.target; r.Notify != nil {
		if text := r.Notify.Exposed(); text != "" {
			fmt.Fprintf(a.Err, "warning: %s\n", text)
		}
	}
	return carryOut(ctx, a, r)
}
