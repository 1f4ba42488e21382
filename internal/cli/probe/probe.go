package probe

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/proof/probe"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// NewCommand makes the command theseus probe.
func NewCommand(a *app.App) *cobra.Command {
	return newCommand(a.Streams, func() string { return a.Output })
}

// newCommand measures without a migration, and shows measurements. output is the value of -o when the command runs:
// empty or "text" for a table, or "json".
func newCommand(streams app.Streams, output func() string) *cobra.Command {
	command := &cobra.Command{
		Use:   "probe",
		Short: "Measure paths from this machine, and show measurements",
		Args:  usage.None,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newRun(streams, output), newReport(streams, output))
	return command
}

func newRun(streams app.Streams, output func() string) *cobra.Command {
	var targets []string
	var interval time.Duration
	local := probe.Local{}
	command := &cobra.Command{
		Use:   "run --target URL ...",
		Short: "Send probes to targets for a while, and count lost ones",
		Long: "Sends probes from this machine, and shows for each target how many were lost, in which gaps, and how\n" +
			"long answers took. Targets must echo their input, as Theseus' own probe servers do, or be name\n" +
			"servers. No cluster is needed.\n\n" +
			"  udp://host:port        one datagram per probe, on one socket\n" +
			"  tcp://host:port        one message per probe, on one connection\n" +
			"  tcp-new://host:port    one connection per probe\n" +
			"  dns://server/name      one lookup per probe\n\n" +
			"You can append ?size=1400, ?interval=100ms and ?denied=true (an answer is a leak), joined by &.\n\n" +
			"A gap lasts from the first unanswered probe to the next answered one; + marks one that " +
			"had not ended. P50, P99 and\n" +
			"MAX are round trips. STALLS are times in which this machine itself was stalled: they excuse no loss.",
		Example: "  theseus probe run --target udp://192.0.2.7:7001 --target dns://192.0.2.1/example.org --for 1m",
		Args:    usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			paths, err := parseTargets(targets, interval)
			if err != nil {
				return err
			}
			if local.For <= 0 || local.Timeout <= 0 {
				return exit.Fail(exit.Usage, "give a time above 0, such as --for 10s",
					"--for and --timeout must be above 0")
			}
			local.Paths, local.Name = paths, "local"
			if name, err := os.Hostname(); err == nil {
				local.Name = name
			}
			document, err := probe.RunLocal(command.Context(), local)
			if err != nil {
				return exit.Fail(exit.Failed, "check the target's host name", "%w", err)
			}
			return showProbes(streams.Out, output(), []probe.Document{document})
		},
	}
	command.Flags().StringArrayVar(&targets, "target", nil, "target to measure (repeatable)")
	command.Flags().DurationVar(&local.For, "for", 10*time.Second, "how long to send probes")
	command.Flags().DurationVar(&interval, "interval", probe.DefaultInterval, "time between two probes of a target")
	command.Flags().DurationVar(&local.Timeout, "timeout", time.Second, "timeout of an answer")
	return command
}

func parseTargets(targets []string, interval time.Duration) ([]v1alpha1.Path, error) {
	if len(targets) == 0 {
		return nil, exit.Fail(exit.Usage, "name one, such as --target udp://192.0.2.7:7001", "no target to measure")
	}
	seen := map[string]bool{}
	var paths []v1alpha1.Path
	for _, target := range targets {
		path, err := probe.ParseTarget(target, interval)
		if err != nil {
			return nil, exit.Fail(exit.Usage,
				"targets look like udp://192.0.2.7:7001?size=1400; see theseus probe run --help", "%w", err)
		}
		if seen[target] {
			return nil, exit.Fail(exit.Usage, "name each target once", "target %q is given twice", target)
		}
		seen[target] = true
		paths = append(paths, path)
	}
	return paths, nil
}

func newReport(streams app.Streams, output func() string) *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE",
		Short: "Show a measurement as a table",
		Long: "Shows the output of `theseus probe run -o json`, or the cluster's measurements:\n\n" +
			"  kubectl get probereports -n " + v1alpha1.Namespace + " -o json | theseus probe report -",
		Args: usage.Exactly(1, "one file, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := infile.ReadOr(streams.In, args[0])
			if err != nil {
				return exit.Fail(exit.Failed, "name a file, or - for standard input", "%w", err)
			}
			documents, err := probe.Parse(data)
			if err != nil {
				return exit.Fail(exit.Failed, "make one with: theseus probe run -o json", "%s: %w", args[0], err)
			}
			return showProbes(streams.Out, output(), documents)
		},
	}
}

// showProbes writes measurements as a table or as JSON.
func showProbes(w io.Writer, output string, documents []probe.Document) error {
	switch output {
	case "", "text":
		if err := probe.WriteTable(w, documents); err != nil {
			return exit.Fail(exit.Failed, "check that the file has measurements", "%w", err)
		}
		return nil
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if len(documents) == 1 {
			return encoder.Encode(documents[0])
		}
		return encoder.Encode(map[string]any{"apiVersion": v1alpha1.APIVersion,
			"kind": "ProbeReportList", "items": documents})
	}
	return exit.Fail(exit.Usage, "use -o text or -o json", "unknown output %q", output)
}
