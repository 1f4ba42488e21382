package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Pods have addresses of allPods, and nodes do not; allNodes has those of nodes and of the fabric.
const (
	allPods   = "198.19.0.0/16"
	allNodes  = "198.18.0.0/16"
	outsiders = "203.0.113.0/24"
)

// calicoScenes hold one feature of Calico's policies each, or what features do to one another.
func calicoScenes() []scene {
	one := func(name, spec string) scene { return scene{name, []string{global("one", spec)}} }
	in := func(name, rules string) scene {
		return one(name, "order: 10, selector: pod == 'a', types: [Ingress], ingress: "+rules)
	}
	out := func(name, rules string) scene {
		return one(name, "order: 10, selector: pod == 'a', types: [Egress], egress: "+rules)
	}
	allowWeb := "{action: Allow, protocol: TCP, destination: {ports: [80]}}"
	return []scene{
		in("isolate", "[]"),
		out("isolate what goes out", "[]"),
		one("allow all, both directions", "order: 10, selector: all(), types: [Ingress, Egress], ingress: "+
			"[{action: Allow}], egress: [{action: Allow}]"),
		in("deny after allow", "[{action: Allow, source: {selector: pod == 'b'}}, {action: Deny, protocol: TCP, "+
			"destination: {ports: ['80:82']}}, {action: Allow}]"),
		in("allow after deny", "[{action: Deny, source: {selector: pod == 'b'}}, {action: Allow, protocol: TCP}]"),
		in("log and allow", "[{action: Log}, {action: Allow, protocol: UDP}, {action: Log}]"),
		in("a named port", "[{action: Allow, protocol: TCP, destination: {ports: [web]}}]"),
		one("a named port that differs between pods", "order: 10, selector: has(pod), types: [Ingress], ingress: "+
			"[{action: Allow, protocol: TCP, destination: {ports: [web]}}]"),
		one("deny a named port", "order: 10, selector: has(pod), types: [Ingress], ingress: [{action: Deny, "+
			"protocol: TCP, destination: {ports: [web]}}, {action: Allow}]"),
		out("a named port of others", "[{action: Allow, protocol: TCP, destination: {ports: [web]}}]"),
		in("namespaces by label", "[{action: Allow, source: {namespaceSelector: env == 'prod'}}]"),
		in("namespaces without a label", "[{action: Allow, source: {namespaceSelector: '!has(env)'}}]"),
		in("namespaces by name", "[{action: Allow, source: {namespaceSelector: projectcalico.org/name == 'z', "+
			"selector: \"pod in {'b', 'c'}\"}}]"),
		in("not a selector", "[{action: Allow, source: {selector: has(pod), notSelector: pod == 'b'}}]"),
		in("not a selector, alone", "[{action: Allow, source: {notSelector: pod == 'b'}}]"),
		in("service accounts by name", "[{action: Allow, source: {serviceAccounts: {names: [front]}}}]"),
		in("service accounts by label", "[{action: Allow, source: {serviceAccounts: {selector: role == 'back'}}}]"),
		one("policy by service account", "order: 10, serviceAccountSelector: role == 'front', types: [Ingress], "+
			"ingress: ["+allowWeb+"]"),
		one("policy by namespace", "order: 10, namespaceSelector: env == 'prod', types: [Ingress, Egress], ingress: "+
			"[{action: Allow, source: {namespaceSelector: has(zone)}}], egress: [{action: Allow, destination: "+
			"{nets: [0.0.0.0/0], notNets: ["+outsiders+"]}}]"),
		out("to all pods by range", "[{action: Allow, destination: {nets: ["+allPods+"]}}]"),
		out("to all but pods by range", "[{action: Allow, destination: {notNets: ["+allPods+"]}}]"),
		out("to a range outside", "[{action: Allow, destination: {nets: ["+outsiders+"]}}]"),
		out("to a range outside with a hole", "[{action: Allow, destination: {nets: ["+outsiders+"], notNets: "+
			"["+partner+"/32]}}]"),
		out("deny a range outside", "[{action: Deny, destination: {nets: ["+partner+"/32]}}, {action: Allow}]"),
		out("to a network set", "[{action: Allow, destination: {selector: kind == 'partner'}}]"),
		out("to nodes by range", "[{action: Allow, destination: {nets: ["+allNodes+"]}}]"),
		in("from the outside by range", "[{action: Allow, source: {nets: ["+outsiders+"]}}]"),
		in("deny the outside by range", "[{action: Deny, source: {nets: ["+outsider+"/32]}}, {action: Allow}]"),
		in("deny nodes by range", "[{action: Deny, source: {nets: ["+allNodes+"]}}, {action: Allow}]"),
		in("not these ports", "[{action: Allow, protocol: TCP, destination: {notPorts: [80, '82:83']}}]"),
		in("not a protocol", "[{action: Allow, notProtocol: UDP}]"),
		in("source ports", "[{action: Allow, protocol: TCP, source: {ports: ['1024:65535']}}]"),
		{"namespaced", []string{namespaced("x", "one", "order: 10, selector: pod == 'a', types: [Ingress], ingress: "+
			"[{action: Allow, source: {selector: pod == 'b'}}, {action: Allow, protocol: TCP, source: "+
			"{namespaceSelector: team == 'z'}, destination: {ports: [81, web]}}]")}},
		{"namespaced, all()", []string{namespaced("z", "one", "order: 10, types: [Ingress, Egress], ingress: "+
			"[{action: Allow, source: {selector: all()}}], egress: [{action: Allow, destination: {namespaceSelector: "+
			"all()}}]")}},
		{"order", []string{
			global("late", "order: 20, selector: team == 'x', types: [Ingress], ingress: [{action: Allow}]"),
			namespaced("x", "early", "order: 5, selector: pod == 'a', types: [Ingress], ingress: [{action: Deny, "+
				"protocol: TCP, destination: {ports: [81]}}]"),
			global("between", "order: 10, selector: team == 'x', types: [Ingress], ingress: [{action: Deny, source: "+
				"{selector: team == 'z' && pod == 'c'}}]")}},
		{"tier that passes", []string{
			inTier("early", "guard", "order: 1, selector: has(pod), types: [Ingress], ingress: [{action: Deny, "+
				"protocol: TCP, destination: {ports: [84]}}, {action: Pass}]"),
			global("one", "order: 1, selector: pod == 'a', types: [Ingress], ingress: ["+allowWeb+"]")}},
		{"tier that passes some", []string{
			inTier("early", "guard", "order: 1, selector: has(pod), types: [Ingress], ingress: [{action: Allow, "+
				"source: {selector: pod == 'c'}, protocol: TCP, destination: {ports: [82]}}, {action: Pass, source: "+
				"{selector: team == 'x'}}]"),
			global("one", "order: 1, selector: pod == 'a', types: [Ingress], ingress: ["+allowWeb+"]")}},
		{"tier that denies the rest", []string{
			inTier("early", "guard", "order: 1, selector: pod == 'a', types: [Ingress], ingress: [{action: Pass, "+
				"protocol: TCP}]"),
			global("one", "order: 1, selector: team == 'x', types: [Ingress], ingress: [{action: Allow, source: "+
				"{selector: pod == 'b'}}]")}},
		{"tier whose default is Pass", []string{
			inTier("open", "guard", "order: 1, selector: has(pod), types: [Ingress, Egress], ingress: [{action: Deny, "+
				"protocol: UDP}], egress: [{action: Deny, destination: {nets: ["+partner+"/32]}}]"),
			global("one", "order: 1, selector: pod == 'a', types: [Ingress], ingress: [{action: Allow, source: "+
				"{selector: team == 'z'}}]")}},
		{"tier after NetworkPolicy", []string{kubernetes("x", "one",
			"{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]}"),
			inTier("late", "last", "order: 1, selector: pod == 'b', types: [Ingress], ingress: ["+allowWeb+"]")}},
		{"NetworkPolicy narrowed by a tier", []string{kubernetes("x", "one",
			"{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: "+
				"{}}]}]}"),
			inTier("early", "guard", "order: 1, selector: team == 'x', types: [Ingress], ingress: [{action: Deny, "+
				"source: {selector: pod == 'b'}, protocol: TCP, destination: {ports: [80]}}, {action: Pass}]")}},
		{"both ends", []string{
			global("out", "order: 10, selector: team == 'x', types: [Egress], egress: [{action: Allow, protocol: TCP, "+
				"destination: {selector: team == 'z', ports: ['80:82']}}]"),
			namespaced("z", "in", "order: 10, selector: pod == 'b', types: [Ingress], ingress: [{action: Deny, "+
				"protocol: TCP, destination: {ports: [81]}}, {action: Allow, source: {namespaceSelector: "+
				"team == 'x'}}]")}},
		{"default deny with exceptions", []string{
			global("all", "order: 1000, selector: has(pod), types: [Ingress, Egress]"),
			global("dns", "order: 100, selector: has(pod), types: [Egress], egress: [{action: Allow, protocol: UDP, "+
				"destination: {selector: has(pod), ports: [81]}}]"),
			namespaced("x", "web", "order: 200, selector: pod == 'a', types: [Ingress], ingress: [{action: Allow, "+
				"protocol: UDP}]"),
			namespaced("z", "web", "order: 200, types: [Ingress], ingress: [{action: Allow, protocol: UDP, source: "+
				"{namespaceSelector: all()}}]")}},
	}
}

