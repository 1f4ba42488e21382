package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// NewPut makes the command theseus flags put.
func NewPut(a *app.App) *cobra.Command {
	var source, kind, file, who, note string
	var version int64
	var remove bool
	command := &cobra.Command{
		Use:   "put NAME {--file FILE | --remove}",
		Short: "Write a flag to a database, or remove it, with the editor and a reason",
		Long: "Writes one flag to sqlite:FILE or postgres://.... --version is the version that you " +
			"edited, as `theseus flags\n" +
			"history` shows it, 0 for a new flag. If someone else has edited the flag since, the " +
			"command writes nothing and\n" +
			"names that edit. It refuses a flag that would make the set invalid. --kind evaluator " +
			"writes a shared rule of\n" +
			"$evaluators, and --kind metadata a property of the whole set.",
		Args: usage.Exactly(1, "the key of a flag"),
		RunE: func(command *cobra.Command, args []string) error {
			if !slices.Contains(provider.Kinds(), kind) {
				return noKind(kind)
			}
			if (file != "") == remove {
				return exit.Fail(exit.Usage, "theseus flags put "+args[0]+" --file flag.yaml, or --remove",
					"neither --file nor --remove is given for %s", args[0])
			}
			if who == "" {
				return exit.Fail(exit.Usage, "add --who NAME", "the name of the editor is missing")
			}
			value := ""
			if !remove {
				data, err := infile.Read(file)
				if err != nil {
					return err
				}
				plain, err := flagset.Value(file, data, provider.FormatOf(file))
				if err != nil {
					return exit.Fail(exit.Failed,
						"write the flag as JSON or YAML: state, variants, defaultVariant, targeting", "%w", err)
				}
				asJSON, err := json.Marshal(plain)
				if err != nil {
					return err
				}
				value = string(asJSON)
			}
			return withDatabase(command.Context(), a, source, provider.Presence(!remove),
				func(d *provider.Database) error {
					return d.Apply(command.Context(),
						provider.Edit{Kind: kind, Name: args[0], Value: value,
							Version: version, Who: who, Note: note})
				})
		},
	}
	f := command.Flags()
	f.StringVar(&source, "source", "", "the database")
	f.StringVar(&kind, "kind", provider.FlagItem, kindHelp)
	f.StringVar(&file, "file", "", "its value as JSON or YAML")
	f.BoolVar(&remove, "remove", false, "remove it")
	f.Int64Var(&version, "version", 0, "the version that you edited, 0 for a new flag")
	f.StringVar(&who, "who", whoami(), "name of the editor")
	f.StringVar(&note, "note", "", "reason for the edit")
	return command
}

const kindHelp = "flag, evaluator (a shared rule) or metadata"

func noKind(kind string) error {
	return exit.Fail(exit.Usage, "one of "+strings.Join(provider.Kinds(), ", "), "there is no kind %q", kind)
}

// whoami is the user of this machine.
func whoami() string {
	host, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return ""
}

func withDatabase(ctx context.Context, a *app.App, source string, presence provider.Presence,
	do func(*provider.Database) error) error {
	if scheme, rest, _ := strings.Cut(source, ":"); rest == "" ||
		scheme != "sqlite" && scheme != "postgres" && scheme != "postgresql" {
		return exit.Fail(exit.Usage, "name it with --source sqlite:FILE or --source postgres://...",
			"%q is not a database", source)
	}
	d, err := provider.OpenDatabase(ctx, source, presence)
	if err != nil {
		return flagsource.Error(err)
	}
	return flagsource.Error(errors.Join(do(d), d.Close()))
}

// NewHistory makes the command theseus flags history.
func NewHistory(a *app.App) *cobra.Command {
	var source, kind string
	command := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show the edits of flags in a database, with their editors, times and reasons",
		Args:  usage.AtMostOne("the key of a flag"),
		RunE: func(command *cobra.Command, args []string) error {
			if !slices.Contains(provider.Kinds(), kind) {
				return noKind(kind)
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return withDatabase(command.Context(), a, source, provider.Existing, func(d *provider.Database) error {
				entries, err := d.History(command.Context(), kind, name)
				if err != nil {
					return err
				}
				if len(entries) == 0 && name != "" {
					return exit.Fail(exit.Failed, "theseus flags history --source "+source+" shows every edit",
						"there are no edits of a %s %q", kind, name)
				}
				if a.Output == "json" {
					return terminal.WriteJSON(a.Out, entries)
				}
				for _, e := range entries {
					value := e.Value
					if value == "" {
						value = "removed"
					}
					name := e.Name
					if e.Kind != provider.FlagItem {
						name = e.Kind + " " + name
					}
					fmt.Fprintf(a.Out, "%s  %s  version %d  %s  %s  %s\n", e.At.Format(time.RFC3339), name,
						e.Version, e.Who, e.Note, value)
				}
				return nil
			})
		},
	}
	command.Flags().StringVar(&source, "source", "", "the database")
	command.Flags().StringVar(&kind, "kind", provider.FlagItem, "kind of NAME: "+kindHelp)
	return command
}
