package check

// The groups of Calico's objects: as the cluster stores them, and as Calico's own API server and calicoctl show them.
const (
	calicoStored = "crd.projectcalico.org"
	calicoServed = "projectcalico.org"
)

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
