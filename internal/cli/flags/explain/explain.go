package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// NewCommand makes the command theseus flags explain.
func NewCommand(a *app.App) *cobra.Command {
	var from []string
	var releases map[string]string
	command := &cobra.Command{
		Use:   "explain [FLAG]",
		Short: "Explain a setting of a network: values, where it is set, effects, proof, dependencies",
		Long: "Explains a setting of Calico, Cilium, Antrea, flannel, Weave or kube-proxy; without a name, it " +
			"lists them. The versions\n" +
			"are those of --from or of --release, or else the newest that Theseus knows.",
		Args: usage.AtMostOne("the name of a flag, such as nftablesMode or cilium/datapath-mode"),
		RunE: func(command *cobra.Command, args []string) error {
			for component, version := range releases {
				if !slices.Contains(setting.Components(), component) {
					return exit.Fail(exit.Usage, "one of "+strings.Join(setting.Components(), ", "),
						"Theseus has no catalogue of %q", component)
				}
				if cluster.Minor(version) == nil {
					return exit.Fail(exit.Usage, "for example --release calico=v3.31.0",
						"%q is not a version of %s", version, component)
				}
			}
			catalogue := setting.New(releases)
			if len(from) > 0 {
				snapshot, err := survey.See(command.Context(), a, from)
				if err != nil {
					return err
				}
				catalogue = setting.Read(snapshot, nil).Catalogue()
			}
			for _, note := range catalogue.Notes() {
				fmt.Fprintf(a.Err, "note: %s\n", note)
			}
			if len(args) == 0 {
				return listKnobs(a, catalogue)
			}
			k, err := catalogue.Find(args[0])
			if err != nil {
				return exit.Fail(exit.Failed, exit.HintOf(err), "%w", err)
			}
			return printKnob(a, k)
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, flagsource.FromHelp)
	command.Flags().StringToStringVar(&releases, "release", nil,
		"COMPONENT=VERSION, such as calico=v3.31.0 (repeatable)")
	return command
}

func listKnobs(a *app.App, catalogue *setting.Catalogue) error {
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, catalogue.All())
	}
	for _, k := range catalogue.All() {
		if _, err := fmt.Fprintf(a.Out, "%-44s %-8s %s\n", k.ID(), k.Type, k.Title); err != nil {
			return err
		}
	}
	return nil
}

func printKnob(a *app.App, k *setting.Knob) error {
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, k)
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(&b, "%s\n  %s\n\n", k.ID(), k.Title)
	takes := k.Takes
	if len(k.Values) > 0 {
		takes = strings.Join(k.Values, ", ")
	}
	line("takes", "%s: %s", k.Type, takes)
	line("default", "%s", flagsource.OrNone(k.Default))
	if k.BadValue != "" {
		line("else", "%s", k.BadValue)
	}
	if k.MayDiffer != "" {
		line("nodes", "may differ: %s", k.MayDiffer)
	}
	if k.Refuses != "" {
		line("refuses", "%s", k.Refuses)
	}
	if len(k.Aliases) > 0 {
		line("also", "%s", strings.Join(k.Aliases, ", "))
	}
	b.WriteString("\nWhere it is set; each overrides those above it:\n")
	for i, p := range k.Places {
		path := p.Path + p.Env + p.Argument
		if p.Inside != "" {
			path += ", in it " + p.Inside
		}
		fmt.Fprintf(&b, "  %d. %s (%s): %s\n     %s, %s\n", i+1, p.Name, p.Scope, flagsource.OrNone(path),
			p.Effect, byWhom(p.Trigger))
		if p.Note != "" {
			fmt.Fprintf(&b, "     %s\n", p.Note)
		}
	}
	b.WriteString("\nProof that it took effect:\n")
	for _, p := range k.Proofs {
		value := ""
		if p.Value != "" {
			value = p.Value + ": "
		}
		fmt.Fprintf(&b, "  - %s%s\n", value, p.How)
	}
	if len(k.Couples) > 0 {
		b.WriteString("\nDependencies:\n")
		for _, c := range k.Couples {
			fmt.Fprintf(&b, "  - %s%s: %s\n", c.With, demand(c), c.Why)
		}
	}
	if len(k.Rollback) > 0 {
		b.WriteString("\nTo revert, in this order:\n")
		for i, step := range k.Rollback {
			fmt.Fprintf(&b, "  %d. %s\n", i+1, step)
		}
	}
	fmt.Fprintf(&b, "\nSources: %s\n", strings.Join(k.Sources, "; "))
	_, err := fmt.Fprint(a.Out, b.String())
	return err
}

func byWhom(t setting.Trigger) string {
	return map[setting.Trigger]string{
		setting.Itself:  "by itself, on all its nodes at the same moment",
		setting.Rollout: "by the DaemonSet's rollout",
		setting.ByHand:  "at its next restart",
	}[t]
}

func demand(c setting.Coupling) string {
	text := ""
	if c.When != "" {
		text = " when " + c.When
	}
	if len(c.Needs) > 0 {
		text += ", which must be " + strings.Join(c.Needs, " or ")
	}
	if len(c.Not) > 0 {
		text += ", which must not be " + strings.Join(c.Not, " or ")
	}
	return text
}
