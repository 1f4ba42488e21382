// Package slo has the flags for the user's own signals, for the commands that make plans whose gates ask them.
package slo

import (
	"context"
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
	flags.StringArrayVar(&f.texts, "slo", nil, "a signal of your own that must hold, asked "+when+": 'QUERY < NUMBER' of a Prometheus (<, <=, >, >=, == or !=), "+
		"a URL that must answer with an HTTP status of 200 to 299, or 'command: PROGRAM ARG...', which must end with exit code 0; no answer is a failure; repeatable")
	flags.StringVar(&f.prometheus, "prometheus", "", "address of the Prometheus for queries of --slo that do not begin with one, such as http://prometheus:9090")
}

// Resolve returns the signals of the flags, or else the given ones, each as the text that a plan keeps. It refuses what is no signal.
func (f *Flags) Resolve(given []string) ([]string, error) {
	texts := f.texts
	if len(texts) == 0 {
		texts = given
	}
	if f.prometheus != "" {
		if len(texts) == 0 {
			return nil, exit.Fail(exit.Usage, "add --slo 'sum(rate(errors[1m])) < 0.01'", "--prometheus is given, and no signal of --slo")
		}
		if one, err := signal.Parse(f.prometheus); err != nil || one.Address == "" || one.Query != "" {
			return nil, exit.Fail(exit.Usage, "such as --prometheus http://prometheus.example.org:9090", "--prometheus %s is not an address", f.prometheus)
		}
	}
	var all []string
	for _, text := range texts {
		all = append(all, signal.At(f.prometheus, text))
	}
	if _, err := signal.ParseAll(all); err != nil {
		return nil, exit.Fail(exit.Usage, "write it as "+signal.Form, "--slo %w", err)
	}
	return all, nil
}

// WithoutCommands are the signals that are no commands: a Change document may be of someone else, and planning runs nothing of it.
func WithoutCommands(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		one, err := signal.Parse(text)
		return err == nil && len(one.Command) > 0
	})
}

// Ask asks signals once, from this machine, and returns the least that they prove, and what those said that do not hold. Without
// signals it is signal.Holds.
func Ask(ctx context.Context, texts []string) (signal.State, string, error) {
	signals, err := signal.ParseAll(texts)
	if err != nil || len(signals) == 0 {
		return signal.Holds, "", err
	}
	answers := ask.Asker{}.All(ctx, signals)
	if err := ctx.Err(); err != nil {
		return signal.Unknown, "", err
	}
	return signal.Worst(answers), signal.Say(signal.Not(answers)), nil
}
