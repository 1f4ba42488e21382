package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/image"
	"github.com/theseus-cni/theseus/internal/registry"
	"github.com/theseus-cni/theseus/internal/strategy/mirror"
	"github.com/theseus-cni/theseus/internal/twin"
)

// NewCopier makes what copies a selection. The clusters are still to be given. Rewritten images are proven before
// anything is applied.
func NewCopier(s mirror.Selection, note func(string)) (*Copier, error) {
	refuse := func(hint, format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...), hint} }
	switch {
	case len(s.Namespaces) == 0:
		return nil, refuse("choose them with -n, such as -n shop -n billing", "no namespace is chosen")
	case s.Workers < 0:
		return nil, refuse("give a number above 0", "--workers is %d", s.Workers)
	}
	for _, name := range s.Namespaces {
		if strings.HasPrefix(name, "kube-") || name == "theseus-system" {
			return nil, refuse("choose the namespaces of users", "%s is every cluster's own", name)
		}
	}
	namespaces := slices.Clone(s.Namespaces)
	slices.Sort(namespaces)
	c := &Copier{Namespaces: slices.Compact(namespaces), Workers: s.Workers, Note: note,
		Options: twin.Options{Decide: map[string]twin.Action{}, EmptyVolumes: s.EmptyVolumes, Adopt: s.Adopt}}
	for _, decision := range s.Decide {
		what, name, _ := strings.Cut(decision, "=")
		action, err := twin.ParseAction(name)
		if err != nil {
			return nil, refuse("such as --decide CronJob.batch=copy", "--decide %s: %v", decision, err)
		}
		c.Options.Decide[what] = action
	}
	rules, err := image.ParseRules(s.Registries)
	if err == nil {
		err = rules.ParseFields(s.ImageFields)
	}
	if err != nil {
		return nil, refuse("see theseus mirror copy --help", "%v", err)
	}
	c.Options.Images = rules
	c.Prove = func(ctx context.Context, plan *twin.Plan) error {
		return registry.MustBeThere(registry.Prove(ctx, plan, s.Unproven))
	}
	return c, nil
}
