package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Kind takes the agents of the network in place to another version.
func Kind() kind.Kind {
	return kind.Kind{
		Name:     Name,
		Asked:    func(r *kind.Request) bool { return asked(r.Snapshot, r.Change, r.Drivers) },
		Of:       func(p *kind.Plan) bool { return p.Upgrade != nil },
		Make:     propose,
		Possible: possible,
		Named:    func(r *kind.Request) error { return named(r.Change.To, r.Manifest) },
		ByName:   true,
		Untried:  true, // an upgrade leaves the network as it is; the driver says what it refuses
		Comes:    comes,
		Rules:    rules,
		Words: kind.Words{
			Summary: func(p *kind.Plan) string {
				return fmt.Sprintf("%s from %s to %s, strategy %s: %s.\n",
					p.Source.Title(), p.Upgrade.From, p.Upgrade.To, p.Strategy, p.Reason)
			},
			Chapters: map[string]string{"trial": "Before the upgrade", "upgrade": "Prepare for both versions",
				"owner": "Upgrade the operator", "before": "Before the agents", "after": "After the agents"},
			Chapter: func(s *step.Step) string {
				if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op() == step.OpRestart }) {
					return "Upgrade"
				}
				return ""
			},
		},
	}
}

// possible refuses a manifest of something else. What else stands against the change may be the state of the cluster,
// which the checks explain.
func possible(r *kind.Request, source *cni.Installation) error {
	_, err := another(r.Snapshot, source, r.Change, r.Drivers, r.Manifest)
	if refused, ok := errors.AsType[*kind.Refusal](err); ok && refused.OfManifest && len(r.Manifest) > 0 {
		return refused
	}
	return nil
}

// named refuses a missing manifest of a network.
func named(network string, manifest []unstructured.Unstructured) error {
	if len(manifest) > 0 {
		return nil
	}
	return kind.Refuse("give the file that installs the other version: --manifest FILE", "no manifest of %s is given",
		cmp.Or(network, "the other version"))
}

// comes is the network of the manifest, or without one the network as it is.
func comes(r *kind.Request, source *cni.Installation) (*cni.Installation, error) {
	if len(r.Manifest) == 0 {
		return kind.Stays(r, source)
	}
	next, err := another(r.Snapshot, source, r.Change, r.Drivers, r.Manifest)
	if err != nil {
		return nil, err
	}
	return &next.Installation, nil
}
