package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// inServed is a request for the same cluster whose definitions keep Calico's objects as projectcalico.org/v3.
func inServed(t *testing.T, r *request) *request {
	r.snapshot = cnitest.Served(t, r.snapshot)
	return r
}

// withServed is a request with a manifest that has its definitions there.
func withServed(r *request) *request {
	for i := range r.options.Manifest {
		r.options.Manifest[i] = *cnitest.ServedObject(&r.options.Manifest[i])
	}
	return r
}

// TestServed: of such a cluster the same plan is made, but for the API version of Calico's objects. The snapshots are
// derived from those of real clusters (cnitest.Served).
func TestServed(t *testing.T) {
	on := func(name string, change v1alpha1.ChangeSpec) func() *request {
		return func() *request {
			r := toNFTables(t)
			r.snapshot, r.change = cnitest.Golden(t, name), change
			r.change.AgentImage = "theseus.dev/agent:dev"
			return r
		}
	}
	for name, make := range map[string]func() *request{
		"another pool":          on("calico", v1alpha1.ChangeSpec{Pool: "10.98.0.0/16"}),
		"another encapsulation": on("calico-bgp", v1alpha1.ChangeSpec{Encapsulation: "vxlan"}),
		"other reflectors": on("calico-bgp",
			v1alpha1.ChangeSpec{Reflectors: "kubernetes.io/hostname in {'node-3', 'node-4'}"}),
		"a flag":               on("calico", v1alpha1.ChangeSpec{Dataplane: "nftables"}),
		"to flannel":           func() *request { return calicoToFlannel(t) },
		"to it":                func() *request { return flannelToCalico(t) },
		"to it, adopting":      func() *request { return adoption(t) },
		"to it, from a bridge": func() *request { return bridged(t) },
	} {
		t.Run(name, func(t *testing.T) {
			stored, served := make(), withServed(inServed(t, make()))
			stored.options.Name, served.options.Name = "one", "one"
			was, is := mustMake(t, stored), mustMake(t, served)
			rewrite := strings.NewReplacer(cluster.CalicoStored, cluster.CalicoServed,
				"crd.projectcalico.org", "projectcalico.org", "ipamconfigs", "ipamconfigurations")
			titles := titlesOf(was)
			for i := range titles {
				titles[i] = rewrite.Replace(titles[i])
			}
			slices.Sort(titles)
			if diff := cmp.Diff(titles, titlesOf(is)); diff != "" {
				t.Errorf("another plan is made:\n%s", diff)
			}
			touched := 0
			for _, s := range is.Steps {
				for _, a := range slices.Concat(s.Actions, s.Undo) {
					var refs []step.Ref
					if a.Ref() != (step.Ref{}) {
						refs = append(refs, a.Ref())
					}
					for _, ref := range refs {
						if ref.APIVersion == cluster.CalicoServed || strings.HasSuffix(ref.Name, ".projectcalico.org") {
							touched++
						}
						if strings.Contains(ref.APIVersion+" "+ref.Name, "crd.projectcalico.org") {
							t.Errorf("step %s is about %s %s, which is not in this cluster", s.ID, ref.APIVersion, ref)
						}
					}
				}
			}
			if touched == 0 {
				t.Error("nothing of Calico's is touched")
			}
		})
	}
}

// sorted are the lines of a text in order: definitions are deleted in any.
// titlesOf are the titles of a plan's steps, actions and gates, sorted: the order of objects depends on their names.
func titlesOf(p *plan.Plan) []string {
	var lines []string
	for _, s := range p.Steps {
		lines = append(lines, s.ID+" "+s.Title+": "+s.Why)
		if s.Gate != nil {
			lines = append(lines, s.Gate.Title)
		}
		for _, a := range slices.Concat(s.Actions, s.Undo) {
			lines = append(lines, a.Title)
		}
	}
	slices.Sort(lines)
	return lines
}

// TestServedUpgrade: another version is fine where it keeps its objects in the same place, and refused where it would
// look for them elsewhere.
func TestServedUpgrade(t *testing.T) {
	defined := func(r *request) *request { // as the manifest has them
		for _, object := range r.options.Manifest {
			if object.GetKind() == "CustomResourceDefinition" {
				r.snapshot.Other = append(r.snapshot.Other, *object.DeepCopy())
			}
		}
		return r
	}
	mustMake(t, defined(newer(t)))
	mustMake(t, withServed(inServed(t, defined(newer(t)))))
	for words, r := range map[string]*request{
		// Where both are defined, agents that nothing tells take the other one.
		"keep their objects in projectcalico.org/v3, but the agents in the manifest would look for them in " +
			"crd.projectcalico.org/v1": inServed(t, defined(newer(t))),
		"the manifest keeps Calico's objects in projectcalico.org/v3, but the cluster has CRDs of " +
			"crd.projectcalico.org/v1": withServed(defined(newer(t))),
	} {
		mustRefuse(t, r, words)
	}
}
