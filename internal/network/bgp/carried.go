package bgp

// Carried returns the IPv4 ranges whose routes BIRD distributes.
func (in *Input) Carried() []string {
	if in.Unknown != "" || !in.Started() {
		return nil
	}
	var ranges []string
	for _, pool := range in.Pools {
		if !pool.Felix && pool.Encapsulation != "VXLAN" && pool.CIDR.IsValid() && pool.CIDR.Addr().Is4() {
			ranges = append(ranges, pool.CIDR.String())
		}
	}
	return ranges
}

// AnnotationAddress is the annotation in which Calico stores a node's own address with its subnet.
const AnnotationAddress = annotationIPv4
