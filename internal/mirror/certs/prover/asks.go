package prover

import (
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// https is tested for every name, whatever its objects say, because a load balancer may serve it by itself.
const https = 443

// Asks returns the handshakes to make: for every name that an object of either cluster wants, and its name on the
// mirror according to the rules, on port 443 and on every other TCP port of the mirror's objects.
func Asks(original, mirror []names.Claim, rules certs.Rules) []Ask {
	was := map[string][]string{}
	for _, claim := range original {
		was[claim.Name] = append(was[claim.Name], claim.Targets...)
	}
	var asks []Ask
	seen := map[string]bool{}
	for _, claim := range mirror {
		seen[claim.Name] = true
		ports := slices.DeleteFunc(slices.Clone(claim.Ports), func(p names.Port) bool {
			return p.Kind == zone.ProbeHTTP
		})
		if !slices.ContainsFunc(ports, func(p names.Port) bool { return p.Port == https || p.Kind == zone.ProbeTLS }) {
			ports = append(ports, names.Port{Kind: zone.ProbeTCP, Port: https})
		}
		name := strings.TrimSuffix(claim.Name, ".")
		all := []string{name}
		if other, ok := rules.Mirror(name); ok {
			all = append(all, other)
		}
		for _, port := range ports {
			for _, one := range all {
				asks = add(asks, Ask{Name: one, Port: port.Port, At: claim.Targets, Was: was[claim.Name],
					Must: port.Kind == zone.ProbeTLS, Object: claim.Object})
			}
		}
	}
	for _, claim := range original {
		if !seen[claim.Name] {
			asks = add(asks, Ask{Name: strings.TrimSuffix(claim.Name, "."), Port: https,
				Was: claim.Targets, Object: claim.Object})
		}
	}
	return asks
}

// add adds what is not asked already: objects may share a name and an address.
func add(asks []Ask, ask Ask) []Ask {
	for i, other := range asks {
		if other.Name == ask.Name && other.Port == ask.Port && slices.Equal(other.At, ask.At) {
			asks[i].Must = other.Must || ask.Must
			return asks
		}
	}
	return append(asks, ask)
}
