package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/preflight"
)

const sourceHelp = `A source is a file (.json, .yaml), a folder of them, sqlite:FILE, postgres://..., k8s:NAMESPACE/NAME (a FeatureFlag
of open-feature-operator), or, where values are enough, the http(s):// address of a server that speaks OFREP.`

func (a *app) flagsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "flags",
		Short: "Feature flags, and the settings of networks that they mean",
		Long:  "Works on flag sets in flagd's format, with the operators cidr and node_selector besides.\n\n" + sourceHelp,
		Args:  none,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	for _, one := range []*cobra.Command{a.flagsLintCommand(), a.flagsEvalCommand(), a.flagsDiffCommand(), a.flagsExplainCommand(),
		a.flagsServeCommand(), a.flagsPutCommand(), a.flagsHistoryCommand(), a.flagsVerifyCommand()} {
		command.AddCommand(takes(one, "json"))
	}
	command.AddCommand(a.flagsRolloutCommand()) // it makes a file
	return command
}

func (a *app) flagsLintCommand() *cobra.Command {
	var from []string
	command := &cobra.Command{
		Use:   "lint [SOURCE...]",
		Short: "Say what is wrong with flags, and with the settings of a cluster",
		Long: "Reads flag sets as strictly as every provider does, and lists all that it would refuse, and values that the\n" +
			"setting which a flag means does not take. A source may also be a file of Kubernetes objects. With --from, what the\n" +
			"sources would do to that cluster is said too: edits that do nothing as something stronger wins, what does not go\n" +
			"together, and how many agents would start again at once. Without a source the cluster's own settings are read.\n\n" + sourceHelp,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 && len(from) == 0 {
				return fail(exitUsage, command.CommandPath()+" --help", "%s takes sources, or --from", command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, sources []string) error {
			return a.lintFlags(command.Context(), sources, from)
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, fromHelp)
	return command
}

// linted is one thing that lint says of a flag set.
type linted struct {
	Source string `json:"source"`
	flagset.Problem
}

// lint collects what is said.
type lint struct {
	Problems []linted          `json:"problems"`
	Warnings []linted          `json:"warnings"`
	Findings []finding.Finding `json:"findings"`
	Notes    []string          `json:"notes"`
	Flags    int               `json:"flags"`
}

func (a *app) lintFlags(ctx context.Context, sources, from []string) error {
	l := lint{Problems: []linted{}, Warnings: []linted{}, Findings: []finding.Finding{}, Notes: []string{}}
	catalogue := setting.New(nil)
	var fleet *setting.Fleet
	if len(from) > 0 {
		snapshot, err := a.see(ctx, from)
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
		manifest, isManifest, err := manifestOf(text)
		switch {
		case err != nil:
		case isManifest:
			l.edit(fleet, manifest)
		default:
			err = a.lintSet(ctx, text, catalogue, fleet, &l)
		}
		if err != nil {
			return err
		}
	}
	if err := a.printLinted(l); err != nil {
		return err
	}
	if len(l.Problems) > 0 || finding.NewResult(l.Findings, nil).Blocks() {
		return quietExit(exitBlocked)
	}
	return nil
}

// lintSet reads a flag set.
func (a *app) lintSet(ctx context.Context, text string, catalogue *setting.Catalogue, fleet *setting.Fleet, l *lint) error {
	source, done, err := a.openSource(ctx, text)
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
		return sourceError(errors.Join(err, done()))
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

// rendered says what comes of flags on the nodes of a cluster.
func rendered(fleet *setting.Fleet, set *flagset.Set, bound []setting.Bound) []finding.Finding {
	after, found := fleet.With(bound, fleet.Evaluate(set, flagsOf(bound), time.Now().Unix(), nil))
	return append(found, setting.LintEdit(setting.Diff(fleet, after))...)
}

func flagsOf(bound []setting.Bound) []string {
	var keys []string
	for _, b := range bound {
		keys = append(keys, b.Flag)
	}
	return keys
}

// edit lints objects that somebody is about to apply.
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
		if !before[f.ID+f.Message] && f.ID != "flags/no-effect" { // the difference says so
			l.Findings = append(l.Findings, f)
		}
	}
	l.Findings = append(l.Findings, setting.LintEdit(setting.Diff(fleet, after))...)
}

func (a *app) printLinted(l lint) error {
	if a.output == "json" {
		return printJSON(a.Out, l)
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
	if err := a.printFindingsText(l.Findings); err != nil {
		return err
	}
	if len(l.Problems) > 0 {
		_, err := fmt.Fprintf(a.Out, "%s: no provider would take it\n", cluster.Count(len(l.Problems), "problem"))
		return err
	}
	if len(l.Findings) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(a.Out, "%s, no problem, %s\n", cluster.Count(l.Flags, "flag"), cluster.Count(len(l.Warnings), "warning"))
	return err
}

func (a *app) printFindingsText(found []finding.Finding) error {
	if len(found) == 0 {
		return nil
	}
	return preflight.Text(a.Out, finding.NewResult(found, nil), preflight.Style{Color: isTerminal(a.Out) && os.Getenv("NO_COLOR") == ""})
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func (a *app) openSource(ctx context.Context, text string) (provider.Source, func() error, error) {
	if isServer(text) {
		return nil, nil, fail(exitUsage, "name what that server has its flags from", "%s is a server, which tells values and no rules", text)
	}
	source, done, err := provider.OpenSource(ctx, text, a.dynamicClient)
	return source, done, sourceError(err)
}

// sourceError adds a hint where an error brings none.
func sourceError(err error) error {
	if err == nil || hintOf(err) != "" {
		return err
	}
	return fail(exitFailed, "check that it is there and answers; theseus flags --help says how sources are written", "%w", err)
}

func (a *app) dynamicClient() (dynamic.Interface, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	return client.Dynamic, nil
}
