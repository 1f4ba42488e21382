package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
)

// copyFlags are what copy and diff are told.
type copyFlags struct {
	mirror.Selection
	watch bool
	every time.Duration
}

const copyLong = `Copies all objects of the chosen namespaces, and what they need cluster-wide (definitions, classes, roles,
webhooks), to the mirror, by server-side apply as the field manager theseus-mirror. What users own of an object
goes over, by its managedFields; what the original's own controllers and API server wrote does not.

It is a loop: it looks at both clusters and writes what differs, deletions included, until nothing differs.
A second run changes nothing. With --watch it goes on until it is interrupted.

Nothing is written before everything was decided:
- What acts outside its cluster is skipped, suspended, disarmed or asked about; -o json shows what became of
  everything, --decide changes it, and so does the annotation mirror.theseus.dev/action on an object.
- Data of volumes is not copied: a claim is refused until it is accepted by name with --empty-volume.
- Objects that the mirror has already, and not from here, are refused unless --adopt is given.
`

func (f *copyFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "namespaces to copy")
	flags.StringArrayVar(&f.Decide, "decide", nil, "what happens to a kind or an object: 'CronJob.batch=copy', 'Job.batch shop/import=skip'; copy, skip, suspend or disarm")
	flags.StringSliceVar(&f.EmptyVolumes, "empty-volume", nil, "claims (namespace/name) that may be empty on the mirror")
	flags.StringSliceVar(&f.Registries, "registry", nil, "rewrite images: registry.example.com=registry-mirror.example.com")
	flags.StringArrayVar(&f.ImageFields, "image-field", nil, "a field that names an image: 'Database.example.com=spec.image'; [] after a list, * for all fields")
	flags.StringSliceVar(&f.Unproven, "unproven", nil, "registries that are not asked for rewritten images: only the nodes can log in there")
	flags.BoolVar(&f.Adopt, "adopt", false, "take over objects that the mirror has already")
	flags.IntVar(&f.Workers, "workers", replica.DefaultWorkers, "writes under way at once")
}

// copier makes what the flags describe, with both clusters.
func (m *twins) copier(f *copyFlags) (*replica.Copier, error) {
	copier, err := m.originalCopier(f)
	if err != nil {
		return nil, err
	}
	other, err := m.mirrorClient()
	if err != nil {
		return nil, err
	}
	copier.Mirror, err = replica.Connect(other)
	return copier, err
}

// originalCopier makes what the flags describe, with the original alone.
func (m *twins) originalCopier(f *copyFlags) (*replica.Copier, error) {
	copier, err := replica.NewCopier(f.Selection, m.note)
	if err != nil {
		return nil, fail(exitUsage, hintOf(err), "%w", err)
	}
	original, err := m.client()
	if err != nil {
		return nil, err
	}
	copier.Original, err = replica.Connect(original)
	return copier, err
}

func (m *twins) copyCommand() *cobra.Command {
	flags := &copyFlags{}
	command := &cobra.Command{
		Use:     "copy -n NAMESPACE ...",
		Short:   "Copy namespaces to the mirror, and keep them in step",
		Long:    copyLong,
		Example: "  theseus mirror copy --mirror-context green -n shop -n billing --registry registry.example.com=registry-mirror.example.com",
		Args:    none,
		RunE: func(command *cobra.Command, _ []string) error {
			copier, err := m.copier(flags)
			if err != nil {
				return err
			}
			return m.copy(command.Context(), copier, flags)
		},
	}
	flags.add(command)
	command.Flags().BoolVar(&flags.watch, "watch", false, "keep the mirror in step until interrupted")
	command.Flags().DurationVar(&flags.every, "resync", time.Minute, "with --watch: look at everything this often, whatever is seen to change")
	return command
}

func (m *twins) copy(ctx context.Context, copier *replica.Copier, flags *copyFlags) error {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" { // the API servers need the cores more than the collector
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(1 << 30)
	}
	if flags.watch {
		said := ""
		return coded(copier.Watch(ctx, flags.every, replica.Decided, func(pass *replica.Pass, err error) {
			if err != nil {
				if err.Error() != said { // it is tried every few seconds
					exitCode(m.Err, coded(err))
				}
				said = err.Error()
				return
			}
			said = ""
			if pass.Delta.Writes() > 0 || len(pass.Failures) > 0 {
				m.showPass(pass)
			}
		}))
	}
	_, err := copier.Settle(ctx, func(round int, pass *replica.Pass, wrote bool) {
		if round == 1 && !wrote {
			m.showLeft(pass)
		}
		if wrote || pass.Delta.Writes() == 0 {
			m.showPass(pass)
		}
	})
	return coded(err)
}

// coded gives what stands against a copy its exit code.
func coded(err error) error {
	var undecided *replica.Undecided
	var missing *registry.Missing
	switch {
	case errors.As(err, &undecided):
		return fail(exitNeedsPerson, undecided.Hint(), "%w", err)
	case errors.As(err, &missing):
		return fail(exitBlocked, missing.Hint(), "%w", err)
	}
	return err
}

