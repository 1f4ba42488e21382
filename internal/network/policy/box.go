package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// condition is a demand on the value of one label of a pod.
type condition struct {
	kind conditionKind
	// values are sorted.
	values []string
	// present is true if the label must exist; only for noneOf.
	present bool
}

type conditionKind int8

const (
	noneOf conditionKind = iota
	oneOf
	absent
)

// and is the condition that both hold; false if they exclude each other.
func (c condition) and(o condition) (condition, bool) {
	if c.kind < o.kind {
		c, o = o, c
	}
	switch {
	case c.kind == absent:
		return c, o.kind == absent || o.kind == noneOf && !o.present
	case o.kind == oneOf:
		c.values = intersection(c.values, o.values)
		return c, len(c.values) > 0
	case c.kind == oneOf:
		c.values = without(c.values, o.values)
		return c, len(c.values) > 0
	}
	values := slices.Concat(c.values, o.values)
	slices.Sort(values)
	return condition{noneOf, slices.Compact(values), c.present || o.present}, true
}

// not is the list of conditions of which one holds if this does not; no two of them hold at once.
func (c condition) not() (all []condition) {
	switch {
	case c.kind == absent:
		return []condition{{present: true}}
	case c.kind == oneOf:
		return []condition{{values: c.values}}
	}
	if len(c.values) > 0 {
		all = append(all, condition{kind: oneOf, values: c.values})
	}
	if c.present {
		all = append(all, condition{kind: absent})
	}
	return all
}

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(v string) bool { return !slices.Contains(b, v) })
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(v string) bool { return slices.Contains(b, v) })
}

// choice is a set of pods: those that meet the conditions on all labels. It is immutable.
type choice map[string]condition

// and is the pods that both select; false if there can be none.
func (s choice) and(o choice) (choice, bool) {
	// Most selections are of one namespace: this is the cheapest way to see that two have nothing in common.
	if a, ok := s[ciliumNamespace]; ok {
		if b, ok := o[ciliumNamespace]; ok {
			if _, ok := a.and(b); !ok {
				return nil, false
			}
		}
	}
	both := make(choice, len(s)+len(o))
	for key, c := range s {
		both[key] = c
	}
	for key, c := range o {
		if own, ok := both[key]; ok {
			if c, ok = own.and(c); !ok {
				return nil, false
			}
		}
		both[key] = c
	}
	if own, ok := both[ciliumNamespace]; ok { // every pod has it
		if own.kind == absent {
			return nil, false
		}
		if own.present = false; own.kind == noneOf && len(own.values) == 0 {
			delete(both, ciliumNamespace)
		} else {
			both[ciliumNamespace] = own
		}
	}
	return both, true
}

// not is the pods that it does not select, as selections of which no two share a pod.
func (s choice) not() (all []choice) {
	rest := choice{}
	for _, key := range s.keys() {
		for _, c := range s[key].not() {
			if one, ok := rest.and(choice{key: c}); ok {
				all = append(all, one)
			}
		}
		rest, _ = rest.and(choice{key: s[key]})
	}
	return all
}

func (s choice) keys() []string {
	var keys []string
	for key := range s {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (s choice) String() string {
	var b strings.Builder
	for _, key := range s.keys() {
		c := s[key]
		b.WriteString(key + "\x00" + string('0'+rune(c.kind)) + strings.Join(c.values, "\x01"))
		if c.present {
			b.WriteByte('+')
		}
		b.WriteByte(2)
	}
	return b.String()
}

// minus is the pods of s that o does not select.
func (s choice) minus(o choice) (rest []choice) {
	if _, ok := s.and(o); !ok {
		return []choice{s}
	}
	for _, n := range o.not() {
		if one, ok := s.and(n); ok {
			rest = append(rest, one)
		}
	}
	return rest
}

// minusAll is the pods of all that none of others selects; false if there are too many parts.
func minusAll(all, others []choice) ([]choice, bool) {
	for _, o := range others {
		var rest []choice
		for _, s := range all {
			rest = append(rest, s.minus(o)...)
		}
		if all = rest; len(all) > mostParts {
			return nil, false
		}
	}
	return all, true
}

// addresses is a set of addresses: ranges in order that do not overlap.
type addresses []addressRange

type addressRange struct{ first, last netip.Addr }

// everywhere is every address of both families.
var everywhere = addressesOf(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))

func addressesOf(prefixes ...netip.Prefix) (all addresses) {
	for _, p := range prefixes {
		all = all.union(addresses{{p.Masked().Addr(), lastOf(p.Masked())}})
	}
	return all
}

func (a addresses) union(b addresses) addresses {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y addressRange) int { return x.first.Compare(y.first) })
	var set addresses
	for _, r := range all {
		if n := len(set); n > 0 && (r.first.Compare(set[n-1].last) <= 0 || r.first == set[n-1].last.Next()) {
			if r.last.Compare(set[n-1].last) > 0 {
				set[n-1].last = r.last
			}
			continue
		}
		set = append(set, r)
	}
	return set
}

