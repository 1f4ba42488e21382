package step

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// known is all that the networks which Theseus can take away leave on a node. An agent removes, copies or watches
// nothing else, no matter who wrote its task. Two kinds of names are the user's own, and only the node itself can tell
// what they are: a bridge (Residue.OwnLinks) and the folder in which host-local keeps addresses (Residue.OwnPaths).
var known = Residue{
	Links: []string{"cali*", "vxlan.calico", "vxlan-v6.calico", "flannel*", "cni0", "cbr0",
		"kube-bridge", "tun-*", "weave", "datapath", "vethwe*", "vxlan-6784", "cilium_*", "lxc*"},
	Chains: []string{"cali-*", "FLANNEL-*", "WEAVE", "WEAVE-*", "CILIUM_*", "OLD_CILIUM_*", "KUBE-ROUTER-*",
		"KUBE-POD-FW-*", "KUBE-NWPLCY-*", "KIND-MASQ-AGENT"},
	RuleComments: []string{"cali:*", "flanneld masq", "flanneld forward",
		"Block non-local access to Weave Net control port",
		"allow outbound node port traffic on node interface with which node ip is associated"},
	RuleLinks: []string{"weave", "kube-bridge"},
	RuleSets: []string{"kube-router-pod-subnets", "kube-router-node-ips", "inet6:kube-router-pod-subnets",
		"inet6:kube-router-node-ips"},
	NFTables: []string{"ip calico", "ip6 calico", "ip flannel-ipv4", "ip6 flannel-ipv6",
		"inet kindnet-network-policies", "inet kube-network-policies"},
	IPSets: []string{"cali*", "weave-*", "weaver-*", "cilium_*", "kube-router-*", "KUBE-SRC-*",
		"KUBE-DST-*", "inet6:KUBE-SRC-*", "inet6:KUBE-DST-*", "inet6:kube-router-*"},
	Rules:    []string{"77"}, // the tables alone
	Binaries: []string{"calico", "calico-ipam", "flannel", "weave-net", "weave-ipam", "weave-plugin-*", "cilium-cni"},
	Paths: []string{"/run/flannel", "/run/calico", "/run/nodeagent", "/run/cilium", "/var/lib/calico",
		"/var/lib/weave", "/var/lib/cilium", "/var/lib/kube-router", "/var/log/calico", "/var/lib/cni/flannel*",
		"/var/lib/cni/networks/*",
		"/var/lib/cni/results/*", "/run/cni-ipam-state", "/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals/cilium_*",
		"/etc/sysctl.d/99-zzz-override_cilium.conf", "/etc/cni/net.d/theseus"},
}

// others are interfaces of the host and of other programs, whatever pattern covers them.
var others = []string{"lo", "docker*", "br-*", "virbr*", "lxcbr*", "lxdbr*", "podman*", "cni-podman*",
	"kube-ipvs0", "nodelocaldns"}

// first is the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// allowed judges what an agent is asked to look for or to remove.
func (r Residue) allowed() error {
	if _, object := r.Split(); object.Count() > 0 {
		return fmt.Errorf("keys of Node objects are the engine's to remove, not an agent's")
	}
	for _, name := range r.ConfFiles {
		if !confName(strings.TrimPrefix(name, "theseus/")) {
			return fmt.Errorf("%q is not the name of a file in the folder of CNI configurations", name)
		}
	}
	for _, name := range r.Links {
		if Matches(others, name) || !openIn(known.Links, name) && strings.Contains(name, "*") {
			return foreign("interface", name)
		}
	}
	for _, name := range r.Paths {
		if !path.IsAbs(name) || path.Clean(name) != name || strings.Count(name, "/") < 2 ||
			strings.Contains(path.Dir(name), "*") {
			return foreign("path", name)
		}
	}
	for _, rule := range r.Rules {
		table, cidr, _ := strings.Cut(rule, " ")
		if !slices.Contains(known.Rules, table) || ranges([]string{cidr}) != nil {
			return foreign("policy routing rule", rule)
		}
	}
	return first(ranges(r.Routes), r.named())
}

// named judges what has one name on all nodes.
func (r Residue) named() error {
	for _, kind := range []struct {
		what         string
		allow, asked []string
	}{
		{"chain", known.Chains, r.Chains}, {"comment of a rule", known.RuleComments, r.RuleComments},
		{"nft table", known.NFTables, r.NFTables}, {"ipset", known.IPSets, r.IPSets},
		{"plugin", known.Binaries, r.Binaries},
		{"interface of a rule", known.RuleLinks, r.RuleLinks}, {"ipset of a rule", known.RuleSets, r.RuleSets},
	} {
		for _, name := range kind.asked {
			if !openIn(kind.allow, name) {
				return foreign(kind.what, name)
			}
		}
	}
	return nil
}

// OwnLinks are the interfaces of a residue whose names no network has by itself. Only a bridge may have such a name.
func (r Residue) OwnLinks() []string { return without(known.Links, r.Links) }

// OwnPaths are the paths of a residue that no network has by itself. Only a folder of host-local's may be at such a
// path.
func (r Residue) OwnPaths() []string { return without(known.Paths, r.Paths) }

func without(allow, asked []string) []string {
	return slices.DeleteFunc(slices.Clone(asked), func(name string) bool { return openIn(allow, name) })
}

// allowed judges the files that moving a pod reads and writes.
func (a Attachment) allowed() error {
	for _, name := range a.Conf {
		if !confName(strings.TrimPrefix(name, "theseus/")) {
			return fmt.Errorf("%q is not the name of a file in the folder of CNI configurations", name)
		}
	}
	for _, name := range a.Restore {
		if path.Clean(name) != name || !openIn(known.Paths, name) && !openIn(known.Paths, path.Dir(name)) {
			return foreign("path", name)
		}
	}
	return nil
}

// openIn says whether an allowed pattern covers all that another pattern, or a name, means.
func openIn(allow []string, asked string) bool {
	literal, open := strings.CutSuffix(asked, "*")
	return slices.ContainsFunc(allow, func(pattern string) bool {
		prefix, prefixes := strings.CutSuffix(pattern, "*")
		if !prefixes {
			return asked == pattern
		}
		return strings.HasPrefix(literal, prefix) && !(open && literal == prefix && strings.HasSuffix(prefix, "/")) &&
			!strings.Contains(literal[len(prefix):], "/")
	})
}

// confName says whether a name, or a pattern with a beginning, is one of a single file.
func confName(name string) bool {
	return name != "" && name != "." && name != ".." && name[0] != '*' && !strings.Contains(name, "/")
}

// ranges are CIDRs of pods: none of them is most of the address space.
func ranges(cidrs []string) error {
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Bits() < 8 {
			return fmt.Errorf("%q is not a range of pods", cidr)
		}
	}
	return nil
}

func foreign(what, name string) error {
	return fmt.Errorf("no known network leaves the %s %q on a node", what, name)
}
