package usage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// forStrategy is the annotation of flags that are only for one strategy: its name.
const forStrategy = "theseus.dev/strategy"

// OfStrategy marks the flags that add registers: they are for one strategy.
func OfStrategy(strategy string, flags *pflag.FlagSet, add func()) {
	earlier := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { earlier[f.Name] = true })
	add()
	flags.VisitAll(func(f *pflag.Flag) {
		if !earlier[f.Name] {
			f.Annotations = map[string][]string{forStrategy: {strategy}}
		}
	})
}

func strategyOf(f *pflag.Flag) string {
	if of := f.Annotations[forStrategy]; len(of) > 0 {
		return of[0]
	}
	return ""
}

// Foreign refuses flags of a strategy that was not chosen: they would have no effect.
func Foreign(flags *pflag.FlagSet, strategy string) error {
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if err == nil && strategyOf(f) == strategy {
			err = exit.Fail(exit.Usage, "add --strategy "+strategy+", or leave the flag out",
				"--%s is only for the strategy %s", f.Name, strategy)
		}
	})
	return err
}

// Print prints the part of a help text that follows the description, width columns wide. Flags for one strategy have a
// heading of their own.
func Print(command *cobra.Command, width int) error {
	out := command.OutOrStderr()
	fmt.Fprintf(out, "Usage:")
	if command.Runnable() {
		fmt.Fprintf(out, "\n  %s", command.UseLine())
	}
	if command.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n  %s [command]\n\nAvailable Commands:", command.CommandPath())
		for _, below := range command.Commands() {
			if below.IsAvailableCommand() || below.Name() == "help" {
				fmt.Fprintf(out, "\n  %-*s %s", below.NamePadding(), below.Name(), below.Short)
			}
		}
	}
	if command.HasExample() {
		fmt.Fprintf(out, "\n\nExamples:\n%s", command.Example)
	}
	for _, group := range flagGroups(command.LocalFlags()) {
		fmt.Fprintf(out, "\n\n%s:\n%s", group.title, strings.TrimRight(group.flags.FlagUsagesWrapped(width), " \n"))
	}
	if command.HasAvailableInheritedFlags() {
		fmt.Fprintf(out, "\n\nGlobal Flags:\n%s",
			strings.TrimRight(command.InheritedFlags().FlagUsagesWrapped(width), " \n"))
	}
	if command.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n\nUse \"%s [command] --help\" for more information about a command.", command.CommandPath())
	}
	fmt.Fprintln(out)
	return nil
}

type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// flagGroups are the general flags, and then those of each strategy that has its own.
func flagGroups(flags *pflag.FlagSet) []flagGroup {
	var groups []flagGroup
	at := map[string]*pflag.FlagSet{}
	for _, one := range []struct{ strategy, title string }{
		{"", "Flags"}, {"surge", "Flags of --strategy surge"}, {"mirror", "Flags of --strategy mirror"},
	} {
		at[one.strategy] = pflag.NewFlagSet("", pflag.ContinueOnError)
		groups = append(groups, flagGroup{one.title, at[one.strategy]})
	}
	flags.VisitAll(func(f *pflag.Flag) {
		shown, strategy := *f, strategyOf(f)
		if strategy != "" {
			shown.Usage = strings.TrimPrefix(strings.TrimPrefix(f.Usage, "strategy "), strategy+": ")
		}
		at[strategy].AddFlag(&shown)
	})
	var filled []flagGroup
	for _, group := range groups {
		if group.flags.HasAvailableFlags() {
			filled = append(filled, group)
		}
	}
	return filled
}

// Takes sets a command's output formats, in addition to text; others are refused before the command runs.
func Takes(command *cobra.Command, forms ...string) *cobra.Command {
	command.Annotations = map[string]string{OutputForms: strings.Join(append([]string{"text"}, forms...), " ")}
	return command
}

// OutputForms is the annotation that lists the output formats of a command.
const OutputForms = "theseus.dev/output"
