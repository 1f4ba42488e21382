package calico

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// natKnobs change how, or whether, Felix masquerades what pods send to the outside: from a plain MASQUERADE of what leaves a
// pool with natOutgoing for no pool at all.
var natKnobs = []string{"natOutgoingAddress", "natPortRange", "natOutgoingExclusions", "iptablesNATOutgoingInterfaceFilter"}

// plainNAT says whether Felix masquerades in its default way on every node.
func plainNAT(configurations []unstructured.Unstructured, containers []corev1.Container) bool {
	for _, name := range natKnobs {
		if valueOf(containers, "FELIX_"+strings.ToUpper(name)) != "" {
			return false
		}
		for _, configuration := range configurations {
			if _, set, _ := unstructured.NestedFieldNoCopy(configuration.Object, "spec", name); set {
				return false
			}
		}
	}
	return true
}

// masqueraded are the IPv4 pools whose pods are masqueraded when they send to what is in none of all pools. Felix counts
// disabled pools among both.
func masqueraded(snapshot *cluster.Snapshot) (from, all []string) {
	for _, object := range snapshot.Calico("IPPool") {
		text, _, _ := unstructured.NestedString(object.Object, "spec", "cidr")
		cidr, err := netip.ParsePrefix(text)
		if err != nil || !cidr.Addr().Is4() {
			continue
		}
		all = append(all, cidr.Masked().String())
		if outgoing, _, _ := unstructured.NestedBool(object.Object, "spec", "natOutgoing"); outgoing {
			from = append(from, cidr.Masked().String())
		}
	}
	return from, all
}
