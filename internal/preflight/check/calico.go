package check

// MissingCalico returns why the input lacks Calico's objects of a resource, such as "ippools"; empty if it has them.
func (p *Pass) MissingCalico(resource string) string {
	if ok, why := p.Snapshot.HasCalico(resource); !ok {
		return p.Snapshot.CalicoResource(resource) + ": " + why
	}
	return ""
}
