package calico

// AnnotationIPv4Pools names the IPPools from which a pod, or all pods of a namespace, get their IPv4 addresses.
const AnnotationIPv4Pools = "cni.projectcalico.org/ipv4pools"

// Ask is an annotation with which pods make a request to Calico's IPAM.
type Ask struct {
	Annotation string
	What       string // what is requested
	// Namespaces is true if the annotation on a namespace applies to all its pods (cni-plugin/pkg/k8s/k8s.go of
	// Calico).
	Namespaces bool
	// Left says what happens to such pods if pods get another IPv4 pool; empty if the request still works.
	Left string
}

// Asks returns all such annotations.
func Asks() []Ask {
	const fixed, pool = "a fixed address", "an address of a certain pool"
	return []Ask{
		{AnnotationIPv4Pools, pool, true,
			"the present pool assigns no more addresses, so a pod that requests one of its addresses does not " +
				"start again"},
		{"cni.projectcalico.org/ipv6pools", pool, true, ""},
		{"cni.projectcalico.org/ipAddrs", fixed, false,
			"its pool assigns no more addresses: its pods do not start again, or keep the address, and the change " +
				"does not end"},
		{"cni.projectcalico.org/ipAddrsNoIpam", fixed, false, "its pods come back with it, and the old pool never " +
			"becomes empty"},
		{"cni.projectcalico.org/floatingIPs", "a floating address", false, ""},
	}
}
