package policy

import "fmt"

// scene is one set of policies, as the documents of a manifest.
type scene struct {
	name      string
	documents []string
}

// kubernetes is a NetworkPolicy; the spec is YAML in flow style.
func kubernetes(namespace, name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\n"+
		"spec: %s\n", name, namespace, spec)
}

// global is a GlobalNetworkPolicy of Calico's, as its definition stores it.
func global(name, spec string) string { return inTier("default", name, spec) }

func inTier(tier, name, spec string) string { return calico("", tier, name, spec) }

// namespaced is a NetworkPolicy of Calico's, as its definition stores it.
func namespaced(namespace, name, spec string) string { return calico(namespace, "default", name, spec) }

// calico is a policy of Calico's, as its definition stores it: a global one if it has no namespace.
func calico(namespace, tier, name, spec string) string {
	kind, in := "GlobalNetworkPolicy", ""
	if namespace != "" {
		kind, in = "NetworkPolicy", ", namespace: "+namespace
	}
	return fmt.Sprintf("apiVersion: crd.projectcalico.org/v1\nkind: %s\nmetadata: {name: %s.%s%s}\n"+
		"spec: {tier: %s, %s}\n", kind, tier, name, in, tier, spec)
}

// ciliumPolicy is a fence: a CiliumNetworkPolicy, or a CiliumClusterwideNetworkPolicy if it has no namespace.
func ciliumPolicy(namespace, spec string) string {
	kind, in := "CiliumClusterwideNetworkPolicy", ""
	if namespace != "" {
		kind, in = "CiliumNetworkPolicy", ", namespace: "+namespace
	}
	return fmt.Sprintf("apiVersion: cilium.io/v2\nkind: %s\nmetadata: {name: zz-fence%s}\nspec: {%s}\n", kind, in,
		spec)
}

