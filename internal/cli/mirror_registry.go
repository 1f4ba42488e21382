package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/theseus-cni/theseus/internal/image"
	"github.com/theseus-cni/theseus/internal/registry"
	"github.com/theseus-cni/theseus/internal/twin"
)

// askers is how many questions to registries are under way at once.
const askers = 8

// imageProof is a rewritten image, and whether the mirror's pods can pull it.
type imageProof struct {
	twin.ImageUse
	trusted bool // accepted without a proof
	err     error
}

// prove asks the registries for all rewritten images of a plan.
func prove(ctx context.Context, plan *twin.Plan, unproven []string) []imageProof {
	uses := plan.Images()
	proofs := make([]imageProof, len(uses))
	var group errgroup.Group
	group.SetLimit(askers)
	for i, use := range uses {
		proofs[i] = imageProof{ImageUse: use, trusted: slices.Contains(unproven, image.Registry(use.New))}
		if !proofs[i].trusted {
			group.Go(func() error {
				proofs[i].err = registry.Has(ctx, use.New, use.Logins)
				return nil
			})
		}
	}
	group.Wait() //nolint:errcheck // each has its own error
	return proofs
}

// mustBeThere refuses what cannot be pulled on the mirror.
func mustBeThere(proofs []imageProof) error {
	var missing []string
	var first error
	for _, proof := range proofs {
		if proof.err != nil {
			missing = append(missing, proof.err.Error()+" (namespace "+proof.Namespace+", "+some(proof.By)+")")
			if first == nil {
				first = proof.err
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	hint := "theseus mirror registry shows all of them"
	var own hinted
	if errors.As(first, &own) {
		hint = own.Hint()
	}
	return fail(exitBlocked, hint, "%d of %d images cannot be pulled on the mirror: %s", len(missing), len(proofs), strings.Join(missing, "; "))
}

func (m *mirror) registryCommand() *cobra.Command {
	flags := &copyFlags{}
	containerd := false
	command := &cobra.Command{
		Use:   "registry -n NAMESPACE ... --registry OLD=NEW",
		Short: "Rewrite names of images for the mirror's registry, and prove that each can be pulled",
		Long: `Shows how copy with the same flags would rewrite images, in pods, templates of pods, image volumes and the fields
that --image-field names, and asks the new registry for each, with the pull secrets that its pods will have. Nothing
is written. Exit code 3 says that an image cannot be pulled; copy asks the same before it writes.

The alternative leaves the names as they are: --containerd prints the files by which the mirror's nodes take images
of the old registry from the new one.`,
		Example: "  theseus mirror registry -n shop --registry registry.example.com=registry-mirror.example.com",
		Args:    none,
		RunE: func(command *cobra.Command, _ []string) error {
			if len(flags.registries) == 0 {
				return fail(exitUsage, "give one, such as --registry registry.example.com=registry-mirror.example.com", "no rule for registries is given")
			}
			if containerd {
				return m.showContainerd(flags.registries)
			}
			copier, err := m.originalCopier(flags)
			if err != nil {
				return err
			}
			plan, err := copier.Survey(command.Context())
			if err != nil {
				return err
			}
			proofs := prove(command.Context(), plan, flags.unproven)
			if err := m.showProofs(proofs); err != nil {
				return err
			}
			for _, doubt := range plan.Doubts() {
				fmt.Fprintln(m.Err, "note: "+doubt)
			}
			return mustBeThere(proofs)
		},
	}
	flags.add(command)
	command.Flags().BoolVar(&containerd, "containerd", false, "print containerd's files instead, for the nodes of the mirror")
	return command
}

func (m *mirror) showProofs(proofs []imageProof) error {
	if m.output == "json" {
		type row struct {
			Namespace string   `json:"namespace"`
			Old       string   `json:"old"`
			New       string   `json:"new"`
			Secrets   []string `json:"pullSecrets"`
			Error     string   `json:"error,omitempty"`
			Proven    bool     `json:"proven"`
		}
		rows := []row{}
		for _, proof := range proofs {
			r := row{proof.Namespace, proof.Old, proof.New, proof.Secrets, "", proof.err == nil && !proof.trusted}
			if proof.err != nil {
				r.Error = proof.err.Error()
			}
			rows = append(rows, r)
		}
		encode(m.Out, rows)
		return nil
	}
	table := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tIMAGE\tON THE MIRROR\t")
	for _, proof := range proofs {
		state := "is there"
		switch {
		case proof.trusted:
			state = "not asked"
		case proof.err != nil:
			state = "cannot be pulled"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", proof.Namespace, proof.Old, proof.New, state)
	}
	return table.Flush()
}

// showContainerd prints containerd's own way: a file for every registry, in the folder that its config_path names.
func (m *mirror) showContainerd(texts []string) error {
	rules, err := image.ParseRules(texts)
	if err != nil {
		return fail(exitUsage, "see theseus mirror registry --help", "%v", err)
	}
	for _, rule := range rules.Rules() {
		if strings.Contains(rule.Old, "/") || strings.Contains(rule.New, "/") {
			return fail(exitUsage, "give registries only, or let copy rewrite the names", "containerd knows mirrors of whole registries, and %s=%s names a part of one", rule.Old, rule.New)
		}
		fmt.Fprintf(m.Out, "# /etc/containerd/certs.d/%s/hosts.toml\nserver = \"https://%s\"\n\n[host.\"https://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", rule.Old, rule.Old, rule.New)
	}
	return nil
}