// dice makes sets of policies at random, with few names, so that policies meet. None selects the pods of the fences.
type dice struct{ *rand.Rand }

func (d dice) one(of ...string) string { return of[d.IntN(len(of))] }

func (d dice) often(percent int) bool { return d.IntN(100) < percent }

func (d dice) selector() string {
	return d.one("has(pod)", "pod == 'a'", "pod == 'b'", "\"pod in {'a', 'c'}\"", "\"has(pod) && pod not in {'b'}\"",
		"team == 'x'", "team == 'z' && has(pod)", "\"has(pod) && !has(none)\"", "\"pod == 'a' || team == 'z'\"")
}

// policies is a set of two to five.
func (d dice) policies() (all []string) {
	for i := range 2 + d.IntN(4) {
		tier, order := d.one("early", "open", "default", "default", "default", "late"), d.IntN(4)
		directions := d.one("Ingress", "Ingress", "Egress", "Ingress, Egress")
		spec := fmt.Sprintf("order: %d, selector: %s, types: [%s]", order, d.selector(), directions)
		if d.often(15) {
			spec += ", serviceAccountSelector: role == '" + d.one("front", "back") + "'"
		}
		for _, direction := range []string{"Ingress", "Egress"} {
			if strings.Contains(directions, direction) {
				spec += ", " + strings.ToLower(direction) + ": [" + d.rules(direction, tier) + "]"
			}
		}
		namespace := ""
		if d.often(40) {
			namespace = d.one("x", "z")
		}
		all = append(all, calico(namespace, tier, fmt.Sprintf("p%d", i), spec))
	}
	if d.often(40) {
		all = append(all, kubernetes(d.one("x", "z"), "k", fmt.Sprintf("{podSelector: {matchLabels: {pod: %s}}, "+
			"policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: "+
			"%s}}}], ports: [{port: %s}, {port: 81, protocol: UDP}]}]}", d.one("a", "b", "c"), d.one("x", "z"),
			d.one("80", "web", "82"))))
	}
	return all
}

