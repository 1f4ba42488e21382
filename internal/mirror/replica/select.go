package replica

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/mirror/image"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/registry"
)

// NewCopier makes a Copier for a selection, without its clusters. Rewritten images are verified before anything is
// applied.
func NewCopier(s mirror.Selection, note func(string)) (*Copier, error) {
	refuse := func(hint, format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...), hint} }
	switch {
	case len(s.Namespaces) == 0:
		return nil, refuse("choose them with -n, such as -n shop -n billing", "no namespace is chosen")
	case s.Workers < 0:
		return nil, refuse("give a number above 0", "--workers is %d", s.Workers)
	}
	for _, name := range s.Namespaces {
		if freeze.Reserved(name) {
			return nil, refuse("choose namespaces of users", "every cluster has its own %s", name)
		}
	}
	namespaces := slices.Clone(s.Namespaces)
	slices.Sort(namespaces)
	c := &Copier{Namespaces: slices.Compact(namespaces), Workers: s.Workers, Note: note,
		Options: objects.Options{Decide: map[string]objects.Action{}, EmptyVolumes: s.EmptyVolumes, Adopt: s.Adopt}}
	for _, decision := range s.Decide {
		what, name, _ := strings.Cut(decision, "=")
		action, err := objects.ParseAction(name)
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
	c.Prove = func(ctx context.Context, plan *objects.Plan) error {
		return registry.MustBeThere(registry.Prove(ctx, plan, s.Unproven))
	}
	return c, nil
}

// named refuses what a person decided about kinds that are not served, and about objects that are not there: misspelt,
// it would let something run twice.
func named(options objects.Options, kinds []kind, all []objects.Object) error {
	there := map[string]bool{}
	for _, k := range kinds {
		there[k.group.String()] = true
	}
	for _, object := range all {
		there[objects.KeyOf(object).String()] = true
	}
	for _, what := range slices.Sorted(maps.Keys(options.Decide)) {
		if there[what] {
			continue
		}
		kind, object, _ := strings.Cut(what, " ")
		if there[kind] {
			return &Refusal{fmt.Sprintf("--decide %s: the original has no such object", what),
				"kubectl get " + schema.ParseGroupKind(kind).Kind +
					" -n NAMESPACE lists them; name an object as namespace/name"}
		}
		return &Refusal{fmt.Sprintf("--decide %s: the original does not serve the kind %q", what, kind),
			"name it with its group" + likely(kind, object, kinds) + "; kubectl api-resources lists them"}
	}
	for _, claim := range options.EmptyVolumes {
		if !there["PersistentVolumeClaim "+claim] {
			return &Refusal{fmt.Sprintf("--empty-volume %s: the original has no such claim", claim),
				"give namespace/name, as kubectl get pvc -A shows them"}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(options.Images.Fields)) {
		if !there[kind] {
			return &Refusal{fmt.Sprintf("--image-field %s: the original does not serve the kind %q", kind, kind),
				"name it with its group" + likely(kind, "", kinds) + "; kubectl api-resources lists them"}
		}
	}
	return nil
}

// likely is the kind that the user may have meant, in words.
func likely(name, object string, kinds []kind) string {
	wanted := schema.ParseGroupKind(name).Kind
	for _, k := range kinds {
		if strings.EqualFold(k.group.Kind, wanted) || strings.EqualFold(k.resource.Resource, wanted) {
			return ", such as '" + strings.TrimSpace(k.group.String()+" "+object) + "'"
		}
	}
	return ", such as CronJob.batch"
}
