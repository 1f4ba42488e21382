package copy

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
)

// NewDiff makes the command theseus mirror diff.
func NewDiff(m *clusters.Clusters) *cobra.Command {
	flags := &Flags{}
	command := &cobra.Command{
		Use:   "diff -n NAMESPACE ...",
		Short: "Show what differs between the original and the mirror, and why",
		Long: "Shows what copy with the same flags would do, field by field, and which field manager wrote each " +
			"difference. It writes nothing.\n" +
			"Exit code 3 means that there are differences.",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			copier, err := Copier(m, flags)
			if err != nil {
				return err
			}
			pass, err := copier.Look(command.Context())
			if err != nil {
				return err
			}
			showDiff(m, pass)
			if err := replica.Decided(pass); err != nil {
				return Coded(err)
			}
			if pass.Delta.Writes() > 0 {
				return exit.Quiet(exit.Blocked)
			}
			return nil
		},
	}
	flags.Register(command)
	return command
}

// difference is one object that differs.
type difference struct {
	Object string               `json:"object"`
	Verb   objects.Verb         `json:"verb"`
	Fields []objects.Difference `json:"fields,omitempty"`
}

func showDiff(m *clusters.Clusters, pass *replica.Pass) {
	steps := slices.Concat(append(slices.Clone(pass.Delta.Waves), pass.Delta.Deletes)...)
	if m.Output == "json" {
		documents := []difference{}
		for _, step := range steps {
			documents = append(documents, difference{step.Key.String(), step.Verb, shown(step)})
		}
		terminal.Encode(m.Out, documents)
		return
	}
	for _, step := range steps {
		fmt.Fprintf(m.Out, "%s %s\n", step.Verb, step.Key)
		for _, field := range shown(step) {
			fmt.Fprintf(m.Out, "    %s%s\n", field.Path, values(field))
		}
	}
	fmt.Fprintf(m.Out, "%d differ, %d are in step\n", len(steps), pass.Delta.InStep)
}

// shown are the fields of a step that differ, without passwords and tokens. Fields of a Secret are shown without values
// and without digests, from which a short value could be guessed; that includes its metadata, where kubectl stores the
// applied configuration.
func shown(step objects.Step) []objects.Difference {
	secret := step.Key.Group == "" && step.Key.Kind == "Secret"
	bare := make([]objects.Difference, len(step.Why))
	for i, field := range step.Why {
		bare[i] = objects.Difference{Path: field.Path, By: field.By}
		if !secret {
			bare[i].Want, bare[i].Have = redacted(field.Path, field.Want), redacted(field.Path, field.Have)
		}
	}
	return bare
}

// redacted is a field's value without secrets; a missing field stays missing.
func redacted(path string, value any) any {
	if value == nil {
		return nil
	}
	return cluster.RedactField(path, value)
}

// values shows the two values of a field.
func values(field objects.Difference) string {
	if field.Want == nil && field.Have == nil {
		return ""
	}
	show := func(value any) string {
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprint(value)
		}
		if text := string(data); len(text) <= 80 {
			return text
		}
		return string(data[:77]) + "..."
	}
	text := ": is " + show(field.Have) + ", should be " + show(field.Want)
	if field.By != "" {
		text += " (written by " + field.By + ")"
	}
	return text
}
