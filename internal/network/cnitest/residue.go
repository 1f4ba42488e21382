package cnitest

import (
	"encoding/json"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// foreign are things of kube-proxy, the kubelet, the runtime and the host, which no residue may cover.
func foreign() step.Residue {
	links := []string{"lo", "eth0", "ens3", "enp1s0", "bond0", "docker0", "kube-ipvs0", "nodelocaldns",
		"wg0", "br0", "veth0", "tunl0"}
	return step.Residue{
		Links: links, RuleLinks: links,
		Chains: []string{
			"INPUT", "FORWARD", "OUTPUT", "PREROUTING", "POSTROUTING", "DOCKER", "DOCKER-USER",
			"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-FORWARD",
			"KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY",
			"KUBE-KUBELET-CANARY", "KUBE-EXTERNAL-SERVICES", "KUBE-SVC-ABCDEFGH", "KUBE-SEP-ABCDEFGH",
			"KUBE-EXT-ABCDEFGH", "KUBE-SVL-ABCDEFGH", "KUBE-FW-ABCDEFGH", "KUBE-IPTABLES-HINT",
			"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ", "THESEUS-JOIN",
		},
		RuleComments: []string{"kubernetes service portals", "kubernetes forwarding rules",
			"kubernetes postrouting rules", "theseus"},
		NFTables: []string{"ip filter", "ip nat", "inet firewalld", "ip kube-proxy", "ip6 kube-proxy", "inet filter"},
		IPSets: []string{"KUBE-CLUSTER-IP", "KUBE-LOOP-BACK", "KUBE-NODE-PORT-TCP", "KUBE-EXTERNAL-IP",
			"KUBE-LOAD-BALANCER", "blocklist"},
		Routes:    []string{"0.0.0.0/0", "192.168.0.0/24", "127.0.0.0/8"},
		Rules:     []string{"254 0.0.0.0/0", "100 10.0.0.0/8"},
		ConfFiles: []string{"99-loopback.conf", "00-multus.conf", "87-podman-bridge.conflist"},
		Binaries: []string{"loopback", "bridge", "host-local", "portmap", "bandwidth",
			"tuning", "firewall", "macvlan"},
		Paths: []string{"/", "/etc", "/run", "/var/lib", "/var/lib/cni", "/opt/cni/bin", "/etc/cni/net.d",
			"/var/lib/kubelet", "/var/log", "/run/theseus", "/run/xtables.lock"},
		Annotations: []string{"node.alpha.kubernetes.io/ttl", "volumes.kubernetes.io/controller-managed-attach-detach",
			"theseus.dev/x"},
		NodeLabels: []string{"kubernetes.io/os", "kubernetes.io/hostname", "node-role.kubernetes.io/control-plane"},
		Taints:     []string{"node-role.kubernetes.io/control-plane", "node.kubernetes.io/unschedulable"},
	}
}

// residues holds that a residue is something, and nothing of anybody else; an agent brings rules too, and a binary or
// routes by links that are not its own.
func residues(t *testing.T, residue step.Residue, agent bool) {
	t.Helper()
	if len(residue.Links)+len(residue.Routes) == 0 || len(residue.ConfFiles) == 0 ||
		agent && (len(residue.Chains)+len(residue.NFTables) == 0 || len(residue.Binaries)+len(residue.Routes) == 0) {
		t.Errorf("a network leaves links or routes, and a configuration, and its agent rules: %+v", residue)
	}
	own, others := lists(residue), lists(foreign())
	for kind, patterns := range own {
		for _, pattern := range patterns {
			if pattern == "" || pattern == "*" {
				t.Errorf("%s: the pattern %q covers everything", kind, pattern)
			}
			for _, other := range others[kind] {
				if step.Matches([]string{pattern}, other) {
					t.Errorf("%s: %q covers %q, which belongs to another network", kind, pattern, other)
				}
			}
		}
	}
	host, _ := residue.Split()
	args, err := json.Marshal(host)
	if err != nil {
		t.Fatal(err)
	}
	if err := step.Allowed(step.VerbClean, args); err != nil {
		t.Errorf("an agent refuses to remove it: %v (known in internal/step/allowed.go is what agents remove)", err)
	}
}

func lists(r step.Residue) map[string][]string {
	return map[string][]string{
		"link": r.Links, "chain": r.Chains, "comment": r.RuleComments, "rule link": r.RuleLinks,
		"rule set":  r.RuleSets,
		"nft table": r.NFTables, "ipset": r.IPSets, "route": r.Routes, "rule": r.Rules, "conf": r.ConfFiles,
		"binary": r.Binaries, "path": r.Paths, "annotation": r.Annotations, "label": r.NodeLabels,
		"taint": r.Taints, "farewell": r.Farewells,
	}
}
