package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Cilium's limits for one rule (pkg/policy/api/rule_validation.go).
const mostPorts = 40

// ruleWriter writes rules of one direction.
type ruleWriter struct {
	direction Direction
	note      func(string)
}

// rules writes boxes of the same pods, one rule for each set of ports and kind of peer.
func (w ruleWriter) rules(boxes []box, a action) (found []any) {
	type group struct {
		door door
		fars []far
	}
	var groups []*group
	for _, b := range boxes {
		i := slices.IndexFunc(groups, func(g *group) bool {
			return g.door.name == b.door.name && slices.Equal(g.door.ports, b.door.ports)
		})
		if i < 0 {
			groups = append(groups, &group{door: b.door})
			i = len(groups) - 1
		}
		groups[i].fars = append(groups[i].fars, b.far)
	}
	for _, g := range groups {
		for _, peers := range w.peers(g.fars, a) {
			for _, ports := range w.ports(g.door) {
				rule := map[string]any{}
				for _, part := range []map[string]any{peers, ports} {
					for key, value := range part {
						rule[key] = value
					}
				}
				found = append(found, rule)
			}
		}
	}
	return found
}

// peers writes other ends, as one list for each kind of peer: a rule has only one.
func (w ruleWriter) peers(fars []far, a action) (found []map[string]any) {
	prefix := map[Direction]string{Ingress: "from", Egress: "to"}[w.direction]
	slices.SortStableFunc(fars, compareFars)
	var pods []any
	var ranges addresses
	var anyPod, nodes bool
	last := ""
	for i, f := range fars {
		switch f.kind {
		case farPods:
			anyPod = anyPod || len(f.pods) == 0
			if key := f.pods.String(); i == 0 || key != last {
				pods, last = append(pods, labelSelector(f.pods, "")), key
			}
		case farOutside:
			ranges = ranges.union(f.ranges)
		case farNodes:
			nodes = true
		}
	}
	world := ranges.equal(everywhere)
	var entities []any
	switch {
	case anyPod && world && nodes && a == allow:
		return []map[string]any{{prefix + "Entities": []any{"all"}}}
	case anyPod:
		pods = []any{labelSelector(choice{}, "")}
	}
	if world {
		entities = append(entities, "world")
	}
	switch {
	case nodes && a == deny && w.direction == Ingress:
		// A node always reaches its own pods under Calico, for probes; Cilium would deny it that.
		entities = append(entities, "remote-node")
	case nodes:
		entities = append(entities, "host", "remote-node")
	}
	if len(pods) > 0 {
		found = append(found, map[string]any{prefix + "Endpoints": pods})
	}
	if len(ranges) > 0 && !world {
		found = append(found, map[string]any{prefix + "CIDRSet": cidrs(ranges)})
	}
	if len(entities) > 0 {
		found = append(found, map[string]any{prefix + "Entities": entities})
	}
	return found
}

// cidrs writes addresses in the shorter of two forms: prefixes, or one prefix with exceptions.
func cidrs(all addresses) (found []any) {
	for _, family := range everywhere {
		mine := all.intersect(addresses{family})
		if len(mine) == 0 {
			continue
		}
		plain := mine.prefixes()
		cover := covering(mine)
		except := addressesOf(cover).minus(mine).prefixes()
		if len(except)+1 >= len(plain) {
			for _, p := range plain {
				found = append(found, map[string]any{"cidr": p.String()})
			}
			continue
		}
		var texts []any
		for _, p := range except {
			texts = append(texts, p.String())
		}
		found = append(found, map[string]any{"cidr": cover.String(), "except": texts})
	}
	return found
}

// covering is the smallest prefix that has all of these addresses, which are of one family.
func covering(all addresses) netip.Prefix {
	first, last := all[0].first, all[len(all)-1].last
	bits := first.BitLen()
	for {
		if p, _ := first.Prefix(bits); p.Contains(last) || bits == 0 {
			return p
		}
		bits--
	}
}

