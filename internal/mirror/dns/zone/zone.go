// Package zone holds DNS records as data: sets of records, who owns them by external-dns' registry, and the
// transactions that move names from one cluster to another by compare-and-swap. Nothing here asks or changes a
// server.
package zone

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// The types of records that are moved or read for it.
const (
	A     = "A"
	AAAA  = "AAAA"
	CNAME = "CNAME"
	TXT   = "TXT"
)

// AddressTypes are the types of which a name has an address.
func AddressTypes() []string { return []string{A, AAAA, CNAME} }

// RRSet is all records of one name and type; at providers that route, of one set identifier too.
type RRSet struct {
	// Name is canonical: lower case, and ends in a dot.
	Name string `json:"name"`
	Type string `json:"type"`
	// TTL is in seconds; 0 for an alias, whose TTL is its target's.
	TTL uint32 `json:"ttl,omitempty"`
	// Values are the records' data as zone files write it, sorted; none for an alias.
	Values []string `json:"values,omitempty"`
	// Alias is set where a provider answers with another name's addresses.
	Alias *Alias `json:"alias,omitempty"`
	// SetID and Weight tell sets of one name and type apart, where a provider weighs them.
	SetID  string `json:"setID,omitempty"`
	Weight *int64 `json:"weight,omitempty"`
	// Routing names another policy (latency, failover, geolocation ...) or a health check: such a set is not moved.
	Routing string `json:"routing,omitempty"`
}

// Alias is the target of a provider's alias record.
type Alias struct {
	Name   string `json:"name"`
	Zone   string `json:"zone"` // the provider's id of the target's zone
	Health bool   `json:"health,omitempty"`
}

// Key tells sets apart.
type Key struct{ Name, Type, SetID string }

// Key is the set's.
func (r RRSet) Key() Key { return Key{r.Name, r.Type, r.SetID} }

// IsAddress says whether the set tells where a name is.
func (r RRSet) IsAddress() bool { return slices.Contains(AddressTypes(), r.Type) }

// Equal compares everything, the TTL too.
func (r RRSet) Equal(o RRSet) bool { return r.TTL == o.TTL && r.Same(o) }

// Same compares everything but the TTL.
func (r RRSet) Same(o RRSet) bool {
	return r.Key() == o.Key() && slices.Equal(r.Values, o.Values) && equal(r.Alias, o.Alias) &&
		equal(r.Weight, o.Weight) && r.Routing == o.Routing
}

func equal[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// String is one line for people: "www.example.org. 60 A 192.0.2.1".
func (r RRSet) String() string {
	text := r.Name
	if r.Alias == nil {
		text += " " + strconv.FormatUint(uint64(r.TTL), 10)
	}
	text += " " + r.Type
	if r.Alias != nil {
		text += " alias of " + r.Alias.Name
	}
	if len(r.Values) > 0 {
		text += " " + strings.Join(r.Values, ", ")
	}
	if r.Weight != nil {
		text += fmt.Sprintf(" (%s, weight %d)", r.SetID, *r.Weight)
	}
	if r.Routing != "" {
		text += " (" + r.Routing + ")"
	}
	return text
}

// Canonical brings a name into the form that everything here compares: lower case, with a dot at its end.
func Canonical(name string) (string, error) {
	if _, ok := dns.IsDomainName(name); !ok || name == "" || strings.ContainsAny(name, " \t\n/:") {
		return "", fmt.Errorf("%q is no domain name", name)
	}
	return dns.CanonicalName(name), nil
}

// Within says whether a canonical name lies in a zone.
func Within(name, zone string) bool { return dns.IsSubDomain(zone, name) }

// FromRRs groups records into sets, sorted by name and type. Of RRSIG and the like nothing is kept.
func FromRRs(records []dns.RR) []RRSet {
	sets := map[Key]RRSet{}
	for _, rr := range records {
		head := rr.Header()
		switch head.Rrtype {
		case dns.TypeRRSIG, dns.TypeNSEC, dns.TypeNSEC3, dns.TypeNSEC3PARAM, dns.TypeSOA:
			continue
		}
		set := RRSet{Name: dns.CanonicalName(head.Name), Type: dns.TypeToString[head.Rrtype], TTL: head.Ttl}
		if known, ok := sets[set.Key()]; ok {
			set = known
		}
		value := Value(rr)
		if !slices.Contains(set.Values, value) {
			set.Values = append(set.Values, value)
			slices.Sort(set.Values)
		}
		sets[set.Key()] = set
	}
	return Sorted(slices.Collect(maps.Values(sets)))
}

// Sorted orders sets by name, type and identifier.
func Sorted(sets []RRSet) []RRSet {
	slices.SortFunc(sets, func(a, b RRSet) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.SetID, b.SetID))
	})
	return sets
}

