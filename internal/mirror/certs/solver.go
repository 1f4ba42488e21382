package certs

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Way is how the issuer of a certificate validates the ownership of a name.
type Way string

// The ways.
const (
	// NotAsked: the issuer does not validate names (a CA, Vault and similar).
	NotAsked Way = "not asked"
	// DNS01: by a TXT record in the name's zone; the name's address does not matter.
	DNS01 Way = "DNS-01"
	// HTTP01: by a request to the address that the name points to.
	HTTP01 Way = "HTTP-01"
	// NoWay: no solver of the issuer matches the name.
	NoWay Way = "no solver"
	// Unknown: the issuer is not of cert-manager's own kinds.
	Unknown Way = "unknown"
)

// WayOf returns how an Issuer or ClusterIssuer validates a name of a Certificate with labels. Of several ACME solvers
// the most specific wins: a solver that selects the name, then one that selects its zone, then one that selects the
// labels, as in cert-manager's pkg/util/solverpicker.
func WayOf(issuer *unstructured.Unstructured, labels map[string]string, name string) Way {
	acme, found, _ := unstructured.NestedMap(issuer.Object, "spec", "acme")
	if !found {
		return NotAsked
	}
	solvers, _, _ := unstructured.NestedSlice(acme, "solvers")
	way, best := NoWay, score{-1, -1, -1}
	for _, one := range solvers {
		solver, _ := one.(map[string]any)
		kind := NoWay
		switch {
		case solver["http01"] != nil && !strings.HasPrefix(name, "*."): // of a wildcard, no authority offers it
			kind = HTTP01
		case solver["dns01"] != nil:
			kind = DNS01
		default:
			continue
		}
		if got, ok := selected(solver, labels, name); ok && best.less(got) {
			way, best = kind, got
		}
	}
	return way
}

// score is how specific a solver's selector is: names, labels of the longest zone, labels of the object.
type score [3]int

func (s score) less(other score) bool {
	for i := range s {
		if s[i] != other[i] {
			return s[i] < other[i]
		}
	}
	return false
}

func selected(solver map[string]any, labels map[string]string, name string) (score, bool) {
	var got score
	selector, _ := solver["selector"].(map[string]any)
	if names, _, _ := unstructured.NestedStringSlice(selector, "dnsNames"); len(names) > 0 {
		for _, one := range names {
			if one == name {
				got[0] = 1
			}
		}
		if got[0] == 0 {
			return got, false
		}
	}
	if zones, _, _ := unstructured.NestedStringSlice(selector, "dnsZones"); len(zones) > 0 {
		for _, one := range zones {
			canonical, err := zone.Canonical(one)
			whole, wrong := zone.Canonical(name)
			if err == nil && wrong == nil && zone.Within(whole, canonical) {
				got[1] = max(got[1], strings.Count(canonical, "."))
			}
		}
		if got[1] == 0 {
			return got, false
		}
	}
	wanted, _, _ := unstructured.NestedStringMap(selector, "matchLabels")
	for key, value := range wanted {
		if have, ok := labels[key]; !ok || have != value {
			return got, false
		}
	}
	got[2] = len(wanted)
	return got, true
}
