package cluster

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// API versions of Calico's objects. calicoctl and Calico's API server use CalicoServed, and from v3.32 on Calico can
// also be installed with CRDs of that group. All other CRDs use CalicoStored.
const (
	CalicoServed = "projectcalico.org/v3"
	CalicoStored = "crd.projectcalico.org/v1"
)

// calicoGroups are the API groups of both. If an object is in both, the first wins.
var calicoGroups = []string{groupOf(CalicoServed), groupOf(CalicoStored)}

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// IsCalico reports whether an API group is one of Calico's two.
func IsCalico(group string) bool { return slices.Contains(calicoGroups, group) }

// shown are the name prefixes under which older releases show Kubernetes' own policies as Calico's; no user's policy
// can have such a name (libcalico-go/lib/names of v3.31).
var shown = []string{"knp.default.", "kanp.adminnetworkpolicy.", "kbanp.baselineadminnetworkpolicy."}

// Calico returns Calico's objects of a kind, each once, from either of its API groups.
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
	return isPolicy(object) && slices.ContainsFunc(shown, func(prefix string) bool {
		return strings.HasPrefix(object.GetName(), prefix)
	})
}

func isPolicy(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GetKind(), "NetworkPolicy")
}

// servedName is an object's name without the prefix that only the stored form of a policy in the default tier has.
func servedName(object *unstructured.Unstructured) string {
	if !isPolicy(object) {
		return object.GetName()
	}
	return strings.TrimPrefix(object.GetName(), "default.")
}

// CalicoAPI is the API version for writing Calico's objects: the version in which they were read, else the version that
// the cluster has CRDs for. If there are no objects and the cluster has CRDs for both versions or for neither, it is
// CalicoStored, the same as Calico's own choice.
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

// CalicoResource is the full name of a resource of Calico's, such as "ippools", for kubectl in this cluster.
func (s *Snapshot) CalicoResource(resource string) string {
	return resource + "." + groupOf(s.CalicoAPI())
}

// HasCalico reports whether Calico's objects of a resource, such as "bgppeers", are known, and if not, why. They are
// known if they were read from either group, or if a live cluster does not have the resource.
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

// UsesCalico reports whether the cluster has Calico's agent or any of Calico's objects.
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