func (a addresses) intersect(b addresses) (set addresses) {
	for _, x := range a {
		for _, y := range b {
			first, last := x.first, x.last
			if y.first.Compare(first) > 0 {
				first = y.first
			}
			if y.last.Compare(last) < 0 {
				last = y.last
			}
			if first.Compare(last) <= 0 && first.Is4() == last.Is4() {
				set = append(set, addressRange{first, last})
			}
		}
	}
	return set
}

func (a addresses) minus(b addresses) addresses {
	for _, y := range b {
		var rest addresses
		for _, x := range a {
			if x.last.Compare(y.first) < 0 || x.first.Compare(y.last) > 0 {
				rest = append(rest, x)
				continue
			}
			if x.first.Compare(y.first) < 0 {
				rest = append(rest, addressRange{x.first, y.first.Prev()})
			}
			if x.last.Compare(y.last) > 0 {
				rest = append(rest, addressRange{y.last.Next(), x.last})
			}
		}
		a = rest
	}
	return a
}

// holds reports how much of other is in a.
func (a addresses) holds(other addresses) match {
	switch shared := a.intersect(other); {
	case len(shared) == 0:
		return no
	case len(other.minus(a)) == 0:
		return yes
	}
	return maybe
}

func (a addresses) equal(b addresses) bool { return slices.Equal(a, b) }

// prefixes returns the shortest list of prefixes.
func (a addresses) prefixes() (found []netip.Prefix) {
	for _, r := range a {
		for at := r.first; ; {
			bits := at.BitLen()
			for bits > 0 {
				wider, _ := at.Prefix(bits - 1)
				if wider.Addr() != at || lastOf(wider).Compare(r.last) > 0 {
					break
				}
				bits--
			}
			p := netip.PrefixFrom(at, bits)
			found = append(found, p)
			if lastOf(p) == r.last {
				break
			}
			at = lastOf(p).Next()
		}
	}
	return found
}

// far is the other end of a connection: pods, addresses outside of the cluster, or the nodes.
type far struct {
	kind   farKind
	pods   choice
	ranges addresses
}

type farKind int8

const (
	farPods farKind = iota
	farOutside
	farNodes
)

func (f far) and(o far) (far, bool) {
	if f.kind != o.kind {
		return far{}, false
	}
	switch f.kind {
	case farPods:
		pods, ok := f.pods.and(o.pods)
		return far{kind: farPods, pods: pods}, ok
	case farOutside:
		ranges := f.ranges.intersect(o.ranges)
		return far{kind: farOutside, ranges: ranges}, len(ranges) > 0
	}
	return f, true
}

// minus is what is left of f without o, which has something in common with it.
func (f far) minus(o far) (rest []far) {
	switch f.kind {
	case farPods:
		for _, s := range f.pods.minus(o.pods) {
			rest = append(rest, far{kind: farPods, pods: s})
		}
	case farOutside:
		if ranges := f.ranges.minus(o.ranges); len(ranges) > 0 {
			rest = append(rest, far{kind: farOutside, ranges: ranges})
		}
	}
	return rest
}

// Protocols of a box that a set of ports does not have. The number of an ICMP type is one more than the type.
const (
	protocolICMP = iota + len(protocols)
	protocolICMPv6
	protocolOther
)

// otherCode stands for all protocols without a name in Cilium's rules.
const otherCode = uint32(protocolOther) << 16

// everything is all traffic: all ports, ICMP types and other protocols.
var everything = allPorts.union(icmpTypes(protocolICMP, 0, 255)).union(icmpTypes(protocolICMPv6, 0, 255)).
	union(spans{{otherCode, otherCode}})

