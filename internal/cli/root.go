package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/klog/v2"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// Version is set when a release is linked.
var Version = "dev"

// Streams are the three standard streams.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// app is what every command shares.
type app struct {
	Streams
	kubeconfig *genericclioptions.ConfigFlags
	signals    *interruption
	output     string
	version    string
	signKey    string // what plan signs its file with
	// access is how the mirror of a plan is reached, where it is named anew.
	access mirror.Access
}

// Main runs the command line and returns the exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	out, err := printable.NewWriter(streams.Out), printable.NewWriter(streams.Err)
	defer out.Flush() //nolint:errcheck // the end of a text was cut off by whoever wrote it
	defer err.Flush() //nolint:errcheck // the same
	streams.Out, streams.Err = out, err
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // client-go's own log repeats what API servers say, and what is retried is said by the command
	signals := &interruption{err: streams.Err}
	ctx, stop := signals.catch(ctx)
	defer stop()
	root := newRoot(streams, filepath.Base(args[0]), signals)
	root.SetArgs(args[1:])
	return exitCode(streams.Err, root.ExecuteContext(ctx))
}

func newRoot(streams Streams, name string, signals *interruption) *cobra.Command {
	a := &app{Streams: streams, signals: signals, kubeconfig: genericclioptions.NewConfigFlags(true), version: version()}
	use := "theseus"
	if strings.HasPrefix(name, "kubectl-") {
		use = "kubectl theseus"
	}
	root := &cobra.Command{
		Use:   use,
		Short: "Replace the network of a live cluster, and prove that nothing noticed",
		Long: "Theseus replaces or upgrades the pod network (CNI) of a live Kubernetes cluster and proves, by\n" +
			"measurement, that nothing that ran on it noticed.\n\n" +
			"    snapshot -> check -> plan -> apply -> report\n\n" + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       a.version,
		Args:          none,
		RunE: func(command *cobra.Command, _ []string) error {
			return command.Help()
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetUsageFunc(func(command *cobra.Command) error { return usage(command, textWidth(streams.Out)) })
	root.PersistentPreRunE = a.knownOutput
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fail(exitUsage, command.CommandPath()+" --help", "%v", err)
	})
	flags := root.PersistentFlags()
	flags.StringVar(a.kubeconfig.KubeConfig, "kubeconfig", os.Getenv("THESEUS_KUBECONFIG"), "kubeconfig file (else KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(a.kubeconfig.Context, "context", os.Getenv("THESEUS_CONTEXT"), "context of the kubeconfig")
	flags.StringVarP(&a.output, "output", "o", "", "output: text, json, or what the command names; a file where it makes one")
	root.AddCommand(a.commands()...)
	for _, command := range root.Commands() {
		explainExits(command)
	}
	return root
}

// explainExits ends the help of a command, and of those below it, with the exit codes.
func explainExits(command *cobra.Command) {
	if command.Long == "" {
		command.Long = command.Short + "."
	}
	command.Long = strings.TrimRight(command.Long, "\n") + "\n\n" + exitHelp
	for _, below := range command.Commands() {
		explainExits(below)
	}
}

// commands are the verbs, in the order of the pipeline.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.snapshotCommand(),
		a.checkCommand(),
		a.explainCommand(),
		a.planCommand(),
		a.rightsCommand(),
		a.signCommand(),
		a.applyCommand(),
		a.statusCommand(),
		a.pauseCommand(),
		a.resumeCommand(),
		a.rollbackCommand(),
		a.reportCommand(),
		a.probeCommand(),
		a.flagsCommand(),
		a.mirrorCommand(),
	}
}

// noCluster is what helps where no kubeconfig leads to a cluster.
const noCluster = "name a kubeconfig with --kubeconfig; snapshot, check and plan also read files, with --from"

// client connects to the cluster of the current kubeconfig. No request is sent yet.
func (a *app) client() (*kube.Client, error) {
	if raw, err := a.kubeconfig.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && !elsewhere() {
		return nil, fail(exitFailed, noCluster, "no cluster: there is no kubeconfig")
	}
	config, err := a.kubeconfig.ToRESTConfig()
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "; json parse error") // what follows is about Go's types
		return nil, fail(exitFailed, noCluster, "no cluster: %s", why)
	}
	return kube.New(config, a.version)
}

// elsewhere says whether the cluster is known without a kubeconfig: inside a pod, or from the environment.
func elsewhere() bool {
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("KUBERNETES_MASTER") != ""
}

// version is the linked one, or what the build knows.
func version() string {
	if Version != "dev" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return Version
}

// exactly demands n arguments, and says which when they are missing.
func exactly(n int, names string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != n {
			return fail(exitUsage, command.CommandPath()+" --help", "%s takes %s", command.CommandPath(), names)
		}
		return nil
	}
}

// none demands no arguments. Of a command with others below it, an argument is taken for a misspelt one.
func none(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !command.HasAvailableSubCommands() {
		return fail(exitUsage, command.CommandPath()+" --help", "%s takes no arguments, and %q is given", command.CommandPath(), args[0])
	}
	hint := command.CommandPath() + " --help"
	command.SuggestionsMinimumDistance = 2
	if near := command.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean: " + command.CommandPath() + " " + near[0]
	}
	return fail(exitUsage, hint, "%s has no command %q", command.CommandPath(), args[0])
}

// atMostOne lets one argument be left out.
func atMostOne(names string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fail(exitUsage, command.CommandPath()+" --help", "%s takes at most %s", command.CommandPath(), names)
		}
		return nil
	}
}