// ports writes a door, as one part for each rule that it needs; an empty part is everything.
func (w ruleWriter) ports(d door) (found []map[string]any) {
	if d.named() {
		return []map[string]any{{"toPorts": []any{map[string]any{"ports": []any{
			map[string]any{"port": d.name.name, "protocol": string(protocols[d.name.protocol])}}}}}}
	}
	if len(everything.subtract(d.ports)) == 0 {
		return []map[string]any{{}}
	}
	var ports []any
	for i, protocol := range protocols {
		of := protocolPorts(i, firstPort, lastPort)
		for _, r := range d.ports.intersect(of) {
			port := map[string]any{"port": strconv.Itoa(int(r.first & 0xffff)), "protocol": string(protocol)}
			switch {
			case r == of[0]:
				port["port"] = "0" // every port
			case r.last != r.first:
				port["endPort"] = int64(r.last & 0xffff)
			}
			ports = append(ports, port)
		}
	}
	if len(ports) > 0 {
		var lists []any
		for chunk := range slices.Chunk(ports, mostPorts) {
			lists = append(lists, map[string]any{"ports": chunk})
		}
		found = append(found, map[string]any{"toPorts": lists})
	}
	var fields []any
	for protocol, family := range map[int]string{protocolICMP: "IPv4", protocolICMPv6: "IPv6"} {
		all := icmpTypes(protocol, 0, 255)
		shared := d.ports.intersect(all)
		if slices.Equal(shared, all) {
			w.note(fmt.Sprintf("all of ICMP over %s is written as the types that are in use: Cilium has no form for "+
				"every type", family))
			shared = nil
			for _, n := range inUse[family] {
				shared = append(shared, icmpTypes(protocol, n, n)...)
			}
		}
		for _, r := range shared {
			for code := r.first; code <= r.last; code++ {
				fields = append(fields, map[string]any{"family": family, "type": int64(code&0xffff) - 1})
			}
		}
	}
	slices.SortFunc(fields, func(a, b any) int {
		x, y := a.(map[string]any), b.(map[string]any)
		return cmp.Or(cmp.Compare(x["family"].(string), y["family"].(string)),
			cmp.Compare(x["type"].(int64), y["type"].(int64)))
	})
	for chunk := range slices.Chunk(fields, mostPorts) {
		found = append(found, map[string]any{"icmps": []any{map[string]any{"fields": chunk}}})
	}
	return found
}

// inUse are the ICMP types that IANA lists and has not deprecated.
var inUse = map[string][]int{
	"IPv4": {0, 3, 5, 8, 9, 10, 11, 12, 13, 14, 40, 42, 43},
	"IPv6": {1, 2, 3, 4, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 143, 160, 161},
}

// labelSelector writes a choice. A selector names the namespace, so that it never means that of its policy, or what
// is no pod; own is the namespace of a policy that selects its own pods.
func labelSelector(s choice, own string) map[string]any {
	match := map[string]any{}
	var expressions []any
	express := func(key, operator string, values []string) {
		e := map[string]any{"key": key, "operator": operator}
		if len(values) > 0 {
			var list []any
			for _, v := range values {
				list = append(list, v)
			}
			e["values"] = list
		}
		expressions = append(expressions, e)
	}
	// NotIn is also true of what has no namespace: nodes, and addresses outside. Cilium adds no demand of its own to a
	// selector that has the key.
	if c, named := s[ciliumNamespace]; !named || c.kind == noneOf {
		express("k8s:"+ciliumNamespace, "Exists", nil)
	}
	for _, label := range s.keys() {
		c, key := s[label], label
		if derived(label) {
			key = "k8s:" + label
		}
		switch {
		case label == ciliumNamespace && c.kind == oneOf && len(c.values) == 1 && c.values[0] == own:
		case c.kind == oneOf && len(c.values) == 1:
			match[key] = c.values[0]
		case c.kind == oneOf:
			express(key, "In", c.values)
		case c.kind == absent:
			express(key, "DoesNotExist", nil)
		default:
			if c.present {
				express(key, "Exists", nil)
			}
			if len(c.values) > 0 {
				express(key, "NotIn", c.values)
			}
		}
	}
	written := map[string]any{}
	if len(match) > 0 {
		written["matchLabels"] = match
	}
	if len(expressions) > 0 {
		written["matchExpressions"] = expressions
	}
	return written
}