func icmpTypes(protocol, first, last int) spans {
	return spans{{uint32(protocol<<16 | first + 1), uint32(protocol<<16 | last + 1)}}
}

// door is a set of ports, or one named port.
type door struct {
	ports spans
	name  namedPort
}

func (d door) named() bool { return d.name.name != "" }

// overlaps reports whether two doors may share a port: the number of a name may be any.
func (d door) overlaps(o door) bool {
	whole := func(n namedPort) spans { return protocolPorts(n.protocol, firstPort, lastPort) }
	switch {
	case d.named() && o.named():
		return d.name.protocol == o.name.protocol
	case d.named():
		return len(whole(d.name).intersect(o.ports)) > 0
	case o.named():
		return len(whole(o.name).intersect(d.ports)) > 0
	}
	return len(d.ports.intersect(o.ports)) > 0
}

// minus is what is left of d without o; false if that depends on the number of a name.
func (d door) minus(o door) (rest door, some, exact bool) {
	switch {
	case d.named() && d.name == o.name:
		return door{}, false, true
	case d.named() && !o.named():
		whole := protocolPorts(d.name.protocol, firstPort, lastPort)
		return d, len(whole.subtract(o.ports)) > 0, len(whole.subtract(o.ports)) == 0
	case d.named() || o.named():
		return d, true, false
	}
	ports := d.ports.subtract(o.ports)
	return door{ports: ports}, len(ports) > 0, true
}

// and is what both let through; both must be without names, or the same.
func (d door) and(o door) (door, bool) {
	switch {
	case d.named() && o.named():
		return d, d.name == o.name
	case d.named():
		return d, len(protocolPorts(d.name.protocol, firstPort, lastPort).subtract(o.ports)) == 0
	case o.named():
		return o.and(d)
	}
	ports := d.ports.intersect(o.ports)
	return door{ports: ports}, len(ports) > 0
}

// box is a set of connections in one direction: of these pods, with this other end, through this door.
type box struct {
	pods choice
	far  far
	door door
}

func (b box) overlaps(o box) bool {
	if !b.door.overlaps(o.door) {
		return false
	}
	if _, ok := b.pods.and(o.pods); !ok {
		return false
	}
	_, ok := b.far.and(o.far)
	return ok
}

// minus is what is left of b without o; false if that cannot be said exactly.
func (b box) minus(o box) (rest []box, exact bool) {
	if !b.overlaps(o) {
		return []box{b}, true
	}
	for _, pods := range b.pods.minus(o.pods) {
		rest = append(rest, box{pods, b.far, b.door})
	}
	pods, _ := b.pods.and(o.pods)
	for _, f := range b.far.minus(o.far) {
		rest = append(rest, box{pods, f, b.door})
	}
	shared, _ := b.far.and(o.far)
	left, some, exact := b.door.minus(o.door)
	if some {
		rest = append(rest, box{pods, shared, left})
	}
	return rest, exact
}

func (b box) and(o box) (box, bool) {
	pods, ok := b.pods.and(o.pods)
	if !ok {
		return box{}, false
	}
	f, ok := b.far.and(o.far)
	if !ok {
		return box{}, false
	}
	d, ok := b.door.and(o.door)
	return box{pods, f, d}, ok
}

// mostParts bounds into how many parts a rule may be divided.
const mostParts = 128

// minusBoxes is what is left of all without others; false if that cannot be said exactly, or in few parts.
func minusBoxes(all, others []box) ([]box, bool) {
	for _, o := range others {
		var rest []box
		for _, b := range all {
			parts, exact := b.minus(o)
			if !exact {
				return nil, false
			}
			rest = append(rest, parts...)
		}
		if all = rest; len(all) > mostParts {
			return nil, false
		}
	}
	return all, true
}

func overlapping(all, others []box) bool {
	return slices.ContainsFunc(all, func(b box) bool { return slices.ContainsFunc(others, b.overlaps) })
}

// anyFar is every other end.
func anyFar() []far {
	return []far{{kind: farPods, pods: choice{}}, {kind: farOutside, ranges: everywhere}, {kind: farNodes}}
}

// whole is all connections of these pods.
func whole(pods []choice) (all []box) {
	for _, s := range pods {
		for _, f := range anyFar() {
			all = append(all, box{s, f, door{ports: everything}})
		}
	}
	return all
}

func compareFars(a, b far) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.pods.String(), b.pods.String()))
}
