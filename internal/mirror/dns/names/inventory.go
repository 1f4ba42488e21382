package names

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Verdict says whether a name can move.
type Verdict string

// The verdicts.
const (
	// Moves: the name points to the original, and the mirror is ready for it.
	Moves Verdict = "moves"
	// Moved: the name already points to the mirror.
	Moved Verdict = "moved"
	// Stays: it belongs to no object and to no external-dns of either cluster, so it is left alone.
	Stays Verdict = "stays"
	// Blocked: a person must fix a problem; Why describes it.
	Blocked Verdict = "blocked"
)

// Entry is one name of the inventory.
type Entry struct {
	Name    string  `json:"name"`
	Zone    string  `json:"zone,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Why is the reason for the verdict, Hint says what to do.
	Why  string `json:"why,omitempty"`
	Hint string `json:"hint,omitempty"`
	// Warnings do not block.
	Warnings []string `json:"warnings,omitempty"`
	// Now are the current records in the zone; Owners are the owners in TXT records.
	Now    []zone.RRSet `json:"now,omitempty"`
	Owners []string     `json:"owners,omitempty"`
	// Original and Mirror are the objects of the two clusters that want the name.
	Original []Claim `json:"original,omitempty"`
	Mirror   []Claim `json:"mirror,omitempty"`
	// Move is set when the verdict is Moves.
	Move *zone.Move `json:"move,omitempty"`
}

// Options say how to read the zones.
type Options struct {
	Registry zone.Registry
	// Original and Mirror are the --txt-owner-id of external-dns in the two clusters; empty if it does not run.
	Original, Mirror string
}

// Inventory compares the names that two clusters want with the zones: one entry for each wanted name and for each name
// with an address, sorted. The mirror may be nil: then no name moves.
func Inventory(original, mirror *cluster.Snapshot, zones []*zone.Zone, options Options) []Entry {
	entries := map[string]*Entry{}
	at := func(name string) *Entry {
		if entries[name] == nil {
			entries[name] = &Entry{Name: name}
		}
		return entries[name]
	}
	for _, claim := range Claims(original) {
		at(claim.Name).Original = append(at(claim.Name).Original, claim)
	}
	if mirror != nil {
		for _, claim := range Claims(mirror) {
			at(claim.Name).Mirror = append(at(claim.Name).Mirror, claim)
		}
	}
	for _, z := range zones {
		for _, set := range z.Sets {
			if set.IsAddress() {
				at(set.Name)
			}
		}
	}
	var all []Entry
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		e.judge(zones, options)
		all = append(all, *e)
	}
	return all
}

func (e *Entry) block(hint, format string, args ...any) {
	e.Verdict, e.Why, e.Hint = Blocked, fmt.Sprintf(format, args...), hint
}

// judge finds the verdict, the most fundamental reason first.
func (e *Entry) judge(zones []*zone.Zone, options Options) {
	z := zone.Of(zones, e.Name)
	if z == nil {
		e.Verdict, e.Why = Stays, "no zone of the zones file contains this name"
		return
	}
	e.Zone, e.Now = z.Name, z.At(e.Name, zone.AddressTypes()...)
	ownership := options.Registry.Ownership(z, e.Name)
	e.Owners = owners(ownership)
	ours := slices.ContainsFunc(e.Owners, func(o string) bool { return o == options.Original || o == options.Mirror })
	switch {
	case len(e.Original)+len(e.Mirror) == 0 && ours:
		e.block("delete the record, or restore its object",
			"external-dns owns it as %q, but no object of either cluster has this name", strings.Join(e.Owners, ", "))
	case len(e.Original)+len(e.Mirror) == 0:
		e.Verdict, e.Why = Stays, "it belongs to no object of either cluster"
	case len(e.Now) == 0:
		e.Verdict, e.Why = Stays, "the zone has no record for it"
	case len(e.Owners) > 1:
		e.block("keep one owner: delete the other's TXT record",
			"it has two owners: %s", strings.Join(e.Owners, " and "))
	case len(e.Owners) == 1 && !ours:
		e.block("give the --txt-owner-id of your two external-dns as owners, or leave the name to its owner",
			"it has another owner: %q", e.Owners[0])
	case conflicting(e.Original):
		e.block("keep the name in one of them", "two objects have it with different addresses: %s", objects(e.Original))
	case conflicting(e.Mirror):
		e.block("keep the name in one of them", "two objects of the mirror have it with different addresses: %s",
			objects(e.Mirror))
	case slices.ContainsFunc(e.Now, func(set zone.RRSet) bool { return set.Routing != "" || set.SetID != "" }):
		e.block("make it a plain record, or move it by hand",
			"the provider routes it (%s): only plain records and aliases are moved", e.Now[0])
	default:
		e.compare(z, ownership, options)
	}
}

// compare decides between the two clusters.
func (e *Entry) compare(z *zone.Zone, ownership []zone.RRSet, options Options) {
	now := targetsOf(e.Now)
	to := union(e.Mirror)
	switch {
	case len(e.Mirror) == 0 && len(e.Original) > 0 && slices.Equal(now, union(e.Original)):
		e.block("copy its object to the mirror first", "no object of the mirror has it")
		return
	case len(to) == 0 && len(e.Mirror) > 0:
		e.block("wait until the mirror's load balancer has an address",
			"%s of the mirror has no address yet", e.Mirror[0].Object)
		return
	case slices.Equal(now, to) && !slices.Equal(to, union(e.Original)):
		e.Verdict, e.Why = Moved, "it points to the mirror"
		return
	case slices.Equal(now, to):
		e.block("give the mirror an address of its own", "both clusters have the same address for it")
		return
	case len(e.Original) == 0:
		e.block("copy the object to the original, or leave the name",
			"only the mirror has it, and it points to neither cluster: %s", strings.Join(now, ", "))
		return
	case !slices.Equal(now, union(e.Original)):
		e.block("let it point to the original first", "it points to %s, and not to the original's %s",
			strings.Join(now, ", "), strings.Join(union(e.Original), ", "))
		return
	case len(ownership) > 0 && options.Mirror == "":
		e.block("give the mirror's --txt-owner-id as owners.mirror",
			"external-dns owns it, but the owner ID of the mirror is unknown")
		return
	case len(e.Owners) == 1 && e.Owners[0] != options.Original:
		e.block("let the original's external-dns own it, or correct owners.original",
			"it points to the original, but the mirror's external-dns %q owns it", e.Owners[0])
		return
	}
	for _, claim := range e.Mirror {
		if claim.Unready != "" {
			e.block("look at its pods on the mirror", "%s is not ready on the mirror: %s", claim.Object, claim.Unready)
			return
		}
	}
	after, err := addressed(e.Now, to)
	if err != nil {
		e.block("move it by hand", "%v", err)
		return
	}
	e.Verdict = Moves
	e.Move = &zone.Move{Zone: z.Name, Unit: zone.Unit{Name: e.Name, Before: slices.Concat(e.Now, ownership),
		After: slices.Concat(after,
			options.Registry.HandOver(ownership, e.Name, options.Mirror, typesOf(e.Now), typesOf(after)))}}
	for _, claim := range slices.Concat(e.Original, e.Mirror) {
		if claim.TTL != "" && len(e.Owners) > 0 {
			e.warn("%s sets a TTL of %s for external-dns, which restores it when the TTL is lowered; remove the "+
				"annotation "+
				"first", claim.Object, claim.TTL)
		}
		if claim.Disarmed && len(e.Owners) > 0 {
			e.warn("%s of the mirror is a copy whose names are hidden from external-dns: one that runs on the mirror "+
				"must not delete records meanwhile (--policy upsert-only, or paused)", claim.Object)
		}
		if !slices.Contains(e.Move.Services, claim.Object) {
			e.Move.Services = append(e.Move.Services, claim.Object)
		}
	}
	e.Move.Probes = probes(e.Name, e.Mirror, now)
	if len(e.Move.Probes) == 0 {
		e.warn("Theseus knows no service at its address: only the record is checked")
	}
}

func (e *Entry) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(e.Warnings, text) {
		e.Warnings = append(e.Warnings, text)
	}
}

// conflicting says whether claims want different addresses.
func conflicting(claims []Claim) bool {
	for _, claim := range claims[min(1, len(claims)):] {
		if !slices.Equal(claim.Targets, claims[0].Targets) {
			return true
		}
	}
	return false
}

func objects(claims []Claim) string {
	var found []string
	for _, claim := range claims {
		found = append(found, claim.Object)
	}
	return strings.Join(found, " and ")
}

func owners(ownership []zone.RRSet) []string {
	var found []string
	for _, set := range ownership {
		for _, value := range set.Values {
			if owner, ok := zone.Owner(value); ok {
				found = append(found, owner)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func union(claims []Claim) []string {
	var all []string
	for _, claim := range claims {
		all = append(all, claim.Targets...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func targetsOf(sets []zone.RRSet) []string {
	var all []string
	for _, set := range sets {
		all = append(all, set.Values...)
		if set.Alias != nil {
			all = append(all, strings.TrimPrefix(set.Alias.Name, "dualstack."))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func typesOf(sets []zone.RRSet) []string {
	var types []string
	for _, set := range sets {
		if !slices.Contains(types, set.Type) {
			types = append(types, set.Type)
		}
	}
	return types
}

// addressed makes the address sets of a name for new targets, with the TTL and the kind (alias or not) of the old.
func addressed(now []zone.RRSet, targets []string) ([]zone.RRSet, error) {
	name, ttl := now[0].Name, now[0].TTL
	for _, set := range now {
		ttl = min(ttl, set.TTL)
	}
	var ips, hosts []string
	values := map[string][]string{}
	for _, target := range targets {
		ip, err := netip.ParseAddr(target)
		switch {
		case err != nil:
			hosts = append(hosts, target)
		case ip.Is4():
			values[zone.A] = append(values[zone.A], target)
			ips = append(ips, target)
		default:
			values[zone.AAAA] = append(values[zone.AAAA], target)
			ips = append(ips, target)
		}
	}
	switch {
	case len(hosts) > 0 && len(ips) > 0, len(hosts) > 1:
		return nil, fmt.Errorf("the mirror has %s for it: a record is one name, or addresses",
			strings.Join(targets, ", "))
	case len(hosts) == 1 && now[0].Alias != nil:
		return aliases(now, hosts[0])
	case len(hosts) == 1:
		return []zone.RRSet{{Name: name, Type: zone.CNAME, TTL: ttl, Values: hosts}}, nil
	}
	if ttl == 0 {
		ttl = 60 // an alias becomes a record: what the provider gives aliases
	}
	var after []zone.RRSet
	for _, kind := range []string{zone.A, zone.AAAA} {
		if len(values[kind]) > 0 {
			after = append(after, zone.RRSet{Name: name, Type: kind, TTL: ttl, Values: values[kind]})
		}
	}
	return after, nil
}

// aliases keeps the provider's zone of the target, which is that of all load balancers of a kind and region.
func aliases(now []zone.RRSet, host string) ([]zone.RRSet, error) {
	var after []zone.RRSet
	for _, set := range now {
		if set.Alias == nil {
			return nil, fmt.Errorf("it is an alias for some types only")
		}
		if region(set.Alias.Name) != region(host) {
			return nil, fmt.Errorf("an alias of %s cannot become one of %s: the provider's zone of that is not known",
				set.Alias.Name, host)
		}
		target := *set.Alias
		prefix := ""
		if strings.HasPrefix(target.Name, "dualstack.") {
			prefix = "dualstack."
		}
		target.Name = prefix + host
		set.Alias = &target
		after = append(after, set)
	}
	return after, nil
}

// region is what follows the first label of a load balancer's name: kind, region and provider.
func region(host string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(host, "dualstack."), ".")
	return rest
}

// probes ask what must answer at the mirror's addresses.
func probes(name string, mirror []Claim, was []string) []zone.Probe {
	var all []zone.Probe
	host := strings.TrimSuffix(name, ".")
	for _, claim := range mirror {
		for _, port := range claim.Ports {
			if strings.HasPrefix(host, "*") && port.Kind != zone.ProbeTCP {
				continue // no single name stands for all of them
			}
			p := zone.Probe{Kind: port.Kind, Host: host, Port: port.Port, At: claim.Targets, Was: was}
			if !slices.ContainsFunc(all, func(o zone.Probe) bool { return o.Kind == p.Kind && o.Port == p.Port }) {
				all = append(all, p)
			}
		}
	}
	return all
}
