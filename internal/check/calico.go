package check

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The groups of Calico's objects: as the cluster stores them, and as Calico's own API server and calicoctl show them.
const (
	calicoStored = "crd.projectcalico.org"
	calicoServed = "projectcalico.org"
)

// CalicoObjects are Calico's objects of a kind in the cluster, each once: as they are stored, or else as they are served.
func (p *Pass) CalicoObjects(kind string) []unstructured.Unstructured {
	objects := p.Snapshot.OtherOf(calicoStored, kind)
	stored := map[[2]string]bool{}
	for _, object := range objects {
		stored[[2]string{object.GetNamespace(), object.GetName()}] = true
	}
	for _, served := range p.Snapshot.OtherOf(calicoServed, kind) {
		if !stored[[2]string{served.GetNamespace(), served.GetName()}] {
			objects = append(objects, served)
		}
	}
	return objects
}

// MissingCalico says why Calico's objects of a resource, such as "ippools", are not known; empty when they are, and when
// a cluster was asked that has none of that kind.
func (p *Pass) MissingCalico(resource string) string {
	why := ""
	for _, source := range p.Snapshot.Sources {
		switch source.Resource {
		case resource + "." + calicoStored, resource + "." + calicoServed:
			if source.Missing == "" {
				return ""
			}
			why = source.Missing
		}
	}
	if why != "" {
		return resource + "." + calicoStored + ": " + why
	}
	if asked, why := p.Snapshot.Has(calicoStored); !asked {
		return resource + "." + calicoStored + ": " + why
	}
	return ""
}
