package cluster

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// API versions of Calico's objects. As CalicoServed calicoctl shows them, Calico's API server serves them, and definitions of
// that group keep them where a Calico from v3.32 on was installed so; as CalicoStored all other definitions keep them.
const (
	CalicoServed = "projectcalico.org/v3"
	CalicoStored = "crd.projectcalico.org/v1"
)

// calicoGroups are the groups of both. Of an object that is in both, the first counts.
var calicoGroups = []string{groupOf(CalicoServed), groupOf(CalicoStored)}

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// IsCalico reports whether an API group is one of Calico's two.
func IsCalico(group string) bool { return slices.Contains(calicoGroups, group) }

// shown are beginnings of names under which older releases show Kubernetes' own policies as Calico's; no policy of a user's can
// have such a name (libcalico-go/lib/names of v3.31).
var shown = []string{"knp.default.", "kanp.adminnetworkpolicy.", "kbanp.baselineadminnetworkpolicy."}

// Calico returns Calico's objects of a kind, from whichever of its API groups they were read, each once.
func (s *Snapshot) Calico(kind string) []unstructured.Unstructured {
	var found []unstructured.Unstructured
	seen, served := map[string]bool{}, map[string]bool{}
	for i, group := range calicoGroups {
		for _, object := range s.OtherOf(group, kind) {
			name, same := object.GetNamespace()+"/"+object.GetName(), object.GetNamespace()+"/"+servedName(&object)
			if seen[name] || i > 0 && served[same] || isShown(&object) {
				continue
			}
			seen[name] = true
			served[same] = served[same] || i == 0
			found = append(found, object)
		}
	}
	return found
}

func isShown(object *unstructured.Unstructured) bool {
	return isPolicy(object) && slices.ContainsFunc(shown, func(prefix string) bool { return strings.HasPrefix(object.GetName(), prefix) })
}

func isPolicy(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GetKind(), "NetworkPolicy")
}

// servedName is an object's name without what only the stored form of a policy in the default tier has before it.
func servedName(object *unstructured.Unstructured) string {
	if !isPolicy(object) {
		return object.GetName()
	}
	return strings.TrimPrefix(object.GetName(), "default.")
}

// CalicoAPI is the API version in which Calico's objects of the cluster can be written: that in which they were read, else
// that which the cluster has definitions of. Where neither tells, and where both are defined and no object is there, it is
// CalicoStored, as for Calico itself.
func (s *Snapshot) CalicoAPI() string {
	have := map[string]bool{}
	for i := range s.Other {
		have[s.Other[i].GetAPIVersion()] = true
	}
	for _, name := range s.Definitions() {
		_, group, _ := strings.Cut(name, ".")
		have[group] = true
	}
	stored := have[groupOf(CalicoStored)] || have[CalicoStored]
	if have[CalicoServed] || have[groupOf(CalicoServed)] && !stored {
		return CalicoServed
	}
	return CalicoStored
}

// CalicoResource is a resource of Calico's, such as "ippools", as kubectl is asked for it in this cluster.
func (s *Snapshot) CalicoResource(resource string) string {
	return resource + "." + groupOf(s.CalicoAPI())
}

// HasCalico reports whether Calico's objects of a resource, such as "bgppeers", are known, and why not. They are
// known when they were read from either group, and when a cluster was asked for the group and has no such resource.
func (s *Snapshot) HasCalico(resource string) (bool, string) {
	why := ""
	for _, group := range calicoGroups {
		for _, source := range s.Sources {
			if source.Resource != resource+"."+group {
				continue
			}
			if source.Missing == "" {
				return true, ""
			}
			why = source.Missing
		}
	}
	if why != "" {
		return false, why
	}
	return s.Has(calicoGroups[1])
}

// UsesCalico reports whether Calico is in the cluster: its agent or any of its objects.
func (s *Snapshot) UsesCalico() bool {
	for i := range s.DaemonSets {
		if s.DaemonSets[i].Name == "calico-node" {
			return true
		}
	}
	for i := range s.Other {
		if IsCalico(groupOf(s.Other[i].GetAPIVersion())) {
			return true
		}
	}
	return false
}
