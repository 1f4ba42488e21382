package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/flag"
	"github.com/theseus-cni/theseus/internal/flags"
)

const sourceHelp = `A source is a file (.json, .yaml), a folder of them, sqlite:FILE, postgres://..., k8s:NAMESPACE/NAME (a FeatureFlag
of open-feature-operator), or the http(s):// address of a server that speaks OFREP.`

func (a *app) flagsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "flags",
		Short: "Feature flags: look into flag sets, evaluate them, serve them",
		Long:  "Works on flag sets in flagd's format, with the operators cidr and node_selector besides.\n\n" + sourceHelp,
		Args:  none,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(a.flagsLintCommand(), a.flagsEvalCommand(), a.flagsServeCommand(), a.flagsPutCommand(), a.flagsHistoryCommand())
	return command
}

func (a *app) flagsLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint SOURCE...",
		Short: "Say what is wrong with flag sets, with lines and reasons",
		Long:  "Reads flag sets as strictly as every provider does, and lists all that it would refuse.\n\n" + sourceHelp,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fail(exitUsage, command.CommandPath()+" --help", "%s takes sources", command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, sources []string) error {
			return a.lintFlags(command.Context(), sources)
		},
	}
}

// linted is one thing that lint says.
type linted struct {
	Source string `json:"source"`
	flag.Problem
}

func (a *app) lintFlags(ctx context.Context, sources []string) error {
	problems, warnings := []linted{}, []linted{}
	count := 0
	for _, text := range sources {
		source, done, err := a.openSource(ctx, text)
		if err != nil {
			return err
		}
		set, err := source.Load(ctx)
		var refused *flag.Error
		switch {
		case errors.As(err, &refused):
			for _, p := range refused.Problems {
				problems = append(problems, linted{refused.Name, p})
			}
		case err != nil:
			return sourceError(errors.Join(err, done()))
		default:
			count += len(set.Keys())
			for _, p := range set.Warnings() {
				warnings = append(warnings, linted{text, p})
			}
		}
		if err := done(); err != nil {
			return err
		}
	}
	if err := a.printLinted(problems, warnings, count); err != nil {
		return err
	}
	if len(problems) > 0 {
		return quietExit(exitBlocked)
	}
	return nil
}

func (a *app) printLinted(problems, warnings []linted, count int) error {
	if a.output == "json" {
		return printJSON(a.Out, map[string]any{"problems": problems, "warnings": warnings, "flags": count})
	}
	for _, p := range problems {
		fmt.Fprintf(a.Out, "%s:%d: %s\n", p.Source, p.Line, p.Error())
	}
	for _, p := range warnings {
		fmt.Fprintf(a.Out, "%s:%d: warning: %s\n", p.Source, p.Line, p.Error())
	}
	if len(problems) > 0 {
		_, err := fmt.Fprintf(a.Out, "%d problems: no provider would take it\n", len(problems))
		return err
	}
	_, err := fmt.Fprintf(a.Out, "%d flags, no problem, %d warnings\n", count, len(warnings))
	return err
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func (a *app) openSource(ctx context.Context, text string) (flags.Source, func() error, error) {
	source, done, err := flags.OpenSource(ctx, text, a.dynamicClient)
	return source, done, sourceError(err)
}

// sourceError adds a hint where an error brings none.
func sourceError(err error) error {
	if err == nil || hintOf(err) != "" {
		return err
	}
	return fail(exitFailed, "check that the source answers; theseus flags --help says how it is written", "%w", err)
}

func (a *app) dynamicClient() (dynamic.Interface, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	return client.Dynamic, nil
}
