package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// calicoGroups are the API groups of Calico's objects: that of calicoctl and Calico's API server, and that of
// the definitions which store the same objects. Of an object that is in both, the first counts.
var calicoGroups = []string{"projectcalico.org", "crd.projectcalico.org"}

// Calico returns Calico's objects of a kind, from whichever of its API groups they were read.
func (s *Snapshot) Calico(kind string) []unstructured.Unstructured {
	var found []unstructured.Unstructured
	seen := map[string]bool{}
	for _, group := range calicoGroups {
		for _, object := range s.OtherOf(group, kind) {
			if name := object.GetNamespace() + "/" + object.GetName(); !seen[name] {
				seen[name] = true
				found = append(found, object)
			}
		}
	}
	return found
}

// HasCalico reports whether Calico's objects of a resource, such as "bgppeers", were read, and why not.
func (s *Snapshot) HasCalico(resource string) (bool, string) {
	why := ""
	for _, group := range calicoGroups {
		ok, missing := s.Has(resource + "." + group)
		if ok {
			return true, ""
		}
		why = missing
	}
	return false, why
}

// UsesCalico reports whether Calico is in the cluster: its agent or any of its objects.
func (s *Snapshot) UsesCalico() bool {
	for i := range s.DaemonSets {
		if s.DaemonSets[i].Name == "calico-node" {
			return true
		}
	}
	for i := range s.Other {
		if group, _, _ := strings.Cut(s.Other[i].GetAPIVersion(), "/"); group == calicoGroups[0] || group == calicoGroups[1] {
			return true
		}
	}
	return false
}
