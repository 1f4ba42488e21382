package copy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
)

// Flags are the flags of copy and diff.
type Flags struct {
	mirror.Selection
	watch bool
	every time.Duration
}

const long = `Copies all objects of the chosen namespaces, and the cluster-wide objects that they need (CRDs, classes, roles,
webhooks), to the mirror, by server-side apply as the field manager theseus-mirror. By managedFields, it copies the fields
that users own, but not those that the original's own controllers and API server wrote.

It is a loop: it compares both clusters and writes the differences, deletions included, until there are none. A second
run changes nothing. With --watch, it continues until it is interrupted.

It writes nothing until everything is decided:
- It skips, suspends, disarms or asks about objects that act outside of their cluster. -o json shows the decision for
 each object; --decide changes it, and so does the annotation mirror.theseus.dev/action on an object.
- It does not copy the data of volumes: it refuses a claim until you accept it by name with --empty-volume.
- It refuses objects that the mirror already has from elsewhere, unless you give --adopt.
`

// Register adds the flags to a command.
func (f *Flags) Register(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "namespaces to copy")
	flags.StringArrayVar(&f.Decide, "decide", nil, "decision for a kind or an object: 'CronJob.batch=copy', "+
		"'Job.batch shop/import=skip'; copy, skip, suspend or disarm")
	flags.StringSliceVar(&f.EmptyVolumes, "empty-volume", nil,
		"claims (namespace/name) that may be empty on the mirror")
	flags.StringSliceVar(&f.Registries, "registry", nil,
		"rewrite images: registry.example.com=registry-mirror.example.com")
	flags.StringArrayVar(&f.ImageFields, "image-field", nil,
		"a field that names an image: 'Database.example.com=spec.image'; [] after a list, * for all fields")
	flags.StringSliceVar(&f.Unproven, "unproven", nil,
		"registries in which rewritten images are not checked, since only the nodes can log in there")
	flags.BoolVar(&f.Adopt, "adopt", false, "take over objects that the mirror already has")
	flags.IntVar(&f.Workers, "workers", replica.DefaultWorkers, "concurrent writes")
}

// Copier makes a copier from the flags, with both clusters.
func Copier(m *clusters.Clusters, f *Flags) (*replica.Copier, error) {
	copier, err := OriginalCopier(m, f)
	if err != nil {
		return nil, err
	}
	other, err := m.MirrorClient()
	if err != nil {
		return nil, err
	}
	copier.Mirror, err = replica.Connect(other)
	return copier, err
}

// OriginalCopier makes a copier from the flags, with only the original.
func OriginalCopier(m *clusters.Clusters, f *Flags) (*replica.Copier, error) {
	copier, err := replica.NewCopier(f.Selection, m.Note)
	if err != nil {
		return nil, exit.Fail(exit.Usage, exit.HintOf(err), "%w", err)
	}
	original, err := m.Client()
	if err != nil {
		return nil, err
	}
	copier.Original, err = replica.Connect(original)
	return copier, err
}

// NewCopy makes the command theseus mirror copy.
func NewCopy(m *clusters.Clusters) *cobra.Command {
	flags := &Flags{}
	command := &cobra.Command{
		Use:   "copy -n NAMESPACE ...",
		Short: "Copy namespaces to the mirror, and keep them in step",
		Long:  long,
		Example: "  theseus mirror copy --mirror-context green -n shop -n billing --registry " +
			"registry.example.com=registry-mirror.example.com",
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			copier, err := Copier(m, flags)
			if err != nil {
				return err
			}
			return run(command.Context(), m, copier, flags)
		},
	}
	flags.Register(command)
	command.Flags().BoolVar(&flags.watch, "watch", false, "keep the mirror in step until interrupted")
	command.Flags().DurationVar(&flags.every, "resync", time.Minute, "with --watch: interval of complete comparisons")
	return command
}

func run(ctx context.Context, m *clusters.Clusters, copier *replica.Copier, flags *Flags) error {
	// the API servers need the cores more than the collector
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(1 << 30)
	}
	if flags.watch {
		said := ""
		return Coded(copier.Watch(ctx, flags.every, replica.Decided, func(pass *replica.Pass, err error) {
			if err != nil {
				if err.Error() != said { // it is retried every few seconds
					exit.Code(m.Err, Coded(err))
				}
				said = err.Error()
				return
			}
			said = ""
			if pass.Delta.Writes() > 0 || len(pass.Failures) > 0 {
				showPass(m, pass)
			}
		}))
	}
	_, err := copier.Settle(ctx, func(round int, pass *replica.Pass, wrote bool) {
		if round == 1 && !wrote {
			showLeft(m, pass)
		}
		if wrote || pass.Delta.Writes() == 0 {
			showPass(m, pass)
		}
	})
	return Coded(err)
}

// Coded gives errors of a copy their exit codes.
func Coded(err error) error {
	var undecided *replica.Undecided
	var missing *registry.Missing
	switch {
	case errors.As(err, &undecided):
		return exit.Fail(exit.NeedsPerson, undecided.Hint(), "%w", err)
	case errors.As(err, &missing):
		return exit.Fail(exit.Blocked, missing.Hint(), "%w", err)
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

func showPass(m *clusters.Clusters, pass *replica.Pass) {
	if m.Output == "json" {
		document := passDocument{InStep: pass.Delta.InStep, Created: pass.Created, Updated: pass.Updated,
			Deleted: pass.Deleted, Seconds: pass.Took.Seconds()}
		for _, wave := range pass.Plan.Waves {
			for _, item := range wave {
				document.Objects = append(document.Objects,
					objectOutput{objects.KeyOf(item.Object).String(), string(item.Action), item.Why, item.Did})
			}
		}
		for _, left := range pass.Plan.Left {
			document.Objects = append(document.Objects,
				objectOutput{Object: left.Key.String(), Action: "skip", Why: left.Why})
		}
		terminal.Encode(m.Out, document)
		return
	}
	if pass.Created+pass.Updated+pass.Deleted == 0 && len(pass.Failures) == 0 {
		fmt.Fprintf(m.Out, "in step: %s\n", cluster.Count(pass.Delta.InStep, "object"))
		return
	}
	fmt.Fprintf(m.Out, "%d created, %d updated, %d deleted, %d were in step (%.1f s)\n",
		pass.Created, pass.Updated, pass.Deleted, pass.Delta.InStep, pass.Took.Seconds())
}

// showLeft lists objects that are copied with changes, and objects that are not copied and that a person may miss.
func showLeft(m *clusters.Clusters, pass *replica.Pass) {
	if m.Output == "json" {
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
	fmt.Fprintf(m.Out, "not copied: %s that belong to the cluster itself or are made by their owners (-o json lists "+
		"them)\n", cluster.Count(quiet, "object"))
	for _, doubt := range pass.Plan.Doubts() {
		fmt.Fprintln(m.Err, "note: "+doubt)
	}
	for _, key := range pass.Delta.Kept {
		fmt.Fprintf(m.Out, "keep %s: the mirror has its own\n", key)
	}
}