// Value is a record's data as zone files write it, names in it canonical.
func Value(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.CNAME:
		return dns.CanonicalName(rr.Target)
	case *dns.NS:
		return dns.CanonicalName(rr.Ns)
	}
	return strings.TrimPrefix(rr.String(), rr.Header().String())
}

// ParseRR reads one record as zone files have it, after lines such as $ORIGIN. Its text comes from zones and providers,
// so $INCLUDE, which would read a file of this machine, is refused, and so is a second record.
func ParseRR(text string) (dns.RR, error) {
	parser := dns.NewZoneParser(strings.NewReader(text+"\n"), ".", "")
	parser.SetDefaultTTL(3600)
	record, _ := parser.Next()
	_, more := parser.Next()
	switch {
	case parser.Err() != nil:
		return nil, parser.Err()
	case more:
		return nil, errors.New("more than one record")
	}
	return record, nil
}

// RRs are the set's records.
func (r RRSet) RRs() ([]dns.RR, error) {
	var records []dns.RR
	for _, value := range r.Values {
		rr, err := ParseRR(fmt.Sprintf("%s %d IN %s %s", r.Name, r.TTL, r.Type, value))
		if err != nil {
			return nil, fmt.Errorf("record %s %s %s: %w", r.Name, r.Type, value, err)
		}
		if rr == nil {
			return nil, fmt.Errorf("record %s %s: no data", r.Name, r.Type)
		}
		records = append(records, rr)
	}
	return records, nil
}

// Zone is a zone as it was read.
type Zone struct {
	Name string `json:"name"`
	// Negative is for how many seconds resolvers keep that a name is not there: the lower of the SOA's own TTL
	// and its minimum (RFC 2308).
	Negative uint32  `json:"negative"`
	Sets     []RRSet `json:"sets,omitempty"`
	// Can is what the zone's provider is able to.
	Can Can `json:"can"`
}

// Can is what a provider is able to.
type Can struct {
	// Swap: a change is made only if the records are as expected, all or nothing.
	Swap bool `json:"swap,omitempty"`
	// Weights: traffic can be shifted in parts.
	Weights bool `json:"weights,omitempty"`
}

// At returns the sets of a name and the given types.
func (z *Zone) At(name string, types ...string) []RRSet {
	at, _ := slices.BinarySearchFunc(z.Sets, name, func(set RRSet, name string) int {
		return cmp.Compare(set.Name, name)
	})
	var found []RRSet
	for ; at < len(z.Sets) && z.Sets[at].Name == name; at++ {
		if slices.Contains(types, z.Sets[at].Type) {
			found = append(found, z.Sets[at])
		}
	}
	return found
}

// Of finds the zone, the longest match, that a name lies in; nil when none of them has it.
func Of(zones []*Zone, name string) *Zone {
	var best *Zone
	for _, z := range zones {
		if Within(name, z.Name) && (best == nil || len(z.Name) > len(best.Name)) {
			best = z
		}
	}
	return best
}
