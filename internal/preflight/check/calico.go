package check

// MissingCalico says why Calico's objects of a resource, such as "ippools", are not known; empty when they are.
func (p *Pass) MissingCalico(resource string) string {
	if ok, why := p.Snapshot.HasCalico(resource); !ok {
		return p.Snapshot.CalicoResource(resource) + ": " + why
	}
	return ""
}
