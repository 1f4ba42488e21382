// Package replace is the kind of change by which another network comes in the place of the one that is there: pods are
// adopted as they run, created again node by node, or moved to new nodes. The strategies have packages of their own,
// which hold their steps; here is the choice between them, and the model by which plans of all three are proven.
package replace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/recreate"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// Kind brings another network.
func Kind() kind.Kind {
	return kind.Kind{
		Name:     "replace",
		Asked:    func(*kind.Request) bool { return true },
		Of:       func(p *kind.Plan) bool { return p.Section() == nil },
		Make:     propose,
		Chosen:   chosen,
		Possible: possible,
		Named:    func(r *kind.Request) error { return named(r.Change, r.Manifest) },
		ByName:   true,
		Comes:    comes,
		Rules:    rules,
		Stops:    stops,
		Reach:    surge.Reach,
		Words: kind.Words{Chapters: map[string]string{"carry": "Route between nodes over the new network"}, Pods: fates,
			Nodes: surge.Describe, Summary: func(p *kind.Plan) string {
				return fmt.Sprintf("From %s to %s, strategy %s: %s.\n", kind.Named(p.Source),
					kind.Named(p.Target), p.Strategy, p.Reason)
			}},
	}
}

// possible refuses a network that never comes, and a manifest of something else. A manifest may be missing: that can be
// mended.
func possible(r *kind.Request, source *cni.Installation) error {
	driver, _ := r.Drivers.Get(r.Change.To)
	if never := cni.NeverComes(driver); never != nil {
		return never
	}
	if len(r.Manifest) == 0 {
		return nil
	}
	_, err := install(r.Snapshot, driver, source, r.Manifest)
	return err
}

// named refuses a missing target, a strategy of another kind of change, and a missing manifest.
func named(change v1alpha1.ChangeSpec, manifest []unstructured.Unstructured) error {
	switch {
	case change.To == "":
		return kind.Refuse("give the new network with --to, or a change in place with --dataplane, --pool, "+
			"--encapsulation or --reflectors", "no target network is given")
	case change.Strategy != "" && !slices.Contains([]string{recreate.Name, adopt.Name, surge.Name}, change.Strategy):
		return kind.Refuse("use --strategy recreate, adopt or surge, or leave it out",
			"the strategy %q is not available for this change", change.Strategy)
	case len(manifest) == 0:
		return kind.Refuse("give the file that installs it on a new cluster: --manifest FILE",
			"no manifest of %s is given", change.To)
	}
	return nil
}

// comes is the network of the manifest.
func comes(r *kind.Request, source *cni.Installation) (*cni.Installation, error) {
	if r.Change.To == "" || len(r.Manifest) == 0 {
		return nil, nil
	}
	driver, _ := r.Drivers.Get(r.Change.To)
	target, err := driver.Install(request(r.Snapshot, r.Change, source, joint.Outlook{}, r.Manifest))
	if err != nil {
		return nil, err
	}
	return &target.Installation, nil
}

// fates says of a plan that adopts pods how many it does not adopt, and why.
func fates(p *kind.Plan) string {
	if p.Strategy != adopt.Name {
		return ""
	}
	kept, anew, why := 0, 0, ""
	for _, w := range p.Workloads {
		pods := 0
		for _, names := range w.Pods {
			pods += len(names)
		}
		switch w.Treatment {
		case "adopt":
			kept += pods
		case "move":
			anew += pods
			why = cmp.Or(why, w.Note)
		}
	}
	why, _, _ = strings.Cut(why, ";")
	again := "is"
	if anew > 1 {
		again = "are"
	}
	switch {
	case anew == 0:
		return ""
	case kept == 0:
		return fmt.Sprintf("No pod keeps running: none can be adopted, and %s %s recreated. Reason for the first: "+
			"%s.\n", cluster.Count(anew, "pod"), again, why)
	}
	return fmt.Sprintf("Of %s, %d keep running with their addresses and connections; %d cannot be adopted and %s "+
		"recreated. Reason for the first: %s.\n",
		cluster.Count(kept+anew, "pod"), kept, anew, again, why)
}
