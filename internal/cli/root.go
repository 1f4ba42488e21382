package cli

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/klog/v2"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/apply"
	"github.com/theseus-cni/theseus/internal/cli/approve"
	"github.com/theseus-cni/theseus/internal/cli/bench"
	"github.com/theseus-cni/theseus/internal/cli/check"
	"github.com/theseus-cni/theseus/internal/cli/control"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/explain"
	"github.com/theseus-cni/theseus/internal/cli/flags"
	"github.com/theseus-cni/theseus/internal/cli/guard"
	"github.com/theseus-cni/theseus/internal/cli/image"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/mirror"
	"github.com/theseus-cni/theseus/internal/cli/plan"
	"github.com/theseus-cni/theseus/internal/cli/policy"
	"github.com/theseus-cni/theseus/internal/cli/probe"
	"github.com/theseus-cni/theseus/internal/cli/rehearse"
	"github.com/theseus-cni/theseus/internal/cli/report"
	"github.com/theseus-cni/theseus/internal/cli/rights"
	"github.com/theseus-cni/theseus/internal/cli/sign"
	"github.com/theseus-cni/theseus/internal/cli/snapshot"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cli/version"
	"github.com/theseus-cni/theseus/internal/cli/watch"
	"github.com/theseus-cni/theseus/internal/cli/web"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// Streams are the three standard streams.
type Streams = app.Streams

// Main runs the command line and returns the exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	out, err := printable.NewWriter(streams.Out), printable.NewWriter(streams.Err)
	defer out.Flush() //nolint:errcheck // the writer has cut off the end of a text
	defer err.Flush() //nolint:errcheck // the same
	streams.Out, streams.Err = out, err
	silence()
	signals := &interrupt.Signals{Err: streams.Err}
	ctx, stop := signals.Catch(ctx)
	defer stop()
	root := newRoot(streams, filepath.Base(args[0]), signals)
	root.SetArgs(args[1:])
	return exit.Code(streams.Err, root.ExecuteContext(ctx))
}

// silence discards client-go's own log: it repeats the API server's answers, and the command reports retries itself.
func silence() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	_ = flags.Set("stderrthreshold", "FATAL") // errors would go to stderr all the same
}

func newRoot(streams Streams, name string, signals *interrupt.Signals) *cobra.Command {
	build := version.Read()
	cluster := genericclioptions.NewConfigFlags(true)
	a := &app.App{Streams: streams, Signals: signals, Kubeconfig: cluster,
		Context: cluster.Context, Version: build.Version}
	use := "theseus"
	if strings.HasPrefix(name, "kubectl-") {
		use = "kubectl theseus"
	}
	root := &cobra.Command{
		Use:   use,
		Short: "Replace the network of a live cluster, and prove that nothing was lost",
		Long: "Theseus replaces or upgrades the pod network (CNI) of a live Kubernetes cluster and proves, by\n" +
			"measurement, that no running workload lost traffic.\n\n" +
			"    snapshot -> check -> plan -> apply -> report\n\n" + exit.Help,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       a.Version,
		Args:          usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			return command.Help()
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetVersionTemplate(build.Line("theseus") + "\n")
	root.SetUsageFunc(func(command *cobra.Command) error { return usage.Print(command, terminal.Width(streams.Out)) })
	root.PersistentPreRunE = a.KnownOutput
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return exit.Fail(exit.Usage, command.CommandPath()+" --help", "%v", err)
	})
	flags := root.PersistentFlags()
	flags.StringVar(cluster.KubeConfig, "kubeconfig", os.Getenv("THESEUS_KUBECONFIG"),
		"kubeconfig file (else KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(cluster.Context, "context", os.Getenv("THESEUS_CONTEXT"), "context of the kubeconfig")
	flags.StringVarP(&a.Output, "output", "o", "",
		"output: text, json or another format of the command, or a file to write")
	root.AddCommand(commands(a)...)
	for _, command := range root.Commands() {
		explainExits(command)
	}
	return root
}

// explainExits adds the exit codes to the help of a command and its subcommands.
func explainExits(command *cobra.Command) {
	if command.Long == "" {
		command.Long = command.Short + "."
	}
	command.Long = strings.TrimRight(command.Long, "\n") + "\n\n" + exit.Help
	for _, below := range command.Commands() {
		explainExits(below)
	}
}

// commands are the verbs, in the order of the pipeline.
func commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		snapshot.NewCommand(a),
		check.NewCommand(a),
		explain.NewCommand(a),
		plan.NewCommand(a),
		rights.NewCommand(a),
		sign.NewCommand(a),
		apply.NewCommand(a),
		approve.NewCommand(a),
		guard.NewCommand(a),
		rehearse.NewCommand(a),
		watch.NewCommand(a),
		web.NewCommand(a),
		control.NewStatus(a),
		control.NewPause(a),
		control.NewResume(a),
		control.NewRollback(a),
		report.NewCommand(a),
		probe.NewCommand(a),
		bench.NewCommand(a),
		flags.NewCommand(a),
		policy.NewCommand(a),
		mirror.NewCommand(a),
		image.NewCommand(a),
	}
}
