package path

import (
	"slices"
	"strings"
)

// Kind is a kind of path that workloads have, and how far it is measured or tested.
type Kind struct {
	// Name says which packets go from which end to which.
	Name string
	// Classes are those that measure it in every run; empty if none does.
	Classes []string
	// Guarded are the classes that measure it in guards alone.
	Guarded []string
	// Tests cover it if no run measures it: names of tests of this repository.
	Tests []string
	// Note names the limits of the measurement or the tests; it may be empty.
	Note string
}

// Known says how much is known: "measured", "guards", "tested" or "not known".
func (k Kind) Known() string {
	switch {
	case len(k.Classes) > 0:
		return "measured"
	case len(k.Guarded) > 0:
		return "guards"
	case len(k.Tests) > 0:
		return "tested"
	}
	return "not known"
}

// Kinds are all kinds of paths that a workload may have. docs/paths.md shows them, and a report names those that no run
// measures.
func Kinds() []Kind {
	measured := func(name, note string, classes ...string) Kind {
		return Kind{Name: name, Classes: classes, Note: note}
	}
	guarded := func(kind Kind, class string) Kind {
		kind.Guarded = []string{class}
		return kind
	}
	tested := func(name, note string, tests ...string) Kind { return Kind{Name: name, Tests: tests, Note: note} }
	unknown := func(name, note string) Kind { return Kind{Name: name, Note: note} }
	return []Kind{
		measured("pod to pod on another node: UDP, kept TCP", "", ClassPodPod),
		measured("pod to pod on another node: new TCP", "through Services; direct connections where policy denies them",
			ClassPodService, ClassDenied),
		measured("pod to pod on the same node: UDP", "while two networks are there", ClassSameNode),
		measured("pod to pod: datagrams that fill the MTU", "", ClassFullSize),
		measured("pod to pod that a policy denies: UDP, new TCP", "where policies are enforced", ClassDenied),
		measured("node to pod: UDP", "", ClassHostPod),
		measured("pod to node: UDP", "", ClassPodHost),
		measured("pod to a Service's cluster IP: UDP, new TCP", "", ClassPodService),
		measured("node to a Service's cluster IP: kept TCP, new TCP", "", ClassHostService),
		measured("DNS by UDP", "", ClassDNS),
		measured("another machine to a node port, externalTrafficPolicy Cluster: new TCP",
			"from the next node's own network", ClassNodePort),
		measured("pod to the outside, masqueraded: new TCP, kept TCP, UDP from a new port",
			"towards the next node's address, where the network treats that as outside", ClassOutside),
		measured("pod to the outside, to responders of the user's: new TCP, UDP, DNS",
			"with --outside; without it, new TCP to the API server alone", ClassOutside),
		measured("node to the outside: new TCP, UDP", "", ClassOutside),

		guarded(unknown("pod and node to a Service with internalTrafficPolicy Local: new TCP",
			"to the probe pod of the same node, so a pod reaches itself (hairpin)"), ClassLocalService),
		guarded(tested("another machine to a node port, externalTrafficPolicy Local: new TCP",
			"from the next node's own network", "TestAdopt", "TestAdoptBridge"), ClassLocalPort),
		guarded(tested("another machine to a hostPort: new TCP", "from the next node's own network",
			"TestAdopt", "TestAdoptBridge"), ClassHostPort),
		guarded(unknown("node-local DNS cache: UDP", "that of the DaemonSet node-local-dns"), ClassLocalDNS),

		tested("pod to the outside, not masqueraded: kept and new TCP, UDP",
			"on a bridge network without ipMasq", "TestAdoptBridge"),
		tested("connections of all kinds in mid-stream while the pod is moved",
			"by adoption", "TestAdopt", "TestAdoptBridge"),
		tested("pod to itself through its Service (hairpin): kept TCP", "", "TestAdopt", "TestAdoptBridge"),
		tested("outside to a hostPort: kept TCP, UDP", "", "TestAdopt", "TestAdoptBridge"),
		tested("outside to a node port, externalTrafficPolicy Cluster: kept TCP, UDP",
			"", "TestAdopt", "TestAdoptBridge"),
		tested("outside to a node port, externalTrafficPolicy Local: kept TCP",
			"the client's address is kept", "TestAdopt", "TestAdoptBridge"),
		tested("members of a headless Service, by name: new TCP", "", "TestKilledAndResumed", "TestRollback"),
		tested("kubelet to pod: readiness and liveness probes",
			"with failureThreshold 1", "TestAdopt", "TestAdoptBridge"),
		tested("node's path MTU: packets between nodes that must not be fragmented",
			"before a plan is made", "TestKernelPathMTU"),
		tested("routes that BGP announces: pod ranges", "", "TestReflectors", "TestPiDay"),
		tested("new connections to the outside in a switch of data planes, 50 a second", "", "TestGuardMasquerades"),

		unknown("outside to a load balancer's address", "only the part from the node port on is measured: "+
			"inside the cluster, kube-proxy serves the address itself; an HTTP check of your own "+
			"(--slo), or theseus guard report --with, takes the whole way"),
		unknown("DNS by TCP", ""),
		unknown("session affinity (ClientIP)", ""),
		unknown("externalIPs of Services", ""),
		unknown("Service addresses that BGP announces", ""),
		unknown("healthCheckNodePort", ""),
		unknown("ICMP: echo, and errors such as fragmentation needed", ""),
		unknown("fragments of UDP", ""),
		unknown("SCTP", ""),
		unknown("multicast", "few networks have it"),
		unknown("API server to webhooks that are pods", ""),
		unknown("API server to aggregated API servers that are pods", ""),
		unknown("exec, logs and port-forward", "the kubelet serves them on the node's own network"),
		unknown("IPv6", "refused or not looked at: see networks.md"),
	}
}

// Unmeasured are the names of the kinds that a run does not measure, by whether tests cover them. guard says whether
// the run is a guard.
func Unmeasured(guard bool) (tested, unknown []string) {
	for _, kind := range Kinds() {
		switch {
		case len(kind.Classes) > 0 || guard && len(kind.Guarded) > 0:
		case len(kind.Tests) > 0:
			tested = append(tested, kind.Name)
		default:
			unknown = append(unknown, kind.Name)
		}
	}
	return tested, unknown
}

// Table is the kinds as a table of Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| kind of path | known | by | limits |\n|---|---|---|---|\n")
	for _, kind := range Kinds() {
		by := "`" + strings.Join(slices.Concat(kind.Classes, kind.Guarded, kind.Tests), "`, `") + "`"
		if by == "``" {
			by = ""
		}
		b.WriteString("| " + kind.Name + " | " + kind.Known() + " | " + by + " | " + kind.Note + " |\n")
	}
	return b.String()
}
