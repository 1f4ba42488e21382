// Package slo has the flags for the user's own signals, for the commands that make plans whose gates ask them.
package slo

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
)

// Flags are --slo and --prometheus.
type Flags struct {
	texts      []string
	prometheus string
}

// Register adds the flags. The texts say who asks the signals, and when.
func (f *Flags) Register(flags *pflag.FlagSet, when string) {
	flags.StringArrayVar(&f.texts, "slo", nil, "a signal of your own that must hold, asked "+when+
		": 'QUERY < NUMBER' of a Prometheus (<, <=, >, >=, == or !=), "+
		"a URL that must answer with an HTTP status of 200 to 299, or 'command: PROGRAM ARG...', which must end with "+
		"exit code 0; no answer is a failure; repeatable")
	flags.StringVar(&f.prometheus, "prometheus", "",
		"address of the Prometheus for queries of --slo that do not begin with one, such as http://prometheus:9090")
}

// Resolve returns the signals of the flags, or else the given ones, each as the text that a plan keeps. It refuses what
// is no signal.
func (f *Flags) Resolve(given []string) ([]string, error) {
	texts := f.texts
	if len(texts) == 0 {
		texts = given
	}
	if f.prometheus != "" {
		if len(texts) == 0 {
			return nil, exit.Fail(exit.Usage, "add --slo 'sum(rate(errors[1m])) < 0.01'",
				"--prometheus is given, and no signal of --slo")
		}
		if one, err := signal.Parse(f.prometheus); err != nil || one.Address == "" || one.Query != "" {
			return nil, exit.Fail(exit.Usage,
				"such as --prometheus http://prometheus.example.org:9090, without a password",
				"the text of --prometheus is not an address")
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, text := range texts {
		all = append(all, signal.Absolute(here, signal.At(f.prometheus, text)))
	}
	if _, err := signal.ParseAll(all); err != nil {
		return nil, exit.Fail(exit.Usage, "write it as "+signal.Form, "--slo: %w", err)
	}
	return all, nil
}

// Given reports whether the flags name signals: those of a document may be of someone else.
func (f *Flags) Given() bool { return len(f.texts) > 0 }

// withoutCommands are the signals that are no commands.
func withoutCommands(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		one, err := signal.Parse(text)
		return err == nil && len(one.Command) > 0
	})
}

// Before says what happens if signals do not hold before a change.
type Before struct {
	// Nothing says what was not begun, such as "nothing was installed".
	Nothing string
	// Accept goes on, with a note, if a signal fails; Hint says what to do about it.
	Accept bool
	Hint   string
	// Silent and Fails are the exit codes if a signal has no answer, or fails.
	Silent, Fails int
}

// MustHold asks signals once, from this machine, before anything is changed. Notes go to w.
func MustHold(ctx context.Context, w io.Writer, texts []string, before Before) error {
	state, said, err := put(ctx, texts)
	switch {
	case err != nil:
		return err
	case state == signal.Unknown:
		return exit.Fail(before.Silent, "ask the signal from this machine; a signal without an answer proves nothing",
			"%s; %s", said, before.Nothing)
	case state == signal.Fails && !before.Accept:
		return exit.Fail(before.Fails, before.Hint, "a signal fails already before the change, and %s: %s",
			before.Nothing, said)
	case state == signal.Fails:
		fmt.Fprintf(w, "note: a signal fails already before the change: %s\n", said)
	}
	return nil
}

// Note asks signals once, from this machine, where a plan is made that may run elsewhere. It runs no commands.
func Note(ctx context.Context, w io.Writer, texts []string) error {
	state, said, err := put(ctx, withoutCommands(texts))
	switch {
	case err != nil:
		return err
	case state == signal.Unknown:
		fmt.Fprintf(w, "note: %s; the gates ask from where the plan runs, and fail without an answer\n", said)
	case state == signal.Fails:
		fmt.Fprintf(w, "note: a signal of --slo fails already: %s; the first gate of the plan will fail\n", said)
	}
	return nil
}

// put asks signals once, from this machine, and returns the least that they prove, and what those said that do not
// hold. Without signals it is signal.Holds.
func put(ctx context.Context, texts []string) (signal.State, string, error) {
	signals, err := signal.ParseAll(texts)
	if err != nil || len(signals) == 0 {
		return signal.Holds, "", err
	}
	answers := (&ask.Asker{}).All(ctx, signals)
	if err := ctx.Err(); err != nil {
		return signal.Unknown, "", err
	}
	return signal.Worst(answers), signal.Say(signal.Not(answers)), nil
}