// passDocument is a pass as -o json shows it.
type passDocument struct {
	InStep  int            `json:"inStep"`
	Created int            `json:"created"`
	Updated int            `json:"updated"`
	Deleted int            `json:"deleted"`
	Seconds float64        `json:"seconds"`
	Objects []objectOutput `json:"objects,omitempty"`
}

type objectOutput struct {
	Object string   `json:"object"`
	Action string   `json:"action"`
	Why    string   `json:"why,omitempty"`
	Did    []string `json:"did,omitempty"`
}

func (m *twins) showPass(pass *replica.Pass) {
	if m.output == "json" {
		document := passDocument{InStep: pass.Delta.InStep, Created: pass.Created, Updated: pass.Updated, Deleted: pass.Deleted, Seconds: pass.Took.Seconds()}
		for _, wave := range pass.Plan.Waves {
			for _, item := range wave {
				document.Objects = append(document.Objects, objectOutput{objects.KeyOf(item.Object).String(), string(item.Action), item.Why, item.Did})
			}
		}
		for _, left := range pass.Plan.Left {
			document.Objects = append(document.Objects, objectOutput{Object: left.Key.String(), Action: "skip", Why: left.Why})
		}
		encode(m.Out, document)
		return
	}
	if pass.Created+pass.Updated+pass.Deleted == 0 && len(pass.Failures) == 0 {
		fmt.Fprintf(m.Out, "in step: %s\n", cluster.Count(pass.Delta.InStep, "object"))
		return
	}
	fmt.Fprintf(m.Out, "%d created, %d updated, %d deleted, %d were in step (%.1f s)\n", pass.Created, pass.Updated, pass.Deleted, pass.Delta.InStep, pass.Took.Seconds())
}

// showLeft says what goes over changed, and what of it that a person may miss does not go over.
func (m *twins) showLeft(pass *replica.Pass) {
	if m.output == "json" {
		return
	}
	for _, wave := range pass.Plan.Waves {
		for _, item := range wave {
			if item.Action != objects.Copy {
				fmt.Fprintf(m.Out, "%s %s: %s\n", item.Action, objects.KeyOf(item.Object), item.Why)
			}
		}
	}
	quiet := 0
	for _, left := range pass.Plan.Left {
		if left.Own {
			quiet++
			continue
		}
		fmt.Fprintf(m.Out, "skip %s: %s\n", left.Key, left.Why)
	}
	fmt.Fprintf(m.Out, "not copied: %s of the cluster's own or made by their owners (-o json lists them)\n", cluster.Count(quiet, "object"))
	for _, doubt := range pass.Plan.Doubts() {
		fmt.Fprintln(m.Err, "note: "+doubt)
	}
	for _, key := range pass.Delta.Kept {
		fmt.Fprintf(m.Out, "keep %s: the mirror has its own\n", key)
	}
}

func encode(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(document) //nolint:errcheck // a closed pipe is the reader's wish
}

func (m *twins) diffCommand() *cobra.Command {
	flags := &copyFlags{}
	command := &cobra.Command{
		Use:   "diff -n NAMESPACE ...",
		Short: "Show what differs between the original and the mirror, and why",
		Long: "Shows what copy with the same flags would do, field by field, and who wrote what differs. Nothing is written.\n" +
			"Exit code 3 says that something differs.",
		Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			copier, err := m.copier(flags)
			if err != nil {
				return err
			}
			pass, err := copier.Look(command.Context())
			if err != nil {
				return err
			}
			m.showDiff(pass)
			if err := replica.Decided(pass); err != nil {
				return coded(err)
			}
			if pass.Delta.Writes() > 0 {
				return quietExit(exitBlocked)
			}
			return nil
		},
	}
	flags.add(command)
	return command
}

// diffDocument is one object that differs.
type diffDocument struct {
	Object string               `json:"object"`
	Verb   objects.Verb         `json:"verb"`
	Fields []objects.Difference `json:"fields,omitempty"`
}

func (m *twins) showDiff(pass *replica.Pass) {
	steps := slices.Concat(append(slices.Clone(pass.Delta.Waves), pass.Delta.Deletes)...)
	if m.output == "json" {
		documents := []diffDocument{}
		for _, step := range steps {
			documents = append(documents, diffDocument{step.Key.String(), step.Verb, shown(step)})
		}
		encode(m.Out, documents)
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

// shown are the fields of a step that differ, without passwords and tokens. Those of a Secret are without any value, and
// without digests, which would let a short value be guessed; that goes for its metadata too, where kubectl keeps what was
// applied.
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

// redacted is a value of a field as it may be shown; a field that is missing stays so.
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
	text := ": is " + show(field.Have) + ", is to be " + show(field.Want)
	if field.By != "" {
		text += " (written by " + field.By + ")"
	}
	return text
}
