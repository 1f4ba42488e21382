package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

func (a *app) flagsExplainCommand() *cobra.Command {
	var from []string
	var releases map[string]string
	command := &cobra.Command{
		Use:   "explain [FLAG]",
		Short: "What a flag of a network does to a node: values, places, effect, proof, what it goes with",
		Long: "Explains a setting of Calico, Cilium, Antrea, flannel, Weave or kube-proxy; without a name it lists them. The versions\n" +
			"are those of --from, or of --release, or the newest that are known.",
		Args: atMostOne("the name of a flag, such as nftablesMode or cilium/datapath-mode"),
		RunE: func(command *cobra.Command, args []string) error {
			for component, version := range releases {
				if !slices.Contains(setting.Components(), component) {
					return fail(exitUsage, "one of "+strings.Join(setting.Components(), ", "), "there is no catalogue of %q", component)
				}
				if cluster.Minor(version) == nil {
					return fail(exitUsage, "such as --release calico=v3.31.0", "%q is no version of %s", version, component)
				}
			}
			catalogue := setting.New(releases)
			if len(from) > 0 {
				snapshot, err := a.see(command.Context(), from)
				if err != nil {
					return err
				}
				catalogue = setting.Read(snapshot, nil).Catalogue()
			}
			for _, note := range catalogue.Notes() {
				fmt.Fprintf(a.Err, "note: %s\n", note)
			}
			if len(args) == 0 {
				return a.listKnobs(catalogue)
			}
			k, err := catalogue.Find(args[0])
			if err != nil {
				return fail(exitFailed, hintOf(err), "%w", err)
			}
			return a.printKnob(k)
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, fromHelp)
	command.Flags().StringToStringVar(&releases, "release", nil, "COMPONENT=VERSION, such as calico=v3.31.0 (repeatable)")
	return command
}

func (a *app) listKnobs(catalogue *setting.Catalogue) error {
	if a.output == "json" {
		return printJSON(a.Out, catalogue.All())
	}
	for _, k := range catalogue.All() {
		if _, err := fmt.Fprintf(a.Out, "%-44s %-8s %s\n", k.ID(), k.Type, k.Title); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printKnob(k *setting.Knob) error {
	if a.output == "json" {
		return printJSON(a.Out, k)
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
	line("default", "%s", quoteEmpty(k.Default))
	if k.BadValue != "" {
		line("else", "%s", k.BadValue)
	}
	if k.Apart != "" {
		line("nodes", "may differ: %s", k.Apart)
	}
	if k.Refuses != "" {
		line("refuses", "%s", k.Refuses)
	}
	if len(k.Aliases) > 0 {
		line("also", "%s", strings.Join(k.Aliases, ", "))
	}
	b.WriteString("\nWhere it is set; each beats those above it:\n")
	for i, p := range k.Places {
		path := p.Path + p.Env + p.Argument
		if p.Inside != "" {
			path += ", in it " + p.Inside
		}
		fmt.Fprintf(&b, "  %d. %s (%s): %s\n     %s, %s\n", i+1, p.Name, p.Scope, quoteEmpty(path), p.Effect, byWhom(p.Trigger))
		if p.Note != "" {
			fmt.Fprintf(&b, "     %s\n", p.Note)
		}
	}
	b.WriteString("\nThat it took effect shows in:\n")
	for _, p := range k.Proofs {
		value := ""
		if p.Value != "" {
			value = p.Value + ": "
		}
		fmt.Fprintf(&b, "  - %s%s\n", value, p.How)
	}
	if len(k.Couples) > 0 {
		b.WriteString("\nIt goes with:\n")
		for _, c := range k.Couples {
			fmt.Fprintf(&b, "  - %s%s: %s\n", c.With, demand(c), c.Why)
		}
	}
	if len(k.Rollback) > 0 {
		b.WriteString("\nBack, in this order:\n")
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
		setting.Itself:  "by itself, everywhere it is for at the same moment",
		setting.Rollout: "by the DaemonSet's rollout",
		setting.Nobody:  "when somebody restarts it",
	}[t]
}

func demand(c setting.Coupling) string {
	text := ""
	if c.When != "" {
		text = " when " + c.When
	}
	if len(c.Needs) > 0 {
		text += ", which has to be " + strings.Join(c.Needs, " or ")
	}
	if len(c.Not) > 0 {
		text += ", which must not be " + strings.Join(c.Not, " or ")
	}
	return text
}
