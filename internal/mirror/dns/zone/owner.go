package zone

import (
	"slices"
	"strings"
)

// Registry says how external-dns names the TXT records of its registry: the flags of the same names.
type Registry struct {
	// Prefix and Suffix are --txt-prefix and --txt-suffix, Wildcard is --txt-wildcard-replacement.
	Prefix   string `json:"prefix,omitempty"`
	Suffix   string `json:"suffix,omitempty"`
	Wildcard string `json:"wildcard,omitempty"`
}

const (
	typeTemplate = "%{record_type}"
	heritage     = "heritage=external-dns"
	ownerKey     = "external-dns/owner="
)

// NameOf is the name of the TXT record that says who owns the set of a name and type. Source: the
// registry of external-dns v0.22; a test module of its own compares the two.
func (r Registry) NameOf(name, kind string) string {
	return r.name(name, strings.ToLower(kind), false)
}

// OldNameOf is the name that external-dns before v0.16 gave it, whatever the type.
func (r Registry) OldNameOf(name string) string { return r.name(name, "", true) }

func (r Registry) name(name, kind string, old bool) string {
	first, rest, _ := strings.Cut(name, ".")
	if r.Wildcard != "" && first == "*" {
		first = strings.ToLower(r.Wildcard)
	}
	prefix, suffix := strings.ToLower(r.Prefix), strings.ToLower(r.Suffix)
	if !old && !strings.Contains(prefix+suffix, typeTemplate) {
		first = kind + "-" + first
	}
	fill := strings.NewReplacer(typeTemplate, kind)
	return fill.Replace(prefix) + first + fill.Replace(suffix) + "." + rest
}

// Owner reads the owner from the data of a TXT record; no ok when it is none of external-dns' registry.
func Owner(value string) (owner string, ok bool) {
	for part := range strings.SplitSeq(strings.Trim(value, `"`), ",") {
		if part == heritage {
			ok = true
		}
		if id, found := strings.CutPrefix(part, ownerKey); found {
			owner = id
		}
	}
	return owner, ok
}

// WithOwner is the same data with another owner.
func WithOwner(value, owner string) string {
	parts := strings.Split(strings.Trim(value, `"`), ",")
	for i, part := range parts {
		if strings.HasPrefix(part, ownerKey) {
			parts[i] = ownerKey + owner
		}
	}
	return `"` + strings.Join(parts, ",") + `"`
}

// Ownership returns the TXT sets that say who owns a name's addresses.
func (r Registry) Ownership(z *Zone, name string) []RRSet {
	wanted := []string{r.OldNameOf(name)}
	for _, kind := range AddressTypes() {
		wanted = append(wanted, r.NameOf(name, kind))
	}
	var found []RRSet
	slices.Sort(wanted)
	for _, at := range slices.Compact(wanted) {
		for _, set := range z.At(at, TXT) {
			if slices.ContainsFunc(set.Values, func(v string) bool { _, ok := Owner(v); return ok }) {
				found = append(found, set)
			}
		}
	}
	return found
}

// HandOver is the ownership of a name after a move: the same records with another owner. Where the types of the
// name's addresses change, they get the names that belong to the new types; where they do not, they keep theirs,
// among which may be those of older versions of external-dns.
func (r Registry) HandOver(ownership []RRSet, name, owner string, was, types []string) []RRSet {
	keep := slices.Equal(slices.Sorted(slices.Values(was)), slices.Sorted(slices.Values(types)))
	var after []RRSet
	for _, set := range ownership {
		values := slices.Clone(set.Values)
		for i, value := range values {
			if _, ok := Owner(value); ok {
				values[i] = WithOwner(value, owner)
			}
		}
		slices.Sort(values)
		set.Values = values
		names := []string{set.Name}
		if !keep && set.Name != r.OldNameOf(name) {
			names = nil
			for _, kind := range types {
				names = append(names, r.NameOf(name, kind))
			}
		}
		for _, at := range names {
			set.Name = at
			if !slices.ContainsFunc(after, func(o RRSet) bool { return o.Key() == set.Key() }) {
				after = append(after, set)
			}
		}
	}
	return after
}
