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
		if group, _, _ := strings.Cut(s.Other[i].GetAPIVersion(), "/"); group == calicoGroups[0] || group == calicoGroups[1] {
			return true
		}
	}
	return false
}
