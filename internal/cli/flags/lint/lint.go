package lint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/flags/origin"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// NewCommand makes the command theseus flags lint.
func NewCommand(a *app.App) *cobra.Command {
	var from []string
	command := &cobra.Command{
		Use:   "lint [SOURCE...]",
		Short: "Find errors in flags, and in the settings of a cluster",
		Long: "Reads flag sets as strictly as every provider does, and lists all errors, and values " +
			"that are invalid for the\n" +
			"setting that a flag controls. A source may also be a file of Kubernetes objects. With " +
			"--from, it also shows what\n" +
			"the sources would do to that cluster: edits that something else overrides, incompatible " +
			"settings, and how many\n" +
			"agents would restart at once. Without a source, it checks the cluster's own settings.\n" +
			"\n" + flagsource.Help,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 && len(from) == 0 {
				return exit.Fail(exit.Usage, command.CommandPath()+" --help",
					"%s takes sources, or --from", command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, sources []string) error {
			return run(command.Context(), a, sources, from)
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, flagsource.FromHelp)
	return command
}

// linted is one problem or warning about a flag set.
type linted struct {
	Source string `json:"source"`
	flagset.Problem
}

// lint collects the results.
type lint struct {
	Problems []linted          `json:"problems"`
	Warnings []linted          `json:"warnings"`
	Findings []finding.Finding `json:"findings"`
	Notes    []string          `json:"notes"`
	Flags    int               `json:"flags"`
}

func run(ctx context.Context, a *app.App, sources, from []string) error {
	l := lint{Problems: []linted{}, Warnings: []linted{}, Findings: []finding.Finding{}, Notes: []string{}}
	catalogue := setting.New(nil)
	var fleet *setting.Fleet
	if len(from) > 0 {
		snapshot, err := survey.See(ctx, a, from)
		if err != nil {
			return err
		}
		fleet = setting.Read(snapshot, nil)
		catalogue = fleet.Catalogue()
		l.Notes = append(l.Notes, catalogue.Notes()...)
		if len(sources) == 0 {
			l.Findings = append(l.Findings, fleet.Lint()...)
		}
	}
	for _, text := range sources {
		manifest, isManifest, err := flagsource.Objects(text)
		switch {
		case err != nil:
		case isManifest:
			l.edit(fleet, manifest)
		default:
			err = readSet(ctx, a, text, catalogue, fleet, &l)
		}
		if err != nil {
			return err
		}
	}
	if err := printLinted(a, l); err != nil {
		return err
	}
	if len(l.Problems) > 0 || finding.NewResult(l.Findings, nil).Blocks() {
		return exit.Quiet(exit.Blocked)
	}
	return nil
}

// readSet reads a flag set.
func readSet(ctx context.Context, a *app.App, text string, catalogue *setting.Catalogue,
	fleet *setting.Fleet, l *lint) error {
	source, done, err := flagsource.Open(ctx, a, text)
	if err != nil {
		return err
	}
	set, err := source.Load(ctx)
	var refused *flagset.Error
	switch {
	case errors.As(err, &refused):
		for _, p := range refused.Problems {
			l.Problems = append(l.Problems, linted{refused.Name, p})
		}
	case err != nil:
		return flagsource.Error(errors.Join(err, done()))
	default:
		l.Flags += len(set.Keys())
		for _, p := range set.Warnings() {
			l.Warnings = append(l.Warnings, linted{text, p})
		}
		bound, found := catalogue.Bind(set)
		l.Findings = append(l.Findings, found...)
		if fleet != nil && !finding.NewResult(found, nil).Blocks() {
			l.Findings = append(l.Findings, rendered(fleet, set, bound)...)
		}
	}
	return done()
}

// rendered checks the effects of flags on the nodes of a cluster.
func rendered(fleet *setting.Fleet, set *flagset.Set, bound []setting.Bound) []finding.Finding {
	after, found := fleet.With(bound, fleet.Evaluate(set, origin.FlagsOf(bound), time.Now().Unix(), nil))
	return append(found, setting.LintEdit(setting.Diff(fleet, after))...)
}

// edit lints objects that are about to be applied.
func (l *lint) edit(fleet *setting.Fleet, manifest []unstructured.Unstructured) {
	if fleet == nil {
		l.Findings = append(l.Findings, setting.Read(&cluster.Snapshot{}, manifest).Lint()...)
		return
	}
	after := fleet.After(manifest)
	before := map[string]bool{}
	for _, f := range fleet.Lint() {
		before[f.ID+f.Message] = true
	}
	for _, f := range after.Lint() {
		if !before[f.ID+f.Message] && f.ID != "flags/no-effect" { // the difference reports it
			l.Findings = append(l.Findings, f)
		}
	}
	l.Findings = append(l.Findings, setting.LintEdit(setting.Diff(fleet, after))...)
}

func printLinted(a *app.App, l lint) error {
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, l)
	}
	for _, p := range l.Problems {
		fmt.Fprintln(a.Out, p.In(p.Source))
	}
	for _, p := range l.Warnings {
		fmt.Fprintf(a.Out, "%s:%d: warning: %s\n", p.Source, p.Line, p.Error())
	}
	for _, note := range l.Notes {
		fmt.Fprintf(a.Out, "note: %s\n", note)
	}
	if err := survey.PrintFindings(a, l.Findings); err != nil {
		return err
	}
	if len(l.Problems) > 0 {
		_, err := fmt.Fprintf(a.Out, "%s: all providers would refuse it\n", cluster.Count(len(l.Problems), "problem"))
		return err
	}
	if len(l.Findings) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(a.Out, "%s, no problem, %s\n", cluster.Count(l.Flags, "flag"),
		cluster.Count(len(l.Warnings), "warning"))
	return err
}