func (d dice) rules(direction, tier string) string {
	var rules []string
	for range 1 + d.IntN(3) {
		parts := []string{"action: " + d.one("Allow", "Allow", "Allow", "Deny", "Deny", "Log")}
		var peer, ports []string
		if d.often(60) {
			parts = append(parts, "protocol: "+d.one("TCP", "TCP", "UDP"))
			if d.often(70) {
				ports = append(ports, d.one("ports: [80]", "ports: ['80:82']", "notPorts: [81]", "ports: [81, 83]"))
			}
		}
		switch d.IntN(7) {
		case 0, 1, 2:
			peer = append(peer, "selector: "+d.selector())
		case 3:
			peer = append(peer, "namespaceSelector: "+d.one("env == 'prod'", "has(zone)", "all()"))
		case 4:
			peer = append(peer, "serviceAccounts: {names: ["+d.one("front", "back")+"]}")
		case 5:
			peer = append(peer, "nets: ["+d.one(outsiders, partner+"/32", allPods, "0.0.0.0/0")+"]")
		}
		if d.often(10) {
			peer = append(peer, "notSelector: "+d.one("pod == 'b'", "team == 'z'"))
		}
		ends := map[string][]string{"source": peer, "destination": ports}
		if direction == "Egress" {
			ends = map[string][]string{"destination": append(peer, ports...)}
		}
		for _, end := range []string{"source", "destination"} {
			if len(ends[end]) > 0 {
				parts = append(parts, end+": {"+strings.Join(ends[end], ", ")+"}")
			}
		}
		rules = append(rules, "{"+strings.Join(parts, ", ")+"}")
	}
	if tier == "early" || d.often(15) {
		rules = append(rules, "{action: "+d.one("Pass", "Pass", "Allow")+"}")
	}
	return strings.Join(rules, ", ")
}
