package bench

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// mostResult bounds a file with a result.
const mostResult = 16 << 20

// drawUsage is how the command is used.
const drawUsage = "theseus bench draw flannel=flannel.json calico=calico.json -o html"

func newDraw(a *app.App) *cobra.Command {
	return usage.Takes(&cobra.Command{
		Use:   "draw NAME=FILE...",
		Short: "Draw results of theseus bench network side by side, on one page",
		Long: "Reads results of theseus bench network -o json and draws them on one page of HTML, with a line\n" +
			"for each name. A name that is given several times has the runs of all its files. All results must be\n" +
			"of the same load: the same --duration, --rate, --throughput and --policy-rules. It asks no cluster.",
		Example: "  " + drawUsage,
		RunE: func(_ *cobra.Command, args []string) error {
			networks, err := results(args)
			if err != nil {
				return err
			}
			page, err := report.Networks(networks)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(page)
			return err
		},
	}, "html")
}

// results reads the files of the arguments, in the order in which the names come first.
func results(args []string) (all []report.Network, err error) {
	if len(args) == 0 {
		return nil, exit.Fail(exit.Usage, drawUsage, "no file was given: name at least one NAME=FILE")
	}
	for _, arg := range args {
		name, file, ok := strings.Cut(arg, "=")
		if !ok || name == "" || file == "" {
			return nil, exit.Fail(exit.Usage, drawUsage, "%q is not NAME=FILE", arg)
		}
		text, err := infile.ReadUpTo(file, mostResult)
		if err != nil {
			return nil, err
		}
		result, err := bench.Read(text)
		if err == nil && len(result.Tasks) == 0 {
			return nil, exit.Fail(exit.Failed, "theseus bench network -o json writes one",
				"%s: not a result of theseus bench network -o json", file)
		}
		if err != nil {
			return nil, exit.Fail(exit.Failed, "theseus bench network -o json writes one", "%s: %w", file, err)
		}
		if len(all) > 0 {
			if err := all[0].Result.SameLoad(result); err != nil {
				return nil, exit.Fail(exit.Failed, "repeat the benchmark with the same flags", "%s: %w", file, err)
			}
		}
		at := slices.IndexFunc(all, func(n report.Network) bool { return n.Name == name })
		if at < 0 {
			all = append(all, report.Network{Name: name, Result: result})
			continue
		}
		if err := all[at].Result.Merge(result); err != nil {
			return nil, exit.Fail(exit.Failed, "repeat the benchmark with the same flags", "%s: %w", file, err)
		}
	}
	return all, nil
}
