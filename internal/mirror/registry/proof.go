package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/theseus-cni/theseus/internal/mirror/image"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

// askers is how many questions to registries are under way at once.
const askers = 8

// Proof is a rewritten image, and whether the mirror's pods can pull it.
type Proof struct {
	objects.ImageUse
	Trusted bool // accepted without being asked for
	Err     error
}

// Prove asks the registries for all rewritten images of a plan, but those of unproven registries.
func Prove(ctx context.Context, plan *objects.Plan, unproven []string) []Proof {
	uses := plan.Images()
	proofs := make([]Proof, len(uses))
	var group errgroup.Group
	group.SetLimit(askers)
	for i, use := range uses {
		proofs[i] = Proof{ImageUse: use, Trusted: slices.Contains(unproven, image.Registry(use.New))}
		if !proofs[i].Trusted {
			group.Go(func() error {
				proofs[i].Err = Has(ctx, use.New, use.Logins)
				return nil
			})
		}
	}
	group.Wait() //nolint:errcheck // each has its own error
	return proofs
}

// Missing says that images cannot be pulled on the mirror.
type Missing struct{ text, hint string }

func (m *Missing) Error() string { return m.text }

// Hint says what to try.
func (m *Missing) Hint() string { return m.hint }

// MustBeThere is a *Missing where some image cannot be pulled.
func MustBeThere(proofs []Proof) error {
	var missing []string
	hint := "theseus mirror registry shows all of them"
	var own interface{ Hint() string }
	for _, proof := range proofs {
		if proof.Err == nil {
			continue
		}
		if len(missing) == 0 && errors.As(proof.Err, &own) {
			hint = own.Hint()
		}
		missing = append(missing, proof.Err.Error()+" (namespace "+proof.Namespace+", "+objects.Some(proof.By)+")")
	}
	if len(missing) == 0 {
		return nil
	}
	return &Missing{fmt.Sprintf("%d of %d images cannot be pulled on the mirror: %s",
		len(missing), len(proofs), strings.Join(missing, "; ")), hint}
}