// scenes are the sets that are tried, in the manner of cyclonus: one thing at a time, and a few together. address is
// that of a pod.
func scenes(address func(pod string) string) []scene {
	one := func(name, spec string) scene { return scene{name, []string{kubernetes("x", "one", spec)}} }
	in := func(name, ingress string) scene {
		return one(name, "{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], ingress: "+ingress+"}")
	}
	out := func(name, egress string) scene {
		return one(name, "{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: "+egress+"}")
	}
	return []scene{
		{"no policy", nil},
		in("deny what comes in to one pod", "[]"),
		one("deny what comes in to a namespace", "{podSelector: {}, policyTypes: [Ingress]}"),
		out("deny what goes out of one pod", "[]"),
		one("deny both for a namespace", "{podSelector: {}, policyTypes: [Ingress, Egress]}"),
		in("allow all", "[{}]"),
		{"deny all and allow all", []string{kubernetes("x", "one", "{podSelector: {}, policyTypes: [Ingress]}"),
			kubernetes("x", "two", "{podSelector: {}, ingress: [{}]}")}},
		in("from a pod of its namespace", "[{from: [{podSelector: {matchLabels: {pod: b}}}]}]"),
		in("from pods by expression", "[{from: [{podSelector: {matchExpressions: [{key: pod, operator: In, values: "+
			"[b, c]}, {key: none, operator: DoesNotExist}]}}]}]"),
		in("from pods without a label",
			"[{from: [{podSelector: {matchExpressions: [{key: pod, operator: NotIn, values: [b]}]}}]}]"),
		in("from a namespace", "[{from: [{namespaceSelector: {matchLabels: {team: z}}}]}]"),
		in("from a namespace by name",
			"[{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: z}}}]}]"),
		in("from a pod of a namespace",
			"[{from: [{namespaceSelector: {matchLabels: {team: z}}, podSelector: {matchLabels: {pod: b}}}]}]"),
		in("from a namespace or a pod",
			"[{from: [{namespaceSelector: {matchLabels: {team: z}}}, {podSelector: {matchLabels: {pod: b}}}]}]"),
		in("from every namespace", "[{from: [{namespaceSelector: {}}]}]"),
		in("from namespaces by expression",
			"[{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [x]}]}}]}]"),
		in("a TCP port", "[{ports: [{port: 80}]}]"),
		in("a UDP port", "[{ports: [{port: 80, protocol: UDP}]}]"),
		in("ports of both", "[{ports: [{port: 82}, {port: 81, protocol: UDP}]}]"),
		in("a named port", "[{ports: [{port: web}]}]"),
		in("a named port of UDP", "[{ports: [{port: dns, protocol: UDP}]}]"),
		in("a named port that only one pod has", "[{ports: [{port: special}]}]"),
		in("a range of ports", "[{ports: [{port: 81, endPort: 83}]}]"),
		in("a protocol alone", "[{ports: [{protocol: UDP}]}]"),
		in("a port from one pod", "[{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 81}]}]"),
		in("the address of a pod", fmt.Sprintf("[{from: [{ipBlock: {cidr: %s/32}}]}]", address("x/b"))),
		in("all addresses but one",
			fmt.Sprintf("[{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [%s/32]}}]}]", address("z/b"))),
		in("all addresses but two, on one port",
			fmt.Sprintf("[{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [%s/32, %s/32]}}], ports: [{port: 80}]}]",
				address("x/b"), address("z/c"))),
		out("to a pod", "[{to: [{podSelector: {matchLabels: {pod: b}}}]}]"),
		out("to a namespace on one port",
			"[{to: [{namespaceSelector: {matchLabels: {team: z}}}], ports: [{port: 81}]}]"),
		out("to a named port", "[{ports: [{port: web}]}]"),
		out("to a named port that only one pod has", "[{ports: [{port: special}]}]"),
		out("to an address", fmt.Sprintf("[{to: [{ipBlock: {cidr: %s/32}}]}]", address("z/a"))),
		out("to all addresses but one, by UDP", fmt.Sprintf(
			"[{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [%s/32]}}], ports: [{protocol: UDP}]}]", address("z/a"))),
		out("to a range of ports", "[{ports: [{port: 80, endPort: 81}]}]"),
		one("egress rules make an egress policy",
			"{podSelector: {matchLabels: {pod: a}}, egress: [{to: [{podSelector: {}}]}]}"),
		{"two policies add up", []string{kubernetes("x", "one",
			"{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}"),
			kubernetes("x", "two", "{podSelector: {matchExpressions: [{key: pod, operator: Exists}]}, ingress: "+
				"[{ports: [{port: 82}]}]}")}},
		{"both ends have a say", []string{kubernetes("x", "one", "{podSelector: {}, policyTypes: [Egress], egress: "+
			"[{to: [{namespaceSelector: {matchLabels: {team: z}}}], ports: [{port: 80}, {port: 81}]}]}"),
			kubernetes("z", "two",
				"{podSelector: {matchLabels: {pod: b}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: "+
					"x}}, podSelector: {matchLabels: {pod: a}}}], ports: [{port: 81}, {port: 82}]}]}")}},
		{"Calico: in their order", []string{
			global("first", "order: 10, selector: team == 'x' && pod == 'a', types: [Ingress], ingress: [{action: "+
				"Deny, protocol: TCP, source: {selector: pod == 'b'}, destination: {ports: ['80:81']}}]"),
			global("second", "order: 20, selector: team == 'x' && pod == 'a', types: [Ingress], ingress: [{action: "+
				"Allow, protocol: TCP, destination: {ports: [80, 81, 82]}}]")}},
		{"Calico: not these", []string{
			global("first", fmt.Sprintf("order: 10, selector: team == 'z', types: [Ingress, Egress], egress: "+
				"[{action: Allow}], ingress: [{action: Log}, {action: Allow, protocol: TCP, source: {notSelector: "+
				"\"pod in {'a'}\", notNets: [%s/32]}, destination: {notPorts: [83]}}]", address("x/b")))}},
		{"Calico before Kubernetes", []string{kubernetes("x", "one", "{podSelector: {}, policyTypes: [Ingress]}"),
			global("first", "order: 10, selector: \"team == 'x' && pod in {'a', 'b'}\", types: [Ingress], ingress: "+
				"[{action: Allow, protocol: UDP}]")}},
		{"Calico after Kubernetes",
			[]string{kubernetes("x", "one", "{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80}]}]}"),
				global("last",
					"order: 2000, selector: team == 'x', types: [Ingress], ingress: [{action: Deny, protocol: "+
						"TCP, destination: {ports: [81]}}, {action: Allow}]")}},
	}
}
